"""Tests of whether torch traces or transforms the running code. If so, handwritten gradients must not be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor  # no public module has it
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # no public function lists them

_AS_COMPILED = ContextVar("as_compiled", default=False)


def is_traced() -> bool:
    """True if torch.compile, torch.export, torch.jit, forward-mode AD or a transform such as vmap is active.

    True also inside :func:`as_compiled`.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or forward_ad._current_level >= 0:
        return True
    return torch._C._are_functorch_transforms_active() or _AS_COMPILED.get()


def is_counted() -> bool:
    """True if torch's counter of FLOPs is active. It does not know the operations of libraries such as oneDNN."""
    if torch._C._len_torch_dispatch_stack() == 0:
        return False
    # the name of the module, because importing the counter imports Triton
    return any(type(mode).__module__ == "torch.utils.flop_counter" for mode in _get_current_dispatch_mode_stack())


def is_transformed() -> bool:
    """True if a transform of torch.func, such as grad or vmap, is active."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def needs_plain_operators() -> bool:
    """True if torch.func transforms the code so that library kernels fail: by anything other than one ``grad``."""
    if not is_transformed():
        return False
    kinds = torch._C._functorch.TransformType
    levels = [level.key() for level in torch._C._functorch.get_interpreter_stack()]
    return [level for level in levels if level != kinds.Functionalize] != [kinds.Grad]


def is_symbolic(*sizes: int) -> bool:
    """True if a size is symbolic, as in a program of torch.export. Code must not branch on such a size."""
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return True
    is_exporting = getattr(torch.compiler, "is_exporting", None)  # from torch 2.7 on
    return torch.compiler.is_dynamo_compiling() and is_exporting is not None and is_exporting()


def has_data(x: Tensor) -> bool:
    """True unless x is a fake tensor, which has a shape but no numbers."""
    return not isinstance(x, FakeTensor)


@contextmanager
def as_compiled(is_compiled: bool) -> Iterator[None]:
    """A context in which :func:`is_traced` returns True if ``is_compiled`` is true.

    Use it to find the path that a compiled model takes, without compiling the model.
    """
    token = _AS_COMPILED.set(is_compiled)
    try:
        yield
    finally:
        _AS_COMPILED.reset(token)
