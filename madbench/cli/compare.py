"""``madbench compare``: labels against the first of them, on the runs that they share."""

from __future__ import annotations

from madbench.cli import options
from madbench.cli.options import StoredOptions
from madbench.cli.parameters import argument
from madbench.cli.printing import print_text_table
from madbench.errors import ConfigError, StoreError


def compare(
    words: argument(
        list[str],
        "LABEL|KEY=VALUE",
        options.LABELS_HELP + " The first label is compared with each of the others. KEY=VALUE is one of the profile.",
    ),
    *,
    stored: StoredOptions,
    printed: options.PrintOptions,
) -> None:
    """Compare labels on the runs they share: mean difference, interval, p-value, and whether it is significant.

    The unit is the seed, under one protocol as in madbench table. Where the
    noise of the profile is known, or the seeds of both labels scatter about one
    value, Cochran and Cox's t; where some seeds solve the task and others do not,
    an exact test of how many solve it. p is adjusted by Holm's method for all
    rows. Nothing is tested with fewer than three seeds.

    [bold]Examples[/bold]

      madbench compare R-cg-q R-cg-q-12o            what sequence mixing adds
      madbench compare S-p R-c G-cg-q-12o -t in_context_recall,selective_copying
      madbench compare R-cg-q-12o '~R-cg-q-12o' -p full -f latex > factors.tex
      madbench compare S-p G-cg-q-12o -t language_model
    """
    from madbench.analysis.comparison import comparison_table

    selection = stored.selection(words)
    if len(selection.labels) < 2:
        named = selection.labels[0] if selection.labels else "no label"
        raise ConfigError(f"{named}: nothing to compare with; give two labels or more")
    baseline, *others = selection.labels
    among = f"{baseline} shares no {{}} with {' or '.join(others)}"
    found = selection.select(among.format("protocol"), lambda labels: labels > {baseline})
    table = comparison_table(baseline, others, found.scores, found.sentences())
    compared = {row.label for row in table.rows}
    begun = found.scores[found.scores.done > 0].groupby("label").column.agg(set)
    unfinished = [label for label in others if begun.get(label, set()) & begun.get(baseline, set())]
    whole = " of which both have a whole seed"
    if not compared:
        raise StoreError(f"{stored.results}: {among.format('task')}{whole if unfinished else ''}")
    for label in others:
        if label not in compared:
            which = whole if label in unfinished else ""
            selection.warn(f"{label} is left out: it shares no task with {baseline}{which}")
    print_text_table(table, printed)
