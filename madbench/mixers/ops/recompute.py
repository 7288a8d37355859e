"""Recomputation of intermediate tensors in the backward pass, to save memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from madbench.mixers.ops.tracing import is_transformed


def recompute(function: Callable[..., Any], *inputs: Any, module: nn.Module | None = None) -> Any:
    """Return ``function(*inputs)``, and call ``function`` again in the backward pass to save memory.

    The backward pass computes the intermediate tensors anew, so that they need not be kept. ``function`` must not draw
    random numbers. If it is a method that reads parameters, ``module`` is the module of these parameters. In programs
    of torch.export and under the transforms of torch.func, which do not support recomputation, all tensors are kept.
    """
    is_exported = torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()
    if not torch.is_grad_enabled() or is_transformed() or is_exported:
        return function(*inputs)
    if module is not None and not torch.compiler.is_compiling():
        function = _with_its_parameters(function, module)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


def _with_its_parameters(function: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """Wrap a method of ``module`` so that later calls use the parameter tensors that the module has now.

    ``torch.func.functional_call`` replaces the parameters of a module only during the forward pass. Without this
    wrapper, the call in the backward pass would use the module's own parameters again.
    """
    lent = dict(module.named_parameters())

    def call(*inputs: Any) -> Any:
        if all(lent[name] is parameter for name, parameter in module.named_parameters()):
            return function(*inputs)
        return functional_call(_Method(module, function), {f"module.{name}": lent[name] for name in lent}, inputs)

    return call


class _Method(nn.Module):
    """A method as a module, because ``functional_call`` calls modules only."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)
