"""``madbench compare``: compare labels with the first one."""

from __future__ import annotations

from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.options import StoredOptions
from madbench.cli.shared.print_options import CostsOptions, PrintOptions
from madbench.cli.shared.printing import print_text_table
from madbench.cli.shared.words import parse_margins
from madbench.config.options import argument


def compare(
    words: Annotated[
        list[str],
        argument(
            "LABEL|KEY=VALUE",
            options.LABELS_HELP
            + " The first label is compared with each of the others. KEY=VALUE changes the profile.",
        ),
    ],
    within: options.WithinOption = None,
    *,
    stored_options: StoredOptions,
    spread: options.SpreadOption = "interval",
    costs: CostsOptions,
    print_options: PrintOptions,
) -> None:
    """Compare labels on the runs they share.

    A row has the mean difference of two labels, its interval, p-value and
    verdict. Each seed is one observation; protocols are never mixed, as in
    madbench table. The test is Student's t, with the variances of few seeds
    increased; it is the same for every profile and column. p is Holm-corrected
    over all rows. A test needs at least three seeds.

    --within adds two one-sided tests against the margin, with the same standard
    error and correction. The verdict is equivalent, no worse, no better, or not
    shown. A large p-value is never read as equality.

    The rows of a sweep, which may differ in settings, are compared by madbench
    sweep --compare.

    [bold]Examples[/bold]

      madbench compare R-cg-q R-cg-q-12o            what sequence mixing adds
      madbench compare S-p R-c G-cg-q-12o -t in_context_recall,selective_copying
      madbench compare R-cg-q-12o '~R-cg-q-12o' -p full -f latex > factors.tex
      madbench compare S-p G-cg-q-12o --spread sd   standard deviations of both
      madbench compare S-p G-cg-q-12o -t language_model
      madbench compare S-pc R-pc --within 2
      madbench compare S-pc R-pc --within mad_average=2,loss_l5=0.02
    """
    margins = None if within is None else parse_margins(within)
    selection = stored_options.selection(words)
    results = selection.select_to_compare()
    table = selection.comparison_of(results, margins, has_deviations=spread == "sd")
    print_text_table(table, print_options, costs=costs.tables(results))
