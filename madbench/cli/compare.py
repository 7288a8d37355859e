from __future__ import annotations

from madbench.cli.options import LABELS_HELP, argument, with_groups
from madbench.cli.selection import StoredOptions
from madbench.cli.tables import PrintOptions, print_text_table
from madbench.errors import ConfigError, StoreError


@with_groups
def compare(
    words: argument(
        list[str],
        "LABEL|KEY=VALUE",
        LABELS_HELP + " The first label is compared with each of the others. KEY=VALUE is one of the profile.",
    ),
    *,
    stored: StoredOptions,
    printed: PrintOptions,
) -> None:
    """Compare labels on the runs they share: mean difference, interval, p-value, and whether it is significant.

    Runs are paired by task, setting and seed, under one protocol as in madbench
    table; language models by seed. Every row has a bootstrap interval and a
    sign-flip p, adjusted by Holm's method for all rows. A single seed is excluded
    from tests, and with fewer than six pairs no difference is significant.

    [bold]Examples[/bold]

      madbench compare R-cg-q R-cg-q-12o            what sequence mixing adds
      madbench compare S-p R-c G-cg-q-12o -t in_context_recall,selective_copying
      madbench compare R-cg-q-12o '~R-cg-q-12o' --profile full -f latex > factors.tex
      madbench compare S-p G-cg-q-12o -t language_model
    """
    from madbench.analysis.comparison import comparison_table

    selection = stored.selection(words)
    if len(selection.labels) < 2:
        named = selection.labels[0] if selection.labels else "no label"
        raise ConfigError(f"{named}: nothing to compare with; give two labels or more")
    baseline, *others = selection.labels
    among = f"{baseline} shares no {{}} with {' or '.join(others)}"
    found = selection.select(among.format("language-model protocol"), lambda labels: labels > {baseline})
    table = comparison_table(baseline, others, found.setting_scores, found.sentences())
    compared = {row.label for row in table.rows}
    if not compared:
        raise StoreError(f"{stored.results}: {among.format('task and seed')}")
    for label in others:
        if label not in compared:
            selection.warn(f"{label} is left out: it shares no task and seed with {baseline}")
    print_text_table(table, printed.asked)
