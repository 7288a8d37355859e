"""The checks V16 of Lemma 2: |T| = c |Z|, where T is the set of transformations that suppress a token.

A token is suppressed if its coefficient is 0. Z is the set of scores whose coefficient is 0, and |Z| its length. T is
the set of pairs of matrices (T_q, T_h) that map two tokens x_i and x_j to a score in Z. The paper measures T by its
volume, but this is infinite for every Z of positive length, because T_q may grow while T_h shrinks. Here |T| is
therefore the share of random pairs that are in T. The entries of T_q and T_h are normally distributed, and x_i and x_j
have length 1.

For a narrow interval Z around 0, the factor c is then the density of random scores at 0. It is g(0) = Gamma((n - 1)/2)
/ (2 sqrt(pi) Gamma(n/2)), where n is the key width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from madbench.mixers import Check
from madbench.mixers.cd import parts
from madbench.mixers.cd.grammar import CdLabel

PAIRS, WIDTH, KEY_WIDTH = 200_000, 3, 4  # number of pairs (T_q, T_h), width d of tokens, n
WIDTHS = (0.2, 0.1, 0.05)  # widths of intervals Z around 0
APART = (0.0, 1.0, 2.0)  # starts of intervals of length 0.5
NARROW, WIDE = 0.004, 0.4  # widths of Z around 0 for scalars (Remark 2)


@functools.cache
def scores() -> Tensor:
    """The scores z = (T_q x_i) . (T_h x_j) of one pair of tokens for 200,000 random pairs of matrices, (200,000,)."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.nn.functional.normalize(torch.randn(2, WIDTH, generator=generator, dtype=torch.float64), dim=-1)
    sides = (torch.randn(PAIRS, KEY_WIDTH, WIDTH, generator=generator, dtype=torch.float64) @ x for x in tokens)
    products: Tensor = math.prod(sides)
    return products.sum(-1)


def share(low: float, high: float) -> float:
    """The share of random pairs of matrices (T_q, T_h) whose score is between ``low`` and ``high``.

    This is the size |T| of Lemma 2 for the set of scores Z = [low, high].
    """
    z = scores()
    return float(((z >= low) & (z <= high)).double().mean())


def narrowing() -> float:
    """The relative decrease of the ratio |T| / |Z| from a narrow to a wide interval Z around 0 (Remark 2).

    Scalars a and b take the place of the matrices here, and their product is the score. |T| is the share of pairs of
    normally distributed a and b with a product in Z, and |Z| is the length of Z. By Lemma 2 the ratio would be
    constant, and the result 0.
    """
    a, b = torch.randn(2, PAIRS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wide, narrow = (float(((a * b).abs() <= width / 2).double().mean()) / width for width in (WIDE, NARROW))
    return 1 - wide / narrow


def checks(label: CdLabel) -> Iterator[Check]:
    """The checks V16 of Lemma 2 for a label. They do not apply to kernels.

    The first compares two shares, which are equal by the lemma: of random transformations that give a token the
    coefficient 0, and of scores that have this coefficient. The others test whether the ratio of |T| and |Z| is
    constant.
    """
    reason = "a kernel's coefficient is not a function of one score" if label.is_kernel else ""
    expected = 0.5 if label.readout == "relu" else 0.0

    def suppressing() -> float:
        return abs(float((parts.read_out(label.readout, scores()) == 0).double().mean()) - expected)

    density = math.gamma((KEY_WIDTH - 1) / 2) / (2 * math.sqrt(math.pi) * math.gamma(KEY_WIDTH / 2))

    def proportion() -> float:
        return max(abs(share(-width / 2, width / 2) / width / density - 1) for width in WIDTHS)

    def constancy() -> float:
        sizes = [share(low, low + 0.5) for low in APART]
        return 1 - min(sizes) / max(sizes)

    what = f"A share {expected:g} of random pairs (T_q, T_h) gives coefficient 0, as large as the share of scores in Z."
    yield Check("V16 transformations", what, "Lemma 2", suppressing, 5e-3, reason=reason)
    what = "For narrow intervals Z around 0, |T| is proportional to |Z|: c is the density of scores at 0."
    yield Check("V16 proportion", what, "Lemma 2", proportion, 0.05, reason=reason)
    what = "c is not constant: other intervals Z of the same length have another |T|."
    options = {"is_difference": True, "contradicts": True}
    yield Check("V16 constant", what, "against Lemma 2", constancy, 0.1, reason=reason, **options)
    what = "For the scalars a and b of Remark 2, |T| / |Z| grows as Z narrows around 0: c has no limit there."
    source = "against Lemma 2, Remark 2"
    yield Check("V16 scalars", what, source, narrowing, 0.3, reason=reason, **options)
