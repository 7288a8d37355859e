"""HyperAttention as a family: its 525 labels, such as ha:3us-p-q, what they cost, and what their letters say.

::

    ha     = "ha:", [ base ], degree, [ "u" ], [ tuples ], [ "-p" ], [ "-", rank ], [ "!" ]
    base   = "L" | "C"             linear, factored | linear, full coupling tensors; absent: softmax
    degree = "3" .. "9"            n, tokens of an interaction, the row's own among them
    u      unshared slots          tuples = "s" strict | "a" all; absent: ordered
    p      RoPE                    rank   = "q" | "v", where parameters are saved   !   nowhere

It costs 4 d^2 with shared slots for any degree, 2 n d^2 unshared, at ranks of d.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from madbench.errors import LabelError
from madbench.labels import Explanation
from madbench.mixers.interactions.base import InteractionFamily, cautions, explain_base, explain_common
from madbench.mixers.interactions.budget import InteractionAllocation, Settings
from madbench.mixers.interactions.grammar import BrokenRule, InteractionLabel, softmax_attention
from madbench.mixers.interactions.tuples import ALL, STRICT, count_tuples

if TYPE_CHECKING:
    from torch import nn


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
            raise BrokenRule("1", "degree 1 sees no other token", self.mended({"degree": 2}, {"degree": 3}))
        if self.degree == 2 and self.base == "":
            raise BrokenRule("2", "degree 2 is softmax attention", [softmax_attention(self)])
        if self.degree == 2:
            from madbench.mixers.hfa.family import Label as FeatureLabel

            is_linear = self.base == "L"
            same = FeatureLabel(base=self.base, orders=(1,), rope=is_linear and self.rope, rank=self.rank * is_linear)
            raise BrokenRule("2", "degree 2 without softmax is linear attention", [str(same)])
        if self.base == "C" and self.unshared:
            problem = "'C' has one tensor for all slots, so there is nothing to share"
            raise BrokenRule("u", problem, self.mended({"unshared": False}, {"base": "L"}))

    @staticmethod
    def kind_fields(match: re.Match[str]) -> dict[str, Any]:
        return {"degree": int(match["degree"]), "unshared": bool(match["unshared"]), "tuples": match["tuples"]}

    @staticmethod
    def in_order(letters: str) -> str:
        degree, tuples = (next((one for one in letters if one in among), "") for among in ("123456789", "sa"))
        return degree + "u" * ("u" in letters) + tuples


class Allocation(InteractionAllocation):
    """See :class:`madbench.mixers.interactions.budget.InteractionAllocation`; m slots, 1 shared, n - 1 unshared."""

    label: Label

    @property
    def slots(self) -> int:
        return self.label.degree - 1 if self.label.unshared else 1

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        d, heads, n, m = self.size.d_model, self.size.n_head, self.label.degree, self.slots
        if self.label.base == "C":
            return {
                "c": (heads * d**n, f"H d^{n}", "C of every head"),
                "w": (heads * d**n, f"H d^{n}", "W of every head"),
            }
        return {
            "qk": ((1 + m) * d * self.r_qk, f"{1 + m} d r_qk", "W_q, W_k" + " of every slot" * (m > 1)),
            "v": (m * d * self.r_vo, f"{m} d r_vo" if m > 1 else "d r_vo", "W_v" + " of every slot" * (m > 1)),
            "o": (d * self.r_vo, "d r_vo", "W_o"),
        }

    def starts(self, tokens: int, slots: int) -> int:
        """How many starts of ``slots`` tokens the tuples of a row have that sees so many tokens."""
        kind, missing = self.label.tuples, self.label.degree - 1 - slots
        return count_tuples(max(tokens - missing, 0) if kind == STRICT else tokens, slots, kind)

    def flops_of_tuples(self, seq_len: int, causal: bool = True) -> float:
        """Of a row the sums over one slot after the other, j1 first: the fewer slots, the fewer tuples, and the wider.

        With m slots of tokens, base ``C`` contracts d^(n - m) couplings of a row, and d^(n - m + 1) values once for all
        rows; else a product of keys takes r_qk and a weighted sum of values 2 r_vo. The last slot takes 2 r_qk and 2
        r_vo; of base ``C`` 2 d more for the readout. With RoPE keys are complex: a product takes 6 for 1, a sum of them
        4 for 2.
        """
        d, heads, n, turns = self.size.d_model, self.size.n_head, self.label.degree, self.label.rope
        of_last_row = [self.starts(seq_len, m) for m in range(1, n)]
        lengths = range(1, seq_len + 1) if causal else [seq_len] * seq_len
        *outer, every = (sum(self.starts(tokens, m) for tokens in lengths) for m in range(1, n))
        if self.label.base != "C":
            of_tuple, of_outer = (4, 6) if turns else (2, 1)
            found = (of_tuple * self.r_qk + 2 * self.r_vo) * every
            return (found + (of_outer * self.r_qk + 2 * self.r_vo) * sum(outer)) / seq_len
        found = 2 * d * every
        for slots, count in enumerate((*outer, every), start=1):
            found += 2 * d ** (n - slots) * (count + d * of_last_row[slots - 1] * (slots > 1))
        return heads * found / seq_len

    def flops_of_sums(self) -> float:
        """d_qk d_vo numbers a head: made of each slot, multiplied with inner ones, added to each sum, and read."""
        n, turns = self.label.degree, self.label.rope
        sums = 1 if self.slots == 1 and self.label.tuples == ALL else n - 1
        of_number = (self.slots + sums + 2) * (1 + turns) + (n - 2) * (6 if turns else 1)
        return of_number * self.r_qk * self.widths["vo"]


ORDERED = Explanation("", "ordered tuples",
    "A tuple has its newest token first and may have a token more than once.",
    "j1 >= j2 >= ..", "Def. 6.1, G.1",
)  # fmt: skip
LETTERS = {
    "u": Explanation("u", "unshared slots",
        "Every slot of a tuple has keys and values of its own, the first being that of the newest token.",
        "W_k^m, W_v^m, m = 1 .. n-1", "Def. G.3"),
    STRICT: Explanation("s", "strict tuples",
        "No token is in a tuple twice; a row with fewer than n - 1 tokens is zero.",
        "j1 > j2 > ..", "Remark G.2"),
    ALL: Explanation("a", "all tuples",
        "Every order of the same tokens is a tuple of its own: a pair counts twice, a doubled token once.",
        "j1, j2, .. <= i", "eq. 42"),
    "p": Explanation("p", "RoPE",
        "The product of keys turns by the sum of the lags, so that an effect sees distances only; it is RoPE at n = 2.",
        "q_i . Rot(sum_m (j_m - i)) (k^1_j1 * k^2_j2 * ..)", "ours: Remark F.5 is about HyperFeatureAttention"),
}  # fmt: skip


class TupleFamily(InteractionFamily):
    """See :class:`madbench.mixers.Family`."""

    name = "ha"
    syntax = "[L|C]degree[u][s|a][-p][-q|v][!]"
    example = "ha:3us-q"
    Label, Allocation = Label, Allocation
    softmax = {"base": "", "degree": "2", "sharing": "", "tuples": ""}

    def variations(self, label: Label) -> list[dict[str, Any]]:
        return [{"degree": degree} for degree in range(3, 10)]

    def own_factors(self, label: Label) -> dict[str, str]:
        sharing = {} if label.base == "C" else {"sharing": "u" * label.unshared}
        return {"degree": str(label.degree), **sharing, "tuples": label.tuples}

    def explain(self, label: Label) -> list[Explanation]:
        """A row a letter, then what follows from those that are absent, and cautions."""
        rows, n = explain_base(label), label.degree
        what = f"A token takes in {n - 1} others at once: effects and values are of tuples of {n - 1} tokens."
        equation = "z_iJ = q_i . (k^1_j1 * k^2_j2 * ..) / sqrt(d_qk)" if label.base != "C" else "C[x_i, x_j1, x_j2, ..]"
        rows.append(Explanation(str(n), f"degree {n}", what, equation, "HyperAttention, Def. 6.1, G.1"))
        rows += [LETTERS["u"]] * label.unshared + ([LETTERS[label.tuples]] if label.tuples else [])
        rows += [LETTERS["p"]] * label.rope + explain_common(label) + [ORDERED] * (not label.tuples)
        if label.base == "":
            what = (
                f"A row of t tokens scores about t^{n - 1} tuples, exactly: Theta(L^{n}) a sequence, {n}-way effects."
            )
            rows.append(Explanation("", "caution: cost", what, "", "Table 3"))
        asymmetric = label.unshared or label.base == "C"
        return rows + cautions(label, sees_order=asymmetric and label.tuples != ALL)

    def build(self, allocation: Allocation, settings: Settings, path: str = "auto", causal: bool = True) -> nn.Module:
        from madbench.mixers.ha.operator import HyperAttention
        from madbench.mixers.interactions.coupling import Coupling

        label, size = allocation.label, allocation.size
        how = {"tuples": label.tuples, "causal": causal, "path": path, "max_len": size.max_len}
        if label.base == "C":
            mixer = Coupling(size.n_head, size.d_model, degree=label.degree, **how)
        else:
            how |= {"linear": label.base == "L", "rope": label.rope}
            ranks = {"r_qk": allocation.r_qk, "r_vo": allocation.r_vo}
            mixer = HyperAttention(size.d_model, size.n_head, label.degree, label.unshared, **ranks, **how)
        mixer.allocation = allocation
        return mixer


FAMILY = TupleFamily()
