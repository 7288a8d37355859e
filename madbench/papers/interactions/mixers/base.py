"""The base class of the families ``hfa:`` (HyperFeatureAttention) and ``ha:`` (HyperAttention)."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from madbench.errors import LabelError
from madbench.labels import Explanation
from madbench.mixers import Check, Family, Size, Traits, one_factor_apart
from madbench.mixers.srg.grammar import SrgLabel
from madbench.papers.interactions.mixers.budget import InteractionAllocation, Settings
from madbench.papers.interactions.mixers.grammar import COMMON, InteractionLabel

NO_POSITIONS = Explanation("", "no positions",
    "Without p, permuting a layer's earlier inputs leaves its output as it is. Only in a stack do the causal prefixes"
    " of the layers below tell positions apart.",
    "", "Def. F.3, G.1",
)  # fmt: skip
MATCHED = Explanation("", "no rank reduced",
    "The label has as many parameters as softmax attention, 4 d^2, so no rank is reduced.",
    "r_qk = r_vo = d", "Remark F.4, Table 1",
)  # fmt: skip
GROWS = Explanation("", "caution: grows with length",
    "The sum is not normalized, so outputs grow with the number of tokens or tuples: for counting, not for text.",
    "", "Def. 5.1, 6.1",
)  # fmt: skip
UNBOUND = Explanation("", "caution: no budget",
    "Its parameters are reported but never matched to 4 d^2, so it cannot be compared with labels that meet a budget.",
    "", "Def. 5.1, 6.1",
)  # fmt: skip


if TYPE_CHECKING:
    OwnSettings: TypeAlias = Settings  # in the family, its attribute hides this name


L = TypeVar("L", bound=InteractionLabel)
A = TypeVar("A", bound=InteractionAllocation)


class InteractionFamily(Family[L, A]):
    """The base class of the families ``hfa:`` (HyperFeatureAttention) and ``ha:`` (HyperAttention)."""

    name: ClassVar[str]
    version = "1"
    matches = ("flops", "state")
    Settings = Settings
    is_bidirectional = True
    label_type: type[L]
    Allocation: type[A]
    softmax: ClassVar[dict[str, str]]  # ``base`` and ``own_factors`` of softmax attention

    @abstractmethod
    def own_factors(self, label: L) -> dict[str, str]:
        """The factors of a label that the other family does not have."""

    def parse(self, text: str) -> L:
        """Parse the text of a label of the family. Raises ``LabelError`` for any other text."""
        return self.label_type.parse(text)

    def begins(self, text: str) -> bool:
        """True if the text can be completed to a text with the syntax of a label, or has this syntax already."""
        return self.label_type.begins(text)

    def factors(self, label: L) -> dict[str, str]:
        """The factors in which labels can differ: name of the factor to the letters of this label.

        ``rank`` is present only if the budget is enforced, and ``rope`` only if there are queries and keys.
        """
        letters = {"base": label.base, **self.own_factors(label)}
        if label.base == "C":
            return letters | {"budget": "over"}
        letters |= {"rope": "p" if label.rope else ""} | ({} if label.over else {"rank": label.rank})
        return letters | {"budget": "over" if label.over else "matched"}

    def factors_of_other(self, label: Any) -> dict[str, str] | None:
        """The factors of a label of softmax attention, which belongs to the family S/R/G. None for any other label.

        They are those that the label would have in this family: order 1 in ``hfa:``, degree 2 in ``ha:``.
        """
        if not isinstance(label, SrgLabel) or label != SrgLabel("S", rope=label.rope, rank=label.rank):
            return None
        return self.softmax | {"rope": "p" if label.rope else "", "rank": label.rank, "budget": "matched"}

    def variations(self, label: L) -> list[dict[str, Any]]:
        """Changes that turn a label into other labels. Each change maps one field to its new value.

        Each change replaces the order or degree of one part of the heads by a number from 1 to 9. The new label may be
        invalid. Changes of several parts at once are left out, because there are too many.
        """
        parts = label.parts
        changed = {
            tuple(sorted((*parts[:i], number, *parts[i + 1 :]))) for i in range(len(parts)) for number in range(1, 10)
        }
        return [{label.numbers: numbers} for numbers in sorted(changed)]

    def neighbors(self, label: L) -> tuple[Any, ...]:
        """The labels that differ from a label in exactly one factor.

        Among them may be softmax attention, which belongs to another family.
        """
        options = {**self.label_type.own, **COMMON}
        changes = [dict(zip(options, values)) for values in itertools.product(*options.values())]
        attention = SrgLabel("S", rope=label.rope, rank=label.rank)
        others: list[tuple[Any, Any]] = [(attention, self.factors_of_other(attention))]
        for change in changes + self.variations(label):
            with suppress(LabelError):
                other = replace(label, **change)
                others.append((other, self.factors(other)))
        return one_factor_apart(self.factors(label), others)

    def effective(self, allocation: A, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return an empty mapping: once the ranks of a mixer are given, no setting changes it."""
        return {}

    def traits(self, label: L) -> Traits:
        """The traits of the mixer of a label.

        With full couplings (base ``C``), it has no output map ``o`` and uses no settings.
        """
        is_full = label.base == "C"
        return Traits(
            outputs=() if is_full else ("o.weight",),
            settings=() if is_full else None,
            stacked_path="dense",
            head_groups=len(label.parts),
            has_even_heads=label.rope,
            is_replayable=True,
        )

    def solve(self, label: L, size: Size, settings: OwnSettings) -> A:
        return self.Allocation(label, size).with_ranks(settings.rank_multiple)

    def checks(self, label: L) -> Iterable[Check]:
        from madbench.papers.interactions.mixers.checks import checks

        return checks(self, label)


def explain_common(label: InteractionLabel) -> list[Explanation]:
    """The explanation of the budget letter of a label: ``q``, ``v`` or ``!``. Empty if the label has none of them."""
    rows = []
    if label.rank:
        side, other = ("QK", "VO") if label.rank == "q" else ("VO", "QK")
        what = f"The budget of softmax attention is met by a narrower {side} side. {other} gets what remains."
        rows.append(Explanation(label.rank, f"{side} compressed", what, f"r_{side.lower()} from d/4", "ours"))
    if label.over:
        what = "No rank is reduced. The label exceeds the budget, which is reported, and is an upper bound."
        rows.append(Explanation("!", "over budget", what, "r_qk = r_vo = d", "Table 1"))
    return rows


def explain_base(label: InteractionLabel) -> list[Explanation]:
    """The explanation of the base letter of a label: ``L`` for linear, ``C`` for full couplings. Empty for softmax."""
    if label.base == "L":
        what = "Effects are the weights of values, without softmax, so that running sums take linear time."
        return [Explanation("L", "linear", what, "a_iJ = z_iJ", "Def. 5.1, 6.1, G.3")]
    if label.base == "C":
        what = "Full coupling matrices or tensors replace queries and keys. Heads are summed, each of full width."
        return [Explanation("C", "full coupling", what, "C in R^(d x .. x d)", "Def. 5.1, 6.1")]
    return []


def explain_shares(label: InteractionLabel) -> str:
    """A sentence, with a leading space, on how the parts of a label share the heads. Empty if there is one part."""
    if len(label.parts) == 1:
        return ""
    return (
        f" Each part has an equal share of the heads, in this order. Their number is a multiple of {len(label.parts)},"
        " and is increased beyond the model's if necessary."
    )


def cautions(label: InteractionLabel, sees_order: bool) -> list[Explanation]:
    """The explanations of what a label lacks, and the cautions that apply to it.

    ``sees_order`` is True if the mixer distinguishes the order of tokens even without RoPE.
    """
    applies = {
        NO_POSITIONS: not (label.rope or sees_order),
        MATCHED: label.base != "C" and not (label.rank or label.over),
        GROWS: label.base != "",
        UNBOUND: label.base == "C",
    }
    return [row for row, is_shown in applies.items() if is_shown]
