"""``madbench compare``: labels against the first of them, on the runs that they share."""

from __future__ import annotations

from madbench.cli import options
from madbench.cli.options import StoredOptions
from madbench.cli.parameters import argument, option
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import print_text_table
from madbench.errors import ConfigError


def compare(
    words: argument(
        list[str],
        "LABEL|KEY=VALUE",
        options.LABELS_HELP + " The first label is compared with each of the others. KEY=VALUE changes the profile.",
    ),
    within: option(
        str | None,
        "Also test whether a difference is within a margin: 2 of all columns in points, or of named ones.",
        metavar="NUMBER|COLUMN=NUMBER,...",
    ) = None,
    *,
    stored: StoredOptions,
    spread: options.SpreadOption = "interval",
    printed: PrintOptions,
) -> None:
    """Compare labels on the runs they share.

    A row has the mean difference of two labels, its interval and p-value, and
    whether it is significant. The unit is the seed, under one protocol as in
    madbench table. The test is Student's t, with variances raised by what few
    seeds cannot show; it is the same for every profile and column. p is adjusted
    by Holm's method for all rows. Nothing is tested with fewer than three seeds.

    --within: two one-sided tests against the margin on either side, with
    the same error and correction: equivalent, no worse, no better, or not
    shown. A large p of a difference is never read as equality.

    [bold]Examples[/bold]

      madbench compare R-cg-q R-cg-q-12o            what sequence mixing adds
      madbench compare S-p R-c G-cg-q-12o -t in_context_recall,selective_copying
      madbench compare R-cg-q-12o '~R-cg-q-12o' -p full -f latex > factors.tex
      madbench compare S-p G-cg-q-12o --spread sd   standard deviations of both
      madbench compare S-p G-cg-q-12o -t language_model
      madbench compare S-pc R-pc --within 2
      madbench compare S-pc R-pc --within mad_average=2,loss_l5=0.02
    """
    margins = None if within is None else _margins(within)
    table = stored.selection(words).compare(margins, has_deviations=spread == "sd")
    print_text_table(table, printed)


def _margins(text: str) -> float | dict[str, float]:
    """``2``, or ``mad_average=2,loss_l5=0.02``."""
    parts = [part.strip().partition("=") for part in text.split(",")]
    try:
        if len(parts) == 1 and not parts[0][1]:
            return float(text)
        if all(name and equals for name, equals, _ in parts):
            return {name: float(number) for name, _, number in parts}
    except ValueError:
        pass
    raise ConfigError(f"--within {text}: expected a number, or COLUMN=NUMBER, such as 2 or mad_average=2,loss_l5=0.02")
