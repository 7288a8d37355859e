"""The grammar of HyperFeatureAttention: 16,907 labels, such as hfa:2w-p-q.

::

    hfa    = "hfa:", [ base ], order, { "+", order }, [ "w" ], [ "-p" ], [ "-", rank ], [ "!" ]
    base   = "L" | "C"             linear, factored | linear, full coupling matrices; absent: softmax
    order  = "1" .. "9"            factors A of one part of the heads; at most 4 parts, ascending, with equal shares
    w      value product           p   RoPE
    rank   = "q" | "v"             the rank that is reduced   !   no rank is reduced
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from madbench.papers.interactions.mixers.grammar import BrokenRule, InteractionLabel, in_parts, softmax_attention


@dataclass(frozen=True, kw_only=True)
class HfaLabel(InteractionLabel):
    """A label of the family ``hfa:`` of HyperFeatureAttention."""

    orders: tuple[int, ...]
    """The order A of each part of the heads: the number of factors of a score."""
    product: bool = False
    """True with the letter ``w``: values are products of as many factors as scores."""

    degree = 2  # tokens of an interaction, as in ``ha:`` labels
    tuples = ""  # tuples of one other token
    prefix = "hfa:"
    numbers = "orders"
    own = {"product": (False, True)}
    extra = "w"
    number = "an order from 1 to 9"
    examples = "'hfa:3-p', 'hfa:1+2' or 'hfa:2w-q'"
    syntax = re.compile(
        r"hfa:(?P<base>[LC]?)(?P<parts>[1-9](?:\+[1-9])*)(?P<product>w?)(?P<rope>-p)?(?:-(?P<rank>[qv]))?(?P<over>!?)"
    )

    @property
    def kind(self) -> str:  # type: ignore[override]  # declared as a class variable
        return "+".join(map(str, self.orders)) + ("w" if self.product else "")

    def check_kind(self) -> None:
        self.check_parts()
        if self.orders == (1,) and self.base == "":
            raise BrokenRule("1", "order 1 alone is softmax attention", [softmax_attention(self)])
        if self.orders == (1,) and self.product:
            problem = "'w' multiplies the values of the factors, and order 1 has one"
            raise BrokenRule("w", problem, self.suggestions({"product": False}, {"orders": (2,)}))

    @staticmethod
    def kind_fields(match: re.Match[str]) -> dict[str, Any]:  # type: ignore[override]  # declared as a class variable
        return {"orders": tuple(map(int, match["parts"].split("+"))), "product": bool(match["product"])}

    @staticmethod
    def in_order(letters: str) -> str:  # type: ignore[override]  # declared as a class variable
        return in_parts(letters) + ("w" if "w" in letters else "")
