"""The grammar of HyperFeatureAttention: 16,907 labels, such as hfa:2w-p-q.

::

    hfa    = "hfa:", [ base ], order, { "+", order }, [ "w" ], [ "-p" ], [ "-", rank ], [ "!" ]
    base   = "L" | "C"             linear, factored | linear, full coupling matrices; absent: softmax
    order  = "1" .. "9"            factors A of one part of the heads, at most 4 parts, ascending, each an equal share
    w      value product           p   RoPE
    rank   = "q" | "v"             where parameters are saved   !   nowhere
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from madbench.errors import LabelError
from madbench.mixers.interactions.grammar import BrokenRule, InteractionLabel, softmax_attention

MOST_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class Label(InteractionLabel):
    """One mixer of HyperFeatureAttention."""

    orders: tuple[int, ...]  # A of each part of the heads
    product: bool = False  # w: the value is a product too

    degree = 2  # tokens of an interaction, as ``ha:`` labels have it
    tuples = ""  # of the one other token
    prefix = "hfa:"
    own = {"product": (False, True)}
    extra = "w"
    number = "an order from 1 to 9"
    examples = "'hfa:3-p', 'hfa:1+2' or 'hfa:2w-q'"
    syntax = re.compile(
        r"hfa:(?P<base>[LC]?)(?P<orders>[1-9](?:\+[1-9])*)(?P<product>w?)(?P<rope>-p)?(?:-(?P<rank>[qv]))?(?P<over>!?)"
    )

    @property
    def kind(self) -> str:
        return "+".join(map(str, self.orders)) + "w" * self.product

    def head_orders(self, n_head: int) -> tuple[int, ...]:
        """A of every head, a multiple of the number of parts; each part is an equal share."""
        return tuple(order for order in self.orders for _ in range(n_head // len(self.orders)))

    def check_kind(self) -> None:
        orders = self.orders
        if not (isinstance(orders, tuple) and orders and all(type(a) is int and 1 <= a <= 9 for a in orders)):
            raise LabelError(f"orders {orders!r} are not whole numbers from 1 to 9")
        if len(orders) > MOST_PARTS:
            raise BrokenRule("part 5", f"a label has at most {MOST_PARTS} parts")
        ascending = tuple(sorted(orders))
        if ascending != orders:
            raise BrokenRule("descent", "orders ascend", self.suggestions({"orders": _reduced(ascending)}))
        if _reduced(orders) != orders:
            problem = "equal shares of the heads are spelled by the fewest parts"
            raise BrokenRule("last part", problem, self.suggestions({"orders": _reduced(orders)}))
        if orders == (1,) and self.base == "":
            raise BrokenRule("1", "order 1 alone is softmax attention", [softmax_attention(self)])
        if orders == (1,) and self.product:
            problem = "'w' multiplies the values of the factors, and order 1 has one"
            raise BrokenRule("w", problem, self.suggestions({"product": False}, {"orders": (2,)}))

    @staticmethod
    def kind_fields(match: re.Match[str]) -> dict[str, Any]:
        return {"orders": tuple(map(int, match["orders"].split("+"))), "product": bool(match["product"])}

    @staticmethod
    def in_order(letters: str) -> str:
        orders = _reduced(tuple(sorted(int(letter) for letter in letters if letter in "123456789")))
        return "+".join(map(str, orders)) + "w" * ("w" in letters)

    @classmethod
    def position(cls, text: str, at: str) -> int:
        match = cls.syntax.fullmatch(text)
        start, orders = match.start("orders"), match["orders"].split("+")
        places = {"part 5": 2 * MOST_PARTS, "last part": 2 * (len(orders) - 1)}
        places["descent"] = 2 * next((i + 1 for i in range(len(orders) - 1) if orders[i] > orders[i + 1]), 0)
        return start + places[at] if at in places else super().position(text, at)


def _reduced(orders: tuple[int, ...]) -> tuple[int, ...]:
    """The fewest parts with the same shares: 1+1+3+3 is 1+3."""
    counts = Counter(orders)
    divisor = math.gcd(*counts.values())
    return tuple(order for order, count in counts.items() for _ in range(count // divisor))
