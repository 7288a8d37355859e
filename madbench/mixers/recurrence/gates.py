"""What gates are computed with: an exact softplus, and the running maximum that keeps exponential gates finite."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def softplus(x: Tensor) -> Tensor:
    """ln(1 + e^x), exact in float64 too. The default of torch returns x already for x above 20."""
    return F.softplus(x, threshold=40)


def running_maximum(log_gate: Tensor | None, log_scale: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """The running maxima m_t = max(f_t + m_(t-1), i_t) of all rows t, and m_(t-1), each (..., T) in float64.

    f_t is the row's ``log_gate`` (..., T, C), or its largest channel if C > 1, and 0 if it is None. i_t is the row's
    ``log_scale`` (..., T), the logarithm of the scale of the key. ``before`` is m_0. If it is None, the recurrence
    starts with m_1 = i_1, and m_0 is m_1 - f_1. The coefficients do not depend on m, so they need no gradient of it.
    """
    i = log_scale.double()
    f = torch.zeros_like(i) if log_gate is None else log_gate.double().amax(-1).expand_as(i)
    total = f.cumsum(-1)
    highest = (i - total).cummax(-1).values
    if before is not None:
        highest = highest.maximum(before[..., None].double())
    m = total + highest
    first = m[..., 0] - f[..., 0] if before is None else before.double()
    return m, torch.cat((first[..., None], m), dim=-1)[..., :-1]
