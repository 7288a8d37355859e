from __future__ import annotations

from madbench.cli.options import RESULTS, ResultsOption, option, with_groups
from madbench.cli.selection import LanguageOptions, LanguageWordsArgument
from madbench.cli.tables import PrintOptions, print_text_table
from madbench.errors import ConfigError


@with_groups
def table(
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
    results: ResultsOption = RESULTS,
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

    losses = None if thresholds is None else _parse(thresholds)
    selection = stored.selection(words, results)
    print_text_table(result_table(selection.select(), thresholds=losses).sorted_by(sort), printed.asked)


def _parse(text: str) -> list[float]:
    """``"2.0,1.9"`` -> losses."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--thresholds {text!r}: expected losses such as 2.0,1.9") from None
