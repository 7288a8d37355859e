"""A test for mixers whose rows depend on the length of the input, although not on the values of later tokens."""

from __future__ import annotations

import copy

import torch
from torch import nn

MOST_TOKENS = 256
"""Length of the longest input that is measured, in tokens."""


@torch.no_grad()
def depends_on_length(mixer: nn.Module, d_model: int, max_len: int) -> bool:
    """True if rows of a shorter input differ from the same rows of a longer input that begins with it.

    Examples are ``x.cumsum(1) / x.shape[1]``, and a mixing table whose last T rows are used for T tokens. Inputs of
    such a mixer must not be padded to a common length. The test uses random inputs in float64 on the CPU. If the mixer
    cannot compute these, its own dtype and device are used.
    """
    longest = min(max_len, MOST_TOKENS)
    lengths = sorted({length for length in (1, longest // 2, longest - 1) if 0 < length < longest})
    x = torch.randn(1, longest, d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mixer = copy.deepcopy(mixer).eval()
    own = next((parameter for parameter in mixer.parameters() if parameter.is_floating_point()), x.float())
    own_device, own_dtype = own.device, own.dtype
    try:
        whole = mixer.to("cpu", torch.float64)(x)
        tolerance = 1e-9
    except Exception:  # a kernel or a user's code may raise anything
        x = x.to(own_device, own_dtype)
        whole = mixer.to(own_device, own_dtype)(x)
        tolerance = 64 * torch.finfo(own_dtype).eps
    differences = [(mixer(x[:, :length]) - whole[:, :length]).norm() for length in lengths]
    return not all(float(each) <= tolerance * float(whole.norm()) for each in differences)
