"""The grammar of HyperAttention: 525 labels, such as ha:3us-p-q.

::

    ha     = "ha:", [ base ], degree, [ "u" ], [ tuples ], [ "-p" ], [ "-", rank ], [ "!" ]
    base   = "L" | "C"             linear, factored | linear, full coupling tensors; absent: softmax
    degree = "3" .. "9"            n, tokens of an interaction, the row's own among them
    u      unshared slots          tuples = "s" strict | "a" all; absent: ordered
    p      RoPE                    rank   = "q" | "v", where parameters are saved   !   nowhere
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from madbench.errors import LabelError
from madbench.mixers.interactions.grammar import BrokenRule, InteractionLabel, softmax_attention
from madbench.mixers.interactions.hfa.grammar import Label as FeatureLabel


@dataclass(frozen=True, kw_only=True)
class Label(InteractionLabel):
    """One mixer of HyperAttention."""

    degree: int  # n
    unshared: bool = False  # u: every slot of the tuples has keys and values of its own
    tuples: Literal["", "s", "a"] = ""  # j1 >= j2 >= ..; strict, j1 > j2 > ..; all

    prefix = "ha:"
    own = {"unshared": (False, True), "tuples": ("", "s", "a")}
    extra = "u"
    number = "a degree from 3 to 9"
    examples = "'ha:3', 'ha:3s-p' or 'ha:3u-q'"
    syntax = re.compile(
        "ha:(?P<base>[LC]?)(?P<degree>[1-9])(?P<unshared>u?)(?P<tuples>[sa]?)(?P<rope>-p)?(?:-(?P<rank>[qv]))?(?P<over>!?)"
    )

    @property
    def kind(self) -> str:
        return f"{self.degree}{'u' * self.unshared}{self.tuples}"

    def check_kind(self) -> None:
        if type(self.degree) is not int or not 1 <= self.degree <= 9:
            raise LabelError(f"degree {self.degree!r} is not a whole number from 3 to 9")
        if self.degree == 1:
            raise BrokenRule("1", "degree 1 sees no other token", self.suggestions({"degree": 2}, {"degree": 3}))
        if self.degree == 2 and self.base == "":
            raise BrokenRule("2", "degree 2 is softmax attention", [softmax_attention(self)])
        if self.degree == 2:
            is_linear = self.base == "L"
            same = FeatureLabel(base=self.base, orders=(1,), rope=is_linear and self.rope, rank=self.rank * is_linear)
            raise BrokenRule("2", "degree 2 without softmax is linear attention", [str(same)])
        if self.base == "C" and self.unshared:
            problem = "'C' has one tensor for all slots, so there is nothing to share"
            raise BrokenRule("u", problem, self.suggestions({"unshared": False}, {"base": "L"}))

    @staticmethod
    def kind_fields(match: re.Match[str]) -> dict[str, Any]:
        return {"degree": int(match["degree"]), "unshared": bool(match["unshared"]), "tuples": match["tuples"]}

    @staticmethod
    def in_order(letters: str) -> str:
        degree, tuples = (next((letter for letter in letters if letter in among), "") for among in ("123456789", "sa"))
        return degree + "u" * ("u" in letters) + tuples
