"""A whole step as one CUDA graph: forward, backward, clip and optimiser are launched together, from fixed buffers.

The host gives a step its batches and learning rates by copies into the buffers, and waits for nothing. The same step
without capture runs anywhere and gives the numbers of one that is captured.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from madbench.training import distributed as world
from madbench.training.stack import Batches, Stack
from madbench.training.step import Taken

WARM_UP = 3  # steps of a shape taken on a side stream, launch by launch, before it is captured


def has_graphs(device: str) -> bool:
    """Whether steps on the device are captured: on a GPU, in a run of one process."""
    return torch.device(device).type == "cuda" and world.size() == 1


@dataclass
class Fixed:
    """What a step of one shape reads and writes, always in the same memory, and how often it was taken."""

    batches: Batches
    losses: Tensor | None = None  # (N,)
    norms: Tensor | None = None  # (N,)
    graph: torch.cuda.CUDAGraph | None = None
    steps: int = 0


class GraphStep:
    """The steps of a :class:`Stack` through fixed buffers, one set for each shape of batch.

    On a GPU the first steps of a shape are launched one operation after another and the next ones as one graph; all are
    launched so, with a warning, after a capture has failed, and on any other device.
    """

    warm_up = WARM_UP + 1

    def __init__(self, stack: Stack):
        self.stack, self.captures = stack, stack.weights.is_cuda
        self.shapes: dict[Any, Fixed] = {}
        trials = stack.trials
        self.schedule = torch.tensor(
            [[trial.learning_rate(step) for trial in trials] for step in range(trials[0].steps)],
            dtype=stack.rates.dtype,
            device=stack.rates.device,
        )
        """Learning rates (steps, N), so that none has to come from the host."""

    @property
    def details(self) -> Mapping[str, Any]:
        """What a run's record says of it."""
        return self.stack.details | ({"cuda_graph": True} if any(fixed.graph for fixed in self.shapes.values()) else {})

    def __call__(self, rates: list[float]) -> Taken:
        """Takes the next step of each member, at its scheduled learning rate."""
        self.stack.rates.copy_(self.schedule[self.stack.members[0].state.step])
        fixed = self._load()
        fixed.steps += 1
        with torch.cuda.device_of(self.stack.weights):
            if fixed.graph is None and self.captures and fixed.steps > WARM_UP:
                self._capture(fixed)
            if fixed.graph is not None:
                fixed.graph.replay()
            elif self.captures:
                self._compute_aside(fixed)
            else:
                fixed.losses, fixed.norms = self.stack.compute(fixed.batches)
        return self.stack.taken(fixed.losses, fixed.norms)

    def _load(self) -> Fixed:
        """Copies the next batches into the buffers of their shape."""
        batches = self.stack.micro_batches()
        key = tuple(tuple(tensor.shape for tensor in parts[0][0]) for parts in batches)
        if key not in self.shapes:
            self.shapes[key] = Fixed([_buffers(parts) for parts in batches])
        fixed = self.shapes[key]
        for parts, (buffers, shares) in zip(batches, fixed.batches):
            for i, (batch, share) in enumerate(parts):
                for buffer, tensor in zip(buffers, batch, strict=True):
                    buffer[i].copy_(tensor, non_blocking=True)
                if isinstance(share, Tensor):
                    shares[i].copy_(share)
        return fixed

    def _capture(self, fixed: Fixed) -> None:
        graph = torch.cuda.CUDAGraph()
        pool = next((other.graph.pool() for other in self.shapes.values() if other.graph), None)
        try:
            with torch.cuda.graph(graph, pool=pool):
                fixed.losses, fixed.norms = self.stack.compute(fixed.batches)
        except RuntimeError as error:
            self.captures = False
            self.stack.members[0].warning = f"no CUDA graph: {textwrap.shorten(str(error), 150, placeholder=' ...')}"
        else:
            fixed.graph = graph

    def _compute_aside(self, fixed: Fixed) -> None:
        """The step on a stream of its own, where libraries set themselves up for the capture."""
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            fixed.losses, fixed.norms = self.stack.compute(fixed.batches)
        main.wait_stream(side)


def _buffers(parts: tuple[tuple[tuple[Tensor, ...], float | Tensor], ...]) -> tuple[list[Tensor], Tensor | float]:
    """Buffers for the micro-batches of N members, with a leading axis; a share that is a number stays the same."""
    (batch, share), count = parts[0], len(parts)
    buffers = [tensor.new_empty((count, *tensor.shape)) for tensor in batch]
    return buffers, batch[0].new_empty(count, dtype=torch.float32) if isinstance(share, Tensor) else share
