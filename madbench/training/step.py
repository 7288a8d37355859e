"""One optimizer step of one job: rate, micro-batches, loss, backward, clip, optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from madbench.training import distributed as world
from madbench.training.member import GroupMember

Taken = tuple[list[Tensor], list[Tensor | None]]
"""For each member of a step: its mean loss over all processes, and the norm of its gradient before clipping."""


class Step(Protocol):
    """The steps of members that have all taken the same number of steps."""

    details: Mapping[str, Any]  # details for the run's record
    warm_up: int  # steps before its time is representative

    def __call__(self, rates: list[float]) -> Taken:
        """Take the next step of each member at its learning rate."""


class PlainStep:
    """The steps of one job on all processes together. With ``compile``, the model goes through ``torch.compile``."""

    details: Mapping[str, Any] = {}
    warm_up = 1

    def __init__(self, member: GroupMember, compile: bool = False):
        self.member, self.network = member, _network(member.trial.loss, member.device, compile)

    def __call__(self, rates: list[float]) -> Taken:
        """Take the next step. ``rates`` has exactly one entry."""
        trial, optimizer = self.member.trial, self.member.optimizer
        for group in optimizer.param_groups:
            group["lr"] = rates[0]
            for parameter in group["params"]:  # zero_grad takes many times as long
                parameter.grad = None
        loss = self.backward()
        norm = None if trial.clip is None else nn.utils.clip_grad_norm_(trial.model.parameters(), trial.clip)
        optimizer.step()
        return [loss], [norm]

    def backward(self) -> Tensor:
        """Accumulate the gradient of the mean loss of one step and return that loss, both over all processes."""
        loss = torch.zeros((), device=self.member.device)
        batches = itertools.chain(self.member.trial.micro_batches(self.member.state.step), [None])
        for (batch, share), following in itertools.pairwise(batches):
            waits = following is not None and isinstance(self.network, DistributedDataParallel)
            with self.network.no_sync() if waits else nullcontext():
                loss += self.add_gradients(batch, share)
        return world.total(loss) / world.size()

    def add_gradients(self, batch: Sequence[Tensor], share: float | Tensor) -> Tensor:
        """Add the gradients of a micro-batch to those of the parameters and return its loss times ``share``."""
        with self.member.trial.autocast:
            loss = self.network(*batch) * share
        loss.backward()
        return loss.detach()


def add_to_gradients(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
    """Add gradients to the parameters' gradients, as autograd does."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = gradient
        elif gradient is not None:
            parameter.grad += gradient


def _network(loss: nn.Module, device: str, compile: bool) -> nn.Module:
    if compile:
        loss.compile()
    if world.size() == 1:
        return loss
    gpu = [torch.device(device)] if torch.device(device).type == "cuda" else None
    return DistributedDataParallel(loss, device_ids=gpu, gradient_as_bucket_view=True)
