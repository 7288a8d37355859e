"""The loss of token models. For large batches, the logits of all tokens are never in memory at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.ops import products
from madbench.mixers.ops.derivatives import gradients
from madbench.mixers.ops.linear_maps import call, is_plain
from madbench.mixers.ops.tracing import has_data, is_traced
from madbench.tasks.base import IGNORE

MOST_LOGITS = 2**26
"""Largest number of logits in memory at once, 256 MiB in float32. For 12 windows of 1,024 tokens, all logits of GPT-2
would take 2.5 GB."""


if TYPE_CHECKING:

    class TokenModel(Protocol):
        """The members of a model that its token loss reads."""

        @property
        def readout(self) -> tuple[Tensor, Tensor | None]: ...
        def hidden(self, tokens: Tensor) -> Tensor: ...
        def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]: ...


class TokenLoss(nn.Module):
    """The mean cross-entropy of a token model in nats, over all targets other than -100.

    It is a module, so that it can be compiled, and wrapped for data parallelism. The model has a method ``hidden``,
    which maps ids (B, T) to vectors (B, T, D), and the attributes that :func:`logits_of` reads. On a CPU, logits are
    computed only for targets other than -100. More than ``MOST_LOGITS`` logits are computed in parts
    (:func:`chunked_cross_entropy`), if the output layer is a plain linear map.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = cast("TokenModel", model)

    def branch(self, inputs: Tensor, targets: Tensor) -> str | None:
        """A key of a call of the loss, or None if the call cannot be recorded.

        Calls with equal keys and equal shapes run the same operators. A recorded call may therefore be replayed for
        them (:mod:`madbench.training.replay`).
        """
        counted = int((targets != IGNORE).count_nonzero())
        if counted == 0 or counted * len(self.model.readout[0]) > MOST_LOGITS:
            return None
        return "all" if counted == targets.numel() else "some"

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Map ids (B, T) and targets (B, T) to the mean loss, a float32 scalar. Targets of -100 do not count."""
        return self.of_hidden(self.model.hidden(inputs), targets)

    def of_hidden(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean loss, a float32 scalar, given ``hidden`` (B, T, D), the result of the model's method ``hidden``.

        ``targets`` is (B, T). Targets of -100 do not count. Only this method uses the output layer.
        """
        hidden, targets = hidden.flatten(0, 1), targets.flatten()
        if targets.device.type == "cpu" and has_data(targets) and not is_traced():
            counted = (targets != IGNORE).nonzero().squeeze(1)
            if 0 < len(counted) < len(targets):  # targets of -100 need no logits
                hidden, targets = hidden[counted], targets[counted]
        if has_plain_output(self.model):
            weight, bias = self.model.readout
            if len(hidden) * len(weight) > MOST_LOGITS:
                return chunked_cross_entropy(hidden, weight, bias, targets).float()
        return F.cross_entropy(logits_of(self.model, hidden).float(), targets, ignore_index=IGNORE)


def has_plain_output(model: nn.Module | TokenModel) -> bool:
    """True if logits are a product with the matrix in ``model.readout``, plus its bias.

    False if the model has an output layer that is more than a plain linear map, such as a layer with an adapter.
    """
    layer = getattr(model, "output_layer", None)
    return layer is None or is_plain(layer, bias=True)


def logits_of(model: nn.Module | TokenModel, hidden: Tensor) -> Tensor:
    """The logits (..., V) of ``hidden`` (..., D), vectors that the model's method ``hidden`` returned.

    V is the number of ids. The model's ``output_layer`` is called as a module, so that its hooks and adapters act. If
    it is None or missing, ``readout`` is used: a pair of the weight (V, D) and the bias (V,) or None.
    """
    layer = getattr(model, "output_layer", None)
    return products.linear(hidden, *cast("TokenModel", model).readout) if layer is None else call(layer, hidden)


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, most_logits: int = MOST_LOGITS
) -> Tensor:
    """The mean of ``cross_entropy(hidden @ weight.T + bias, targets)`` over targets other than -100, in parts of rows.

    Each part has at most ``most_logits`` logits, but at least one row. The gradients of a part are computed together
    with its logits. No logits are therefore computed twice, and loss and gradients take 3 N V D multiply-adds, as they
    do without parts. Under autocast, products are in autocast's dtype. Softmax, sums over parts and gradients are in
    float32 or wider. For second and higher derivatives, all logits are in memory at once.

    Args:
        hidden: (N, D).
        weight: (V, D).
        bias: (V,) or None.
        targets: (N,) integers from 0 to V - 1, or -100.
        most_logits: the largest number of logits in memory.
    """
    device = hidden.device.type
    is_cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # not on meta
    dtype = torch.get_autocast_dtype(device) if is_cast else hidden.dtype
    needed = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in (hidden, weight, bias)]
    rows = max(1, most_logits // len(weight))
    loss: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, bias, targets, rows, dtype, *needed)
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        rows: int,
        dtype: torch.dtype,
        needs_hidden: bool,
        needs_weight: bool,
        needs_bias: bool,
    ) -> Tensor:
        """The mean loss, computed for ``rows`` rows of ``hidden`` at a time. Gradients are saved for the backward pass.

        The first four arguments are those of :func:`chunked_cross_entropy`. ``dtype`` is the dtype of matrix products.
        The gradient with respect to ``hidden`` is computed if ``needs_hidden`` is true, and so on.
        """
        precise = torch.promote_types(hidden.dtype, torch.float32)
        cast_weight, cast_bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        d_hidden = torch.empty_like(hidden, dtype=precise) if needs_hidden else None
        d_weight = torch.zeros_like(weight, dtype=precise) if needs_weight else None
        d_bias = torch.zeros_like(bias, dtype=precise) if needs_bias and bias is not None else None
        share = 1 / (targets != IGNORE).sum().to(precise)
        loss = torch.zeros((), dtype=precise, device=hidden.device)
        for start in range(0, len(hidden), rows):
            part, classes = hidden[start : start + rows].to(dtype), targets[start : start + rows]
            log_p = F.linear(part, cast_weight, cast_bias).to(precise).log_softmax(-1)
            loss += F.nll_loss(log_p, classes, ignore_index=IGNORE, reduction="sum")
            if not (needs_hidden or needs_weight or needs_bias):
                continue
            weights = torch.where(classes != IGNORE, share, 0.0)[:, None]
            d_logits = log_p.exp_().mul_(weights)
            d_logits.scatter_add_(1, classes.clamp(min=0)[:, None], -weights)
            if d_bias is not None:
                d_bias += d_logits.sum(0)
            d_logits = d_logits.to(dtype)
            if d_hidden is not None:
                d_hidden[start : start + rows] = d_logits @ cast_weight
            if d_weight is not None:
                d_weight += d_logits.mT @ part
        ctx.save_for_backward(d_hidden, d_weight, d_bias, hidden, weight, bias, targets)
        ctx.dtype = dtype
        return loss * share

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        *grads, hidden, weight, bias, targets = ctx.saved_tensors

        def by_hand(d_loss: Tensor) -> Sequence[Tensor | None]:
            return [None if grad is None else grad * d_loss for grad in grads]

        plain = functools.partial(_cross_entropy, targets=targets, dtype=ctx.dtype)
        return *gradients(by_hand, plain, d_loss, (hidden, weight, bias)), *[None] * 6


def _cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, dtype: torch.dtype) -> Tensor:
    """The loss of :func:`chunked_cross_entropy`, with all logits in memory at once. Products are in ``dtype``."""
    logits = F.linear(hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
    precise = torch.promote_types(hidden.dtype, torch.float32)
    return F.cross_entropy(logits.to(precise), targets, ignore_index=IGNORE)
