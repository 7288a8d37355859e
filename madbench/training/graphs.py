"""Training steps as CUDA graphs: forward, backward, clip and optimizer are launched together, on fixed buffers.

The host copies batches into the buffers and waits for nothing. Without a graph, the same step runs operation by
operation on any device and gives the same numbers.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from madbench.details import Details
from madbench.training import distributed as world
from madbench.training.stack import Batches, Stack
from madbench.training.step import Taken

WARM_UP = 3  # steps of a shape on a side stream, operation by operation, before capture


def has_graphs(device: str) -> bool:
    """True if training steps on ``device`` can be CUDA graphs: ``device`` is a GPU, and one process trains the run."""
    return torch.device(device).type == "cuda" and world.size() == 1


@dataclass
class StepBuffers:
    """The fixed buffers and the CUDA graph for steps with batches of one shape, and the number of such steps so far."""

    batches: Batches
    losses: Tensor | None = None
    """The losses of the N members in the last step, (N,). None before the first step."""
    norms: Tensor | None = None
    """The members' gradient norms in the last step, (N,). None before the first step, and if norms are not measured."""
    graph: torch.cuda.CUDAGraph | None = None
    steps: int = 0


class GraphStep:
    """A step of N stacked jobs (:class:`Stack`), launched as one CUDA graph. Each shape of batch has its own graph.

    On a GPU, the first ``WARM_UP`` steps with a shape are launched operation by operation. Then the graph is captured
    and used. If this fails, the user is warned, and no further graph is captured. On other devices, every step is
    launched operation by operation.
    """

    warm_up = WARM_UP + 1

    def __init__(self, stack: Stack):
        self.stack, self.captures = stack, stack.weights.is_cuda
        self.shapes: dict[Any, StepBuffers] = {}
        trials = stack.trials
        self.schedule = torch.tensor(
            [[trial.learning_rate(step) for trial in trials] for step in range(trials[0].steps)],
            dtype=stack.rates.dtype,
            device=stack.rates.device,
        )
        """Learning rates (steps, N) of the whole run, on the device so that no rate is copied from the host."""

    @property
    def details(self) -> Details:
        """The details about the steps for a run's record.

        ``cuda_graph`` is True if a graph was captured, else missing.
        """
        has_graph = any(step_buffers.graph for step_buffers in self.shapes.values())
        return {**self.stack.details, "cuda_graph": True} if has_graph else self.stack.details

    def __call__(self, rates: list[float]) -> Taken:
        """Take the next step of each member. ``rates`` is not used: learning rates are read from :attr:`schedule`."""
        self.stack.rates.copy_(self.schedule[self.stack.members[0].state.step])
        step_buffers = self._load()
        step_buffers.steps += 1
        with torch.cuda.device_of(self.stack.weights):
            if step_buffers.graph is None and self.captures and step_buffers.steps > WARM_UP:
                self._capture(step_buffers)
            if step_buffers.graph is not None:
                step_buffers.graph.replay()
            elif self.captures:
                self._compute_aside(step_buffers)
            else:
                step_buffers.losses, step_buffers.norms = self.stack.compute(step_buffers.batches)
        return self.stack.per_member(cast(Tensor, step_buffers.losses), step_buffers.norms)

    def _load(self) -> StepBuffers:
        """Copy the micro-batches of the next step into the buffers for their shape, and return the buffers."""
        batches = self.stack.micro_batches()
        key = tuple(tuple(tensor.shape for tensor in parts[0][0]) for parts in batches)
        if key not in self.shapes:
            self.shapes[key] = StepBuffers([_buffers(parts) for parts in batches])
        step_buffers = self.shapes[key]
        for parts, (buffers, shares) in zip(batches, step_buffers.batches):
            for i, (batch, share) in enumerate(parts):
                for buffer, tensor in zip(buffers, batch, strict=True):
                    buffer[i].copy_(tensor, non_blocking=True)
                if isinstance(share, Tensor) and isinstance(shares, Tensor):
                    shares[i].copy_(share)
        return step_buffers

    def _capture(self, step_buffers: StepBuffers) -> None:
        graph = torch.cuda.CUDAGraph()
        pool = next((other.graph.pool() for other in self.shapes.values() if other.graph), None)
        try:
            with torch.cuda.graph(graph, pool=pool):
                step_buffers.losses, step_buffers.norms = self.stack.compute(step_buffers.batches)
        except RuntimeError as error:
            self.captures = False
            self.stack.members[0].warning = f"no CUDA graph: {textwrap.shorten(str(error), 150, placeholder=' ...')}"
        else:
            step_buffers.graph = graph

    def _compute_aside(self, step_buffers: StepBuffers) -> None:
        """Compute a step on a side stream.

        CUDA libraries must initialize themselves on such a stream before a capture.
        """
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            step_buffers.losses, step_buffers.norms = self.stack.compute(step_buffers.batches)
        main.wait_stream(side)


def _buffers(parts: tuple[tuple[tuple[Tensor, ...], float | Tensor], ...]) -> tuple[list[Tensor], Tensor | float]:
    """Make buffers for one micro-batch of N members: uninitialized tensors (N, B, ...), and the members' shares.

    ``parts`` has one pair per member: the tensors (B, ...) of the member's micro-batch, and the share of this
    micro-batch in the member's mean loss. If the shares are tensors, an uninitialized buffer (N,) is returned for them.
    If they are numbers, all members have the same one, and it is returned.
    """
    (batch, share), count = parts[0], len(parts)
    buffers = [tensor.new_empty((count, *tensor.shape)) for tensor in batch]
    return buffers, batch[0].new_empty(count, dtype=torch.float32) if isinstance(share, Tensor) else share
