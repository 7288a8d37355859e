"""Whether torch looks through what runs, so that gradients by hand and loops over blocks are out of place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor  # no public module has it

_AS_COMPILED = ContextVar("as_compiled", default=False)


def is_traced() -> bool:
    """Whether torch.compile, torch.export, torch.jit or a transform such as vmap is at work."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    return torch._C._are_functorch_transforms_active() or _AS_COMPILED.get()


def is_transformed() -> bool:
    """Whether a transform of torch.func, such as grad or vmap, is at work."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def needs_plain_operators() -> bool:
    """Whether a transform of torch.func is at work that libraries' kernels have no rule for: all but one grad alone."""
    if not is_transformed():
        return False
    kinds = torch._C._functorch.TransformType
    levels = [level.key() for level in torch._C._functorch.get_interpreter_stack()]
    return [level for level in levels if level != kinds.Functionalize] != [kinds.Grad]


def is_symbolic(*sizes: int) -> bool:
    """Whether a size stands for many, in a program of torch.export: then no choice may depend on it."""
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return True
    is_exporting = getattr(torch.compiler, "is_exporting", None)  # from torch 2.7 on
    return torch.compiler.is_dynamo_compiling() and is_exporting is not None and is_exporting()


def has_data(x: Tensor) -> bool:
    """Whether there are numbers behind the tensor, and not its shape alone."""
    return not isinstance(x, FakeTensor)


@contextmanager
def as_compiled(is_compiled: bool) -> Iterator[None]:
    """Inside, :func:`is_traced` is what it is in a model that is compiled or not: which path did it take?"""
    token = _AS_COMPILED.set(is_compiled)
    try:
        yield
    finally:
        _AS_COMPILED.reset(token)
