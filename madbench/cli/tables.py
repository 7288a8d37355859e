"""Tables of what is stored: ``madbench table``, ``attribute``, ``compare`` and ``lm table``."""

from __future__ import annotations

from madbench.cli.options import (
    LABELS_HELP,
    LanguageOptions,
    LanguageWordsArgument,
    PrintOptions,
    StoredOptions,
    StoredWordsArgument,
    argument,
    option,
    with_groups,
)
from madbench.cli.printing import print_text_table
from madbench.errors import ConfigError, StoreError


@with_groups
def table(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    sort: option(
        str,
        "Best row first: a task, mad_average, loss_l5, steps_to_X, budget_ratio or n; label is their order.",
        metavar="COLUMN",
    ) = "label",
    printed: PrintOptions,
) -> None:
    """Tabulate what the store holds: means over seeds with 95% intervals, and which labels may be the best.

    Every suite has one protocol: profile, fidelity, budget and overrides are never
    mixed, nor the language model's presets and corpora. So give the same profile,
    overrides, fidelity and budget as for madbench run, which prints the command
    that shows its table again. madbench lm table has more of the language model.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --sort mad_average
      madbench table -t compression,language_model -f html > table.html
    """
    from madbench.analysis.tables import result_table

    selection = stored.selection(words)
    print_text_table(result_table(selection.select(), is_brief=True).sorted_by(sort), printed.asked)


@with_groups
def language_table(
    words: LanguageWordsArgument = None,
    *,
    stored: LanguageOptions,
    thresholds: option(
        str | None, "Losses x of the columns 'to x', such as 2.0,1.9; chosen from the curves by default."
    ) = None,
    sort: option(
        str,
        "Best row first: loss_l5, validation_loss, steps_to_X, budget_ratio or n; label is their order.",
        metavar="COLUMN",
    ) = "label",
    printed: PrintOptions,
) -> None:
    """Tabulate stored language-model runs: L5, validation loss, steps to thresholds, loss at equal time.

    Corpora, sizes, schedules and budgets are never mixed: where the
    store holds several, this lists them and how to choose one.

    [bold]Examples[/bold]

      madbench lm table
      madbench lm table S-p G-cg-q-12o --thresholds 2.0,1.9,1.8
      madbench lm table --sort loss_l5
      madbench lm table --preset gpt2 --corpus openwebtext --format latex > lm.tex
    """
    from madbench.analysis.tables import result_table

    try:
        losses = None if thresholds is None else [float(part) for part in thresholds.split(",")]
    except ValueError:
        raise ConfigError(f"--thresholds {thresholds!r}: expected losses such as 2.0,1.9") from None
    selection = stored.selection(words)
    print_text_table(result_table(selection.select(), thresholds=losses).sorted_by(sort), printed.asked)


@with_groups
def attribute(
    words: StoredWordsArgument = None,
    pairs: option(bool, "Show every pair of labels below its factor.", "--pairs") = False,
    *,
    stored: StoredOptions,
    printed: PrintOptions,
) -> None:
    """Estimate what each factor of the labels is worth: convolution, gates, RoPE, rank, mixing, layout, base, budget.

    A factor's effect is its mean over all pairs of stored labels that differ in
    it alone, with a 95% interval. Below are the significant interactions of two
    factors. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench attribute
      madbench attribute @table1 --profile full --pairs
      madbench attribute -t in_context_recall,language_model --format json
    """
    from madbench.analysis.attribution_table import attribution_table

    selection = stored.selection(words)
    found = selection.select("no two labels share a language-model protocol", lambda labels: len(labels) > 1)
    table = attribution_table(found.scores, found.sentences(), pairs)
    if not table.effects:
        raise StoreError(
            f"{stored.results}: no two labels with a finished task and seed in common differ in exactly one factor; "
            "madbench run '~G-cg-q-12o' trains such"
        )
    print_text_table(table, printed.asked)


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
