"""The interface of training steps, and the plain step of one job: micro-batches, backward, clip and optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from madbench.details import Details
from madbench.training import distributed as world
from madbench.training.member import GroupMember

Taken = tuple[list[Tensor], list[Tensor | None]]
"""The result of a step, with one entry per member. The first list has the mean losses over all processes; the second
has the gradient norms before clipping, or None if the trial's ``clip`` is None.
"""


class Step(Protocol):
    """A function that takes the next training step of one or more members.

    All members have taken the same number of steps before.
    """

    @property
    def details(self) -> Details:
        """Details for the run's record."""

    @property
    def warm_up(self) -> int:
        """Steps before the time of a step is representative."""

    def __call__(self, rates: list[float]) -> Taken:
        """Take the next step of each member. ``rates`` has one learning rate per member."""


class PlainStep:
    """The training step of one job, in one process or in all processes of torchrun together.

    If ``compile`` is true, the model is compiled by ``torch.compile``.
    """

    warm_up = 1

    def __init__(self, member: GroupMember, compile: bool = False):
        self.member, self.network = member, _network(member.trial.loss, member.device, compile)

    @property
    def details(self) -> Details:
        """The details about the steps for a run's record. None are known."""
        return {}

    def __call__(self, rates: list[float]) -> Taken:
        """Take the next step with learning rate ``rates[0]``. ``rates`` has exactly one entry.

        Return the loss and the norm of the gradient before clipping, each in a list with one entry. The norm is None if
        the trial's ``clip`` is None.
        """
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
        """Add the gradient of the step's mean loss to the parameters' gradients. Return this loss, a scalar tensor.

        Loss and gradient are means over all processes.
        """
        loss = torch.zeros((), device=self.member.device)
        batches = itertools.chain(
            cast("Iterator[Any]", self.member.trial.micro_batches(self.member.state.step)), [None]
        )
        network = self.network
        for (batch, share), following in itertools.pairwise(batches):
            waits = following is not None
            with network.no_sync() if waits and isinstance(network, DistributedDataParallel) else nullcontext():
                loss += self.add_gradients(batch, share)
        return world.total(loss) / world.size()

    def add_gradients(self, batch: Sequence[Tensor], share: float | Tensor) -> Tensor:
        """Add the gradients of a micro-batch to the parameters' gradients. Return its loss times ``share``.

        ``share`` is the micro-batch's share in the mean loss of the step.
        """
        with self.member.trial.autocast:
            loss: Tensor = self.network(*batch) * share
        loss.backward()
        return loss.detach()


def add_to_gradients(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
    """Add ``gradients`` to the ``grad`` of the parameters, as ``backward`` does. None stands for a gradient of zero."""
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
