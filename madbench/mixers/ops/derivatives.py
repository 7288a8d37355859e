"""Second derivatives of operators with handwritten gradients, and an error for kernels without second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from madbench.errors import TrainingError
from madbench.mixers.ops.tracing import is_traced

MOST_STEPS = 6  # largest distance in autograd's graph at which the kernel that produced a gradient is searched for


G = TypeVar("G", bound=Tensor | None)


def gradients(
    by_hand: Callable[[Tensor], Sequence[G]],
    plain: Callable[..., Tensor],
    grad: Tensor,
    inputs: Sequence[Tensor | None],
) -> Sequence[G]:
    """Return ``by_hand(grad)``: the gradients of an operator with respect to ``inputs``.

    Call this function in ``backward`` of an autograd Function. ``plain(*inputs)`` must compute the same operator with
    functions of torch. If the gradients will be differentiated again (``create_graph``), autograd computes these
    further derivatives, of any order, from ``plain``.
    """
    return _ByHand.apply(by_hand, plain, grad, *inputs) if torch.is_grad_enabled() else by_hand(grad)


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by_hand: Callable[[Tensor], Sequence[Tensor | None]],
        plain: Callable[..., Tensor],
        grad: Tensor,
        *inputs: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        ctx.plain = plain
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad, *inputs)
        return tuple(by_hand(grad))

    @staticmethod
    def backward(ctx: Any, *of_gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        is_differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            # views, so that derivatives stop at this operator's inputs even if ``grad`` depends on them
            grad, *inputs = (None if x is None else x.view_as(x) for x in ctx.saved_tensors)
            wanted = [x for x in inputs if x is not None and x.requires_grad]
            first = iter(torch.autograd.grad(ctx.plain(*inputs), wanted, grad, create_graph=True))
            first = [None if x is None or not x.requires_grad else next(first) for x in inputs]
            pairs = [(y, of_y) for y, of_y in zip(first, of_gradients) if y is not None and of_y is not None]
            variables = [x for x in (grad, *inputs) if x is not None and x.requires_grad]
            if not pairs:
                return None, None, *[None] * len(ctx.saved_tensors)
            outputs, cotangents = zip(*pairs)
            options = {"allow_unused": True, "create_graph": is_differentiable}
            second = iter(torch.autograd.grad(outputs, variables, cotangents, **options))
        return None, None, *(None if x is None or not x.requires_grad else next(second) for x in (grad, *inputs))


def refuse_second(path: str, inputs: Sequence[Tensor | None], is_always: bool = False) -> None:
    """Register hooks on the ``inputs`` of a kernel that raise ``TrainingError`` if second derivatives are computed.

    The message names the kernel's ``path`` and suggests the path ``dense``. If ``is_always`` is false, the error is
    raised only where torch itself would raise an error, because some kernels have second derivatives for some devices
    and dtypes. Nothing is registered in traced code (:func:`madbench.mixers.ops.tracing.is_traced`).
    """
    if is_traced():
        return

    def refuse(grad: Tensor) -> Tensor | None:
        if torch.is_grad_enabled() and (is_always or _has_no_derivative(grad.grad_fn, MOST_STEPS)):
            refused: Tensor = _Refused.apply(path, grad)
            return refused
        return None

    for x in inputs:
        if x is not None and x.requires_grad:
            x.register_hook(refuse)


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, path: str, grad: Tensor) -> Tensor:
        ctx.path = path
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Any:
        raise TrainingError(
            f"path {ctx.path!r} computes with a kernel that has first derivatives only; build the mixer with "
            'path="dense" for second ones'
        )


def _has_no_derivative(node: Any, steps: int) -> bool:
    if node is None or not steps:
        return False
    return node.name().endswith("NotImplemented") or any(
        _has_no_derivative(before, steps - 1) for before, _ in node.next_functions
    )
