"""Explanations of failed float64 checks: a failed check is repeated without the module's conversions to fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from madbench.errors import TrainingError
from madbench.mixers.checks.residuals import Residual

FEWER_BITS = (torch.float32, torch.bfloat16, torch.float16)


class _KeepFloat64(TorchDispatchMode):
    """A mode in which tensors in float64 are not converted to fewer bits.

    It records the dtypes of the skipped conversions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, None] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        if any(tensor.dtype == torch.float64 for tensor in tensors):
            args = tuple(map(self._replace, args))  # in inference mode a dtype is a positional argument
            kwargs = {name: self._replace(value) for name, value in kwargs.items()}
        return operation(*args, **kwargs)

    def _replace(self, value: Any) -> Any:
        if not isinstance(value, torch.dtype) or value not in FEWER_BITS:
            return value
        self.dtypes[str(value).removeprefix("torch.")] = None
        return torch.float64


def explain_rounding(run: Callable[[], float], tolerance: float) -> Callable[[], float]:
    """Wrap ``run``, which measures the residual of a check, so that it explains failures that only rounding causes.

    The check passes if the residual is at most ``tolerance``. After a failure or an error, ``run`` is called again
    without the module's conversions from float64 to fewer bits. If the check then passes, a text that blames these
    conversions is added: to the attribute ``where`` of the residual, or to the message of a ``TrainingError`` that
    replaces the error. Otherwise the residual or the error stays as it is.
    """

    def measure() -> float:
        try:
            residual, error = run(), None
        except Exception as raised:  # a user's module may raise anything, for example if dtypes do not match
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
    """A sentence that blames the module's conversions to fewer bits for the failure of a check.

    Empty if ``run`` also fails without these conversions, or if there are none.
    """
    kept = _KeepFloat64()
    try:
        with kept:
            holds = run() <= tolerance
    except Exception:
        return ""
    if not (holds and kept.dtypes):
        return ""
    return (
        f"this check runs in float64 and the module rounds to {', '.join(kept.dtypes)}, for example with .float();"
        " without that the check passes. The module may be right in training. To have it checked, convert with"
        " torch.promote_types(x.dtype, torch.float32)"
    )
