"""HyperFeatureAttention as a family: its 16,907 labels, such as hfa:2w-p-q, what they cost, and what letters say.

::

    hfa    = "hfa:", [ base ], order, { "+", order }, [ "w" ], [ "-p" ], [ "-", rank ], [ "!" ]
    base   = "L" | "C"             linear, factored | linear, full coupling matrices; absent: softmax
    order  = "1" .. "9"            factors A of one part of the heads, at most 4 parts, ascending, each an equal share
    w      value product           p   RoPE
    rank   = "q" | "v"             where parameters are saved   !   nowhere

It costs 4 d^2 for any orders, (3 + A) d^2 with a value product, at ranks of d.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from madbench.errors import LabelError
from madbench.labels import Explanation
from madbench.mixers.interactions.base import InteractionFamily, cautions, explain_base, explain_common
from madbench.mixers.interactions.budget import InteractionAllocation, Settings
from madbench.mixers.interactions.grammar import BrokenRule, InteractionLabel, softmax_attention

if TYPE_CHECKING:
    from torch import nn

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
            raise BrokenRule("descent", "orders ascend", self.mended({"orders": _reduced(ascending)}))
        if _reduced(orders) != orders:
            problem = "equal shares of the heads are spelled by the fewest parts"
            raise BrokenRule("last part", problem, self.mended({"orders": _reduced(orders)}))
        if orders == (1,) and self.base == "":
            raise BrokenRule("1", "order 1 alone is softmax attention", [softmax_attention(self)])
        if orders == (1,) and self.product:
            problem = "'w' multiplies the values of the factors, and order 1 has one"
            raise BrokenRule("w", problem, self.mended({"product": False}, {"orders": (2,)}))

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


class Allocation(InteractionAllocation):
    """See :class:`madbench.mixers.interactions.budget.InteractionAllocation`; A_h is the order of head h."""

    label: Label

    @property
    def orders(self) -> tuple[int, ...]:
        """A_h by head."""
        return self.label.head_orders(self.size.n_head)

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        d, heads, orders = self.size.d_model, self.size.n_head, self.orders
        values, formula = (sum(orders), "sum_h A_h") if self.label.product else (heads, "H")
        if self.label.base == "C":
            return {
                "c": (sum(orders) * d**2, "sum_h A_h d^2", "C of every head and factor"),
                "w": (values * d**2, f"{formula} d^2", "W of every head" + " and factor" * self.label.product),
            }
        formula = "sum_h A_h d d_vo" if self.label.product else "d r_vo"
        return {
            "qk": (2 * d * self.r_qk, "2 d r_qk", "W_q, W_k"),
            "v": (values * d * (self.r_vo // heads), formula, "W_v"),
            "o": (d * self.r_vo, "d r_vo", "W_o"),
        }

    head_multiple = property(lambda self: len(self.label.orders))
    least_qk_width = property(lambda self: max(self.label.orders) * (2 if self.label.rope else 1))

    def flops_of_tuples(self, seq_len: int, causal: bool = True) -> float:
        """Of each of ``seq_len`` pairs, causal (``seq_len`` + 1) / 2: 2 r_qk + 2 r_vo, and A_h - 1 products a head.

        Base ``C`` has 2 d a factor and a head in place of the first two.
        """
        factors, heads = sum(self.orders), self.size.n_head
        widths = (factors + heads) * self.size.d_model if self.label.base == "C" else self.r_qk + self.r_vo
        return (2 * widths + factors - heads) * ((seq_len + 1) / 2 if causal else seq_len)

    def flops_of_sums(self) -> float:
        """4 d_vo prod_a e_a a head: a token written, and read."""
        widths = (factor_widths(self.widths["qk"], order, self.label.rope) for order in self.orders)
        return 4 * self.widths["vo"] * sum(map(math.prod, widths))


def factor_widths(d_qk: int, order: int, rope: bool) -> list[int]:
    """d_qk split over the factors as evenly as possible, wider ones first, in steps of 1, of 2 with RoPE.

    >>> factor_widths(256, 3, rope=True)
    [86, 86, 84]
    """
    step = 2 if rope else 1
    units, more = divmod(d_qk // step, order)
    return [(units + (a < more)) * step for a in range(order)]


class FeatureFamily(InteractionFamily):
    """See :class:`madbench.mixers.Family`."""

    name = "hfa"
    syntax = "[L|C]order{+order}[w][-p][-q|v][!]"
    example = "hfa:2w-p-q"
    Label, Allocation = Label, Allocation
    softmax = {"base": "", "orders": "1", "product": ""}

    def variations(self, label: Label) -> list[dict[str, Any]]:
        """Orders of as many parts, one of them another; the 651 of all parts are no neighbourhood to train."""
        before_and_after = [(label.orders[:i], label.orders[i + 1 :]) for i in range(len(label.orders))]
        changed = {tuple(sorted((*a, order, *b))) for a, b in before_and_after for order in range(1, 10)}
        return [{"orders": orders} for orders in sorted(changed)]

    def own_factors(self, label: Label) -> dict[str, str]:
        return {"orders": "+".join(map(str, label.orders)), "product": "w" * label.product}

    def explain(self, label: Label) -> list[Explanation]:
        """A row a letter, then what follows from those that are absent, and cautions."""
        rows = explain_base(label)
        orders, is_mixed = "+".join(map(str, label.orders)), len(label.orders) > 1
        what = "The effect of a pair of tokens is a product of A effects, one a feature"
        of_base = {"": "; the product goes into the softmax", "L": "", "C": ", each with a coupling matrix of its own"}
        what += of_base[label.base] + "."
        if is_mixed:
            what += " Each part has an equal share of the heads, in this order."
        equation = "z_ij = prod_a q^(a)_i . k^(a)_j / sqrt(e_a)" if label.base != "C" else "prod_a x_i C^(a) x_j"
        name = f"order{'s' * is_mixed} {orders}"
        rows.append(Explanation(orders, name, what, equation, "HyperFeatureAttention, eq. 3, Def. 5.1, F.3"))
        if label.product:
            what = "The value of a token is a product too, of one map a feature."
            rows.append(Explanation("w", "value product", what, "v_j = prod_a x_j W_v^(a)", "Def. F.3, eq. 36"))
        if label.rope:
            what = "Queries and keys of every factor are rotated by position, so that an effect sees distances only."
            rows.append(Explanation("p", "RoPE", what, "q^(a)_i . Rot(j - i) k^(a)_j", "Remark F.5"))
        rows += explain_common(label)
        if label.base == "" and max(label.orders) > 1:
            what = "Factors cancel and multiply: two negative ones make a positive score, and scores start near 0.3^A."
            rows.append(Explanation("", "caution: products", what, "", "Section 2's scale, which eq. 39 leaves out"))
        return rows + cautions(label, sees_order=False)

    def build(self, allocation: Allocation, settings: Settings, path: str = "auto", causal: bool = True) -> nn.Module:
        from madbench.mixers.hfa.operator import HyperFeatureAttention
        from madbench.mixers.interactions.coupling import Coupling

        label, size = allocation.label, allocation.size
        how = {"causal": causal, "path": path, "max_len": size.max_len}
        if label.base == "C":
            mixer = Coupling(size.n_head, size.d_model, orders=label.orders, product=label.product, **how)
        else:
            how |= {"linear": label.base == "L", "rope": label.rope}
            ranks = {"r_qk": allocation.r_qk, "r_vo": allocation.r_vo}
            mixer = HyperFeatureAttention(size.d_model, allocation.orders, label.product, **ranks, **how)
        mixer.allocation = allocation
        return mixer


FAMILY = FeatureFamily()
