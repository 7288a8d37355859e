"""Blocks whose intermediate tensors are not kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from madbench.mixers.tracing import is_transformed


def recomputed(function: Callable[..., Any], *inputs: Any, module: nn.Module | None = None) -> Any:
    """What ``function`` gives, computed once more in the backward pass instead of kept; it draws no random numbers.

    ``module`` is the one whose parameters ``function``, a method of it, reads. Under the transforms of torch.func,
    which know no such backward pass, everything is kept.
    """
    is_exported = torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()
    if not torch.is_grad_enabled() or is_transformed() or is_exported:
        return function(*inputs)
    if module is not None and not torch.compiler.is_compiling():
        function = _with_its_parameters(function, module)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


def _with_its_parameters(function: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """A method of ``module`` that reads the parameters of today at every call.

    ``torch.func.functional_call`` lends a module others, and takes them back before the backward pass.
    """
    lent = dict(module.named_parameters())

    def call(*inputs: Any) -> Any:
        if all(lent[name] is parameter for name, parameter in module.named_parameters()):
            return function(*inputs)
        return functional_call(_Method(module, function), {f"module.{name}": lent[name] for name in lent}, inputs)

    return call


class _Method(nn.Module):
    """A method as a module, which is what ``functional_call`` calls."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)
