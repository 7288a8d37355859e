"""The cause of a failed check in float64, tried once more without the module's conversions to fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from madbench.errors import TrainingError
from madbench.mixers.residuals import Residual

FEWER_BITS = (torch.float32, torch.bfloat16, torch.float16)


class _Kept(TorchDispatchMode):
    """Leaves out every conversion from float64 to fewer bits, and notes their dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, None] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        if any(tensor.dtype == torch.float64 for tensor in tensors):
            args = tuple(map(self._kept, args))  # in inference mode a dtype comes by place
            kwargs = {name: self._kept(value) for name, value in kwargs.items()}
        return operation(*args, **kwargs)

    def _kept(self, value: Any) -> Any:
        if not isinstance(value, torch.dtype) or value not in FEWER_BITS:
            return value
        self.dtypes[str(value).removeprefix("torch.")] = None
        return torch.float64


def with_reason(run: Callable[[], float], tolerance: float) -> Callable[[], float]:
    """``run``, which says so if it fails for nothing but conversions of the module to fewer bits than float64."""

    def measure() -> float:
        try:
            residual, error = run(), None
        except Exception as raised:  # whatever a user's module raises, as where dtypes do not fit
            residual, error = float("nan"), raised
        if error is None and residual <= tolerance:
            return residual
        if not (why := _conversions(run, tolerance)):
            if error is not None:
                raise error
            return residual
        if error is not None:
            raise TrainingError(f"{error}; {why}") from error
        return Residual(residual, "; ".join(filter(None, [getattr(residual, "where", ""), why])))

    return measure


def _conversions(run: Callable[[], float], tolerance: float) -> str:
    """A sentence on the module's conversions; empty unless ``run`` succeeds without them."""
    kept = _Kept()
    try:
        with kept:
            holds = run() <= tolerance
    except Exception:
        return ""
    if not (holds and kept.dtypes):
        return ""
    return (
        f"this check runs in float64 and the module rounds to {', '.join(kept.dtypes)}, as by .float(); without that it"
        " holds. It may be right in training. To have it checked, convert with torch.promote_types(x.dtype,"
        " torch.float32)"
    )
