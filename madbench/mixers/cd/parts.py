"""Parts of coefficient dynamics: readouts, gates, normalizations and unit vectors.

All functions compute in the precision of their inputs. The mixer ensures that it is float32 or wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.cd.grammar import CdLabel
from madbench.mixers.recurrence.gates import softplus

EPS = 1e-12  # added to the squared length of a unit vector; also the smallest absolute value of a divisor
GATE_ROOT = 16  # sg and dg take this root of a sigmoid


def shifted_elu(x: Tensor) -> Tensor:
    """ELU(x) + 1, without cancellation: e^x below zero, 1 + x above."""
    return x.clamp(max=0).exp() + F.relu(x)


FEATURES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "krelu": F.relu,
    "kelu": shifted_elu,
    "ksoftplus": softplus,
    "kexp": torch.exp,
}
"""The function psi of each kernel readout. It is applied to queries and keys."""
READOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "relu": F.relu,
    "softplus": softplus,
    "elu": shifted_elu,
    "sigmoid": torch.sigmoid,
}
"""The function phi of each readout that is not linear in the score."""


def read_out(readout: str, s: Tensor) -> Tensor:
    """Apply the function phi of the readout to each of the scores s.

    Return s unchanged for ``id``, which has none, and for a kernel readout, which was applied to queries and keys.
    """
    return READOUTS[readout](s) if readout in READOUTS else s


def log_readout(readout: str, s: Tensor) -> Tensor:
    """The logarithm of phi(s) for readout ``sigmoid``, ``elu`` or ``softplus``.

    It is finite even if phi(s) underflows.
    """
    if readout == "sigmoid":
        return F.logsigmoid(s)
    if readout == "elu":
        return s.clamp(max=0) + F.relu(s).log1p()
    return torch.where(s < -15, s - s.clamp(max=0).exp() / 2, softplus(s.clamp(min=-15)).log())


def unit(x: Tensor) -> Tensor:
    """Divide x by its length over the last axis: x / sqrt(|x|^2 + 1e-12)."""
    return x / length(x)


def length(x: Tensor) -> Tensor:
    """The length of x over the last axis, which is kept: sqrt(|x|^2 + 1e-12)."""
    return (x.square().sum(-1, keepdim=True) + EPS).sqrt()


def log_lambda(gate: str, logits: Tensor, a_log: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Return log lambda_t of a learned gate, computed from its logits (B, H, T, 1 or n), and its step Delta_t.

    Only the gates ``sm`` and ``dm`` have a step, and need ``a_log`` (H, 1, 1 or n). Delta_t is None for other gates.
    The logarithm is computed directly, so that no gate underflows.
    """
    if gate in ("sm", "dm"):
        delta = softplus(logits)
        return -delta * cast(Tensor, a_log).exp(), delta
    if gate == "se":
        return logits, None
    return F.logsigmoid(logits) / (1 if gate == "ss" else GATE_ROOT), None


def activate(
    label: CdLabel, s: Tensor, first_row: int | None, row_log: Tensor | None, log_norm: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return coefficients and a scale for each row. Their products are the normalized coefficients.

    The coefficients are (B, H, R, S), as are the scores s. The scale is (B, H, R), or None if it is 1. Row r sees the
    keys 0 to ``first_row`` + r. If ``first_row`` is None, it sees all keys.

    ``row_log`` (B, H, R) is None if s has the full scores. Otherwise the full scores are s times e^row_log, and the
    scale makes up for this factor. ``log_norm`` (B, H, R) is the logarithm of the divisor eta of the coefficients. It
    is None if eta is 1 or depends on the scores.
    """

    def mask(a: Tensor) -> Tensor:
        return a if first_row is None else a.tril(first_row)

    if label.readout == "exp":
        if first_row is not None:
            is_hidden = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(first_row + 1)
            s = s.masked_fill(is_hidden, -math.inf)
        if label.norm == "sum":
            return s.softmax(-1), None
        if label.norm == "max":
            log_norm = s.logsumexp(-1).clamp(min=0)
        return (s if log_norm is None else s - log_norm[..., None]).exp(), None
    if label.norm == "pow" and log_norm is not None:
        return mask((log_readout(label.readout, s) - log_norm[..., None]).exp()), None
    s = mask(read_out(label.readout, s))
    sums = s.sum(-1) if label.norm in ("sum", "max") else None
    return s, row_scale(label, sums, row_log, log_norm)


def row_scale(label: CdLabel, sums: Tensor | None, row_log: Tensor | None, log_norm: Tensor | None) -> Tensor | None:
    """The scale e^row_log / eta of each row's coefficients, (B, H, T), where eta is their divisor.

    None if the scale is 1.

    ``row_log`` and ``log_norm``, which is log eta, count as 0 if they are None. If eta depends on the sums of a row's
    coefficients (``sum`` and ``max``), it is computed from ``sums``, which lack the factor e^row_log. ``sums`` is None
    for other labels.
    """
    if sums is not None and label.norm == "sum":
        return 1 / away_from_zero(sums, EPS if row_log is None else EPS * (-row_log).exp())
    if sums is not None:
        return 1 / sums.abs().clamp(min=1) if row_log is None else 1 / sums.abs().maximum((-row_log).exp())
    if log_norm is None:
        return None if row_log is None else row_log.exp()
    return (-log_norm if row_log is None else row_log - log_norm).exp()


def away_from_zero(x: Tensor, least: Tensor | float) -> Tensor:
    """Replace numbers of x with an absolute value below ``least`` by ``least`` with their sign, which is + for zero."""
    floor = torch.where(x < 0, -least, least).to(x.dtype)
    return torch.where(x.abs() < least, floor, x)
