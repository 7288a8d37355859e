"""The grammar of HyperAttention: 31,773 labels, such as ha:3us-p-q or ha:2+3.

::

    ha     = "ha:", [ base ], degree, { "+", degree }, [ "u" ], [ tuples ], [ "-p" ], [ "-", rank ], [ "!" ]
    base   = "L" | "C"
    degree = "2" .. "9"
    tuples = "s" | "a"
    rank   = "q" | "v"

- base: absent for softmax, ``L`` for linear with queries, keys and values, ``C`` for linear with full coupling tensors.
- degree: n, the number of tokens of an interaction, including the row's own. The heads are divided into equal parts,
  at most 4, and each part has a degree. Degrees ascend. 2, which is ordinary attention, goes only with a higher one.
- ``u``: every slot of a tuple has its own keys and values. Without it, all slots of a head share them.
- tuples: the tuples (j1, .., j_(n-1)) of tokens that a row sums over. Absent: j1 >= j2 >= ..; ``s``, strict:
  j1 > j2 > ..; ``a``: all.
- ``p``: RoPE.
- rank: the rank that is reduced to meet the budget. With ``!`` no rank is reduced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from madbench.papers.interactions.mixers.grammar import (
    BrokenRule,
    InteractionLabel,
    fewest_parts,
    in_parts,
    softmax_attention,
)
from madbench.papers.interactions.mixers.hfa.grammar import HfaLabel


@dataclass(frozen=True, kw_only=True)
class HaLabel(InteractionLabel):
    """A label of the family ``ha:`` of HyperAttention."""

    degrees: tuple[int, ...]
    """The degree n of each part of the heads: the number of tokens of an interaction, including the row's own."""
    unshared: bool = False
    """True with the letter ``u``: every slot of the tuples has its own keys and values."""
    tuples: Literal["", "s", "a"] = ""
    """The kind of tuples: empty for ordered, j1 >= j2 >= ..; ``s`` for strict, j1 > j2 > ..; ``a`` for all."""

    prefix = "ha:"
    numbers = "degrees"
    own = {"unshared": (False, True), "tuples": ("", "s", "a")}
    extra = "u"
    number = "a degree from 2 to 9"
    examples = "'ha:3', 'ha:2+3-p' or 'ha:3us-q'"
    syntax = re.compile(
        r"ha:(?P<base>[LC]?)(?P<parts>[1-9](?:\+[1-9])*)(?P<unshared>u?)(?P<tuples>[sa]?)"
        r"(?P<rope>-p)?(?:-(?P<rank>[qv]))?(?P<over>!?)"
    )

    @property
    def kind(self) -> str:  # type: ignore[override]  # declared as a class variable
        return f"{'+'.join(map(str, self.degrees))}{'u' if self.unshared else ''}{self.tuples}"

    @property
    def degree(self) -> int:
        """The largest degree n of the heads of a mixer with this label."""
        return max(self.degrees)

    def check_kind(self) -> None:
        self.check_parts()
        if 1 in self.degrees:
            raised = fewest_parts(tuple(sorted(max(degree, 2) for degree in self.degrees)))
            others = fewest_parts(tuple(degree for degree in self.degrees if degree > 1)) if self.degree > 1 else (3,)
            problem = "degree 1 sees no other token"
            raise BrokenRule("1", problem, self.suggestions({"degrees": raised}, {"degrees": others}))
        if self.degree == 2 and self.base == "":
            raise BrokenRule("2", "degree 2 is softmax attention", [softmax_attention(self)])
        if self.degree == 2:
            is_linear = self.base == "L"
            rank = self.rank if is_linear else ""
            same = HfaLabel(base=self.base, orders=(1,), rope=is_linear and self.rope, rank=rank)
            raise BrokenRule("2", "degree 2 without softmax is linear attention", [str(same)])
        if self.base == "C" and len(self.degrees) > 1:
            problem = "'C' has tensors of one degree"
            raise BrokenRule("+", problem, self.suggestions({"base": "L"}, {"degrees": (self.degree,)}))
        if self.base == "C" and self.unshared:
            problem = "'C' has one tensor for all slots, so there is nothing to share"
            raise BrokenRule("u", problem, self.suggestions({"unshared": False}, {"base": "L"}))

    @staticmethod
    def kind_fields(match: re.Match[str]) -> dict[str, Any]:  # type: ignore[override]  # declared as a class variable
        degrees = tuple(map(int, match["parts"].split("+")))
        return {"degrees": degrees, "unshared": bool(match["unshared"]), "tuples": match["tuples"]}

    @staticmethod
    def in_order(letters: str) -> str:  # type: ignore[override]  # declared as a class variable
        tuples = next((letter for letter in letters if letter in "sa"), "")
        return in_parts(letters) + ("u" if "u" in letters else "") + tuples
