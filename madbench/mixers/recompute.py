"""Blocks whose intermediate tensors are not kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def again(function: Callable[..., Any], *inputs: Any) -> Any:
    """What ``function`` gives, computed once more in the backward pass instead of kept; it draws no random numbers."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
