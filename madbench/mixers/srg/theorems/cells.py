"""Checks of output rows within a cell (HyperMLP, Appendix C.5.1). Each function returns a residual.

A cell is a set of values of the last token, with a constant context, for which no hidden score changes its sign, so
that the same slots are active.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from madbench.mixers.checks.residuals import difference, maximum
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import EPS
from madbench.mixers.srg.theorems.boundaries import free_channels, freeze_gates
from madbench.mixers.srg.theorems.measures import dynamic_weights

if TYPE_CHECKING:
    pass

POINTS = 17
NEAR = 1e-6  # step of a finite difference


def _cell(mixer: DynamicMLP, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make all gates constant. Return three copies of x[0] whose last tokens are on a line within one cell.

    The second copy is x[0] itself. The step dx from one last token to the next is half of the way from the token of the
    second copy to the nearest point of the line at which a hidden score of the first head is 0. Keys and values do not
    read the channels of dx. Return the copies (3, T, D), dx (D,) and the matrix W(2) (S, D) of the first head (see
    :func:`madbench.mixers.srg.theorems.measures.dynamic_weights`).
    """
    freeze_gates(mixer)
    for gate in filter(None, (mixer.vo_gate, mixer.mix2.gate if mixer.mix2 else None)):
        gate.weight.zero_()
    free = free_channels(mixer)
    for side in filter(None, (mixer.v, mixer.v_down)):
        side.weight[:, :free] = 0
    change = torch.zeros_like(x[0, 0])
    change[:free] = x[1, 0, :free]
    moved = torch.stack((x[0], x[0]))
    moved[1, -1] += change
    before, after = mixer.maps(moved).hidden[:, 0, -1]
    slots = before != 0  # all slots that contain an atom
    change *= 0.5 * float((before[slots] / (after - before)[slots]).abs().min())
    tokens = torch.stack((x[0],) * 3)
    tokens[0, -1] -= change
    tokens[2, -1] += change
    return tokens, change, dynamic_weights(mixer, x[0])[1][0]


def linear(mixer: DynamicMLP, x: Tensor) -> float:
    """Check that an output row, multiplied by the norm of its hidden scores, is linear in the last token (eq. 41).

    The product must equal x B(X) D_s W(2). x is the last token, B(X) maps it to its hidden scores, D_s is the diagonal
    matrix that selects the active slots, and W(2) maps activations to the output. Values and slopes are compared within
    a cell, for one head. Return the largest relative difference.
    """
    tokens, change, readout = _cell(mixer, x)
    hidden = mixer.maps(tokens).hidden[:, 0, -1]  # (3, S)
    rows = mixer(tokens)[:, -1] * (hidden.square().sum(-1, keepdim=True) + EPS).sqrt()
    selected = torch.diag((hidden[1] > 0).to(x))
    slope = change @ dynamic_weights(mixer, x[0])[0][0] @ selected @ readout
    return maximum(
        difference(rows, hidden @ selected @ readout),
        difference(rows[2] - rows[1], slope),
        difference(rows[1] - rows[0], slope),
    )


def bend(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative difference between the slopes of an output row in two parts of a line within a cell (Remark C.11).

    The row is computed for three tokens at equal distances on the line. Its change from the first to the second token
    is compared with its change from the second to the third. The same slots are active for all three, so the two
    changes differ only because the row is divided by the norm of its hidden scores.
    """
    tokens, *_ = _cell(mixer, x)
    rows = mixer(tokens)[:, -1]
    return difference(rows[2] - rows[1], rows[1] - rows[0])


def smooth(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest jump of the slope of the last output row, relative to the slope, as the last token moves on a line.

    At each of ``POINTS`` points of the line, the slopes just before and just behind the point are compared. No point is
    on the boundary of a cell, so the jump is near 0, although all gates depend on the token. Infinite if all points are
    in the same cell, because nothing is measured then.
    """
    free = free_channels(mixer)
    change = torch.zeros_like(x[0, 0])
    change[:free] = x[1, 0, :free]
    tokens = x[0].repeat(POINTS, 3, 1, 1)  # (POINTS, 3, T, D), with 3 tokens before, at and behind a point
    along = torch.linspace(-3, 3, POINTS, dtype=x.dtype)[:, None] + NEAR * torch.tensor([-1.0, 0.0, 1.0]).to(x)
    tokens[:, :, -1] += along[..., None] * change
    is_active = mixer.maps(tokens[:, 1]).hidden[:, : mixer.n_head, -1] > 0
    if (is_active == is_active[0]).all():
        return math.inf
    before, at, behind = mixer(tokens.flatten(0, 1))[:, -1].unflatten(0, (POINTS, 3)).unbind(1)
    return float(((behind - 2 * at + before).norm(dim=-1) / (behind - before).norm(dim=-1)).max())
