"""What the families ``hfa:`` and ``ha:`` share behind the protocol."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from madbench.errors import LabelError
from madbench.labels import Explanation
from madbench.mixers import Check, Size, Traits, one_factor_apart
from madbench.mixers.interactions.budget import InteractionAllocation, Settings
from madbench.mixers.interactions.grammar import COMMON, InteractionLabel
from madbench.mixers.srg.grammar import Variant

NO_POSITIONS = Explanation("", "no positions",
    "Without p, permuting a layer's earlier inputs leaves its output as it is. Only in a stack do the causal prefixes"
    " of the layers below tell positions apart.",
    "", "Def. F.3, G.1",
)  # fmt: skip
MATCHED = Explanation("", "no rank compressed",
    "It costs what softmax attention costs, 4 d^2, so no rank is compressed.",
    "r_qk = r_vo = d", "Remark F.4, Table 1",
)  # fmt: skip
GROWS = Explanation("", "caution: grows with length",
    "Nothing normalises the sum, so outputs grow with the number of tokens or tuples: for counting, not for text.",
    "", "Def. 5.1, 6.1",
)  # fmt: skip
UNBOUND = Explanation("", "caution: no budget",
    "Its parameters are reported and never matched to 4 d^2; it competes with no other label.",
    "", "Def. 5.1, 6.1",
)  # fmt: skip


class InteractionFamily:
    """See :class:`madbench.mixers.Family`."""

    name: ClassVar[str]
    version = "1"
    Settings = Settings
    is_bidirectional = True
    Label: ClassVar[type[InteractionLabel]]
    Allocation: ClassVar[type[InteractionAllocation]]
    softmax: ClassVar[Mapping[str, str]]  # base and own factors of softmax attention
    own_factors: Callable[[InteractionLabel], dict[str, str]]  # factors that the other family does not have

    def parse(self, text: str) -> InteractionLabel:
        """The label of the whole text."""
        return self.Label.parse(text)

    def begins(self, text: str) -> bool:
        """Whether a label begins with the text."""
        return self.Label.begins(text)

    def factors(self, label: InteractionLabel) -> dict[str, str]:
        """Letters by factor. ``rank`` is there only where the budget is enforced, and ``rope`` where there are keys."""
        letters = {"base": label.base, **self.own_factors(label)}
        if label.base == "C":
            return letters | {"budget": "over"}
        letters |= {"rope": "p" * label.rope} | ({} if label.over else {"rank": label.rank})
        return letters | {"budget": "over" if label.over else "matched"}

    def factors_of_other(self, label: Any) -> dict[str, str] | None:
        """Softmax attention of S/R/G as order 1 or degree 2; None for any other label."""
        if not isinstance(label, Variant) or label != Variant("S", rope=label.rope, rank=label.rank):
            return None
        return self.softmax | {"rope": "p" * label.rope, "rank": label.rank, "budget": "matched"}

    def variations(self, label: InteractionLabel) -> list[dict[str, Any]]:
        """Orders or degrees of as many parts, one of them another; those of all parts are too many to train."""
        parts = label.parts
        changed = {
            tuple(sorted((*parts[:i], number, *parts[i + 1 :]))) for i in range(len(parts)) for number in range(1, 10)
        }
        return [{label.numbers: numbers} for numbers in sorted(changed)]

    def neighbours(self, label: InteractionLabel) -> tuple[Any, ...]:
        """The labels that differ from this one in exactly one factor, and softmax attention where it does."""
        options = {**self.Label.own, **COMMON}
        changes = [dict(zip(options, values)) for values in itertools.product(*options.values())]
        attention = Variant("S", rope=label.rope, rank=label.rank)
        others = [(attention, self.factors_of_other(attention))]
        for change in changes + self.variations(label):
            with suppress(LabelError):
                other = replace(label, **change)
                others.append((other, self.factors(other)))
        return one_factor_apart(self.factors(label), others)

    def effective(self, allocation: InteractionAllocation, settings: Mapping[str, Any]) -> dict[str, Any]:
        """None."""
        return {}

    def traits(self, label: InteractionLabel) -> Traits:
        """Couplings in full have no linear map that ends in the residual stream."""
        if label.base == "C":
            return Traits(outputs=(), settings=(), stacked_path="dense", is_replayable=True)
        return Traits(outputs=("o.weight",), stacked_path="dense", is_replayable=True)

    def solve(self, label: InteractionLabel, size: Size, settings: Settings) -> InteractionAllocation:
        return self.Allocation(label, size).solved(settings.rank_multiple)

    def checks(self, label: InteractionLabel) -> Iterable[Check]:
        from madbench.mixers.interactions.checks import checks

        return checks(self, label)


def explain_common(label: InteractionLabel) -> list[Explanation]:
    """The letters after the first hyphen, with the names of the paper where it has one."""
    rows = []
    if label.rank:
        side, other = ("QK", "VO") if label.rank == "q" else ("VO", "QK")
        what = f"The budget of softmax attention is met by a narrower {side} side; {other} takes what is left."
        rows.append(Explanation(label.rank, f"{side} compressed", what, f"r_{side.lower()} from d/4", "ours"))
    if label.over:
        what = "No rank is compressed: the label exceeds the budget, which is reported, and is an upper bound."
        rows.append(Explanation("!", "over budget", what, "r_qk = r_vo = d", "Table 1"))
    return rows


def explain_base(label: InteractionLabel) -> list[Explanation]:
    """What L and C mean."""
    if label.base == "L":
        what = "Effects weigh values as they are, without softmax, so that running sums compute them in linear time."
        return [Explanation("L", "linear", what, "a_iJ = z_iJ", "Def. 5.1, 6.1, G.3")]
    if label.base == "C":
        what = "Coupling matrices or tensors in full instead of queries and keys; heads are summed, each of full width."
        return [Explanation("C", "full coupling", what, "C in R^(d x .. x d)", "Def. 5.1, 6.1")]
    return []


def explain_shares(label: InteractionLabel) -> str:
    """Which heads the parts of a label have, a sentence after others; nothing for one part."""
    if len(label.parts) == 1:
        return ""
    return (
        " Each part has an equal share of the heads, in this order, which are a multiple of"
        f" {len(label.parts)}: more than those of the model where it has another number."
    )


def cautions(label: InteractionLabel, sees_order: bool) -> list[Explanation]:
    """What follows from letters that are absent, and cautions."""
    applies = {
        NO_POSITIONS: not (label.rope or sees_order),
        MATCHED: label.base != "C" and not (label.rank or label.over),
        GROWS: label.base != "",
        UNBOUND: label.base == "C",
    }
    return [row for row, is_shown in applies.items() if is_shown]
