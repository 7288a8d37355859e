"""Small mixers of a label for its checks, with three seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from madbench.mixers import Size
from madbench.mixers.cd.grammar import CdLabel
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.random_state import kept_random_state

WIDTH, HEADS, LENGTH, LONGER, LONG, CHECK_SEEDS = 32, 2, 16, 64, 1024, (0, 1, 2)


@dataclass(frozen=True)
class SampleMixers:
    """A maker of small mixers of one label with random weights, one per seed, on which checks measure residuals."""

    family: Any
    label: CdLabel

    def sample(
        self, seed: int, batch: int = 1, length: int = LENGTH, qk_rank: int = 0, chunk: int = 5, path: str = "auto"
    ) -> tuple[CoefficientMixer, Tensor]:
        """A mixer in float64 with weights drawn from ``seed``, and an input (batch, length, 32).

        ``qk_rank`` is the family's setting of this name, and ``path`` is the path of the mixer. ``chunk`` is the
        mixer's number of rows per block. If it is 0, the mixer keeps its default.
        """
        settings = self.family.Settings(qk_rank=qk_rank, init_std=WIDTH**-0.5)
        with kept_random_state(), torch.no_grad():
            torch.manual_seed(seed)
            size = Size(WIDTH, HEADS, LONG, "paper")
            mixer = self.family.build(self.family.solve(self.label, size, settings), settings, path).double()
            for name, parameter in mixer.named_parameters():
                if parameter.ndim > 1 and not name.startswith("decay"):
                    parameter.normal_(std=WIDTH**-0.5)
            mixer.chunk = chunk or mixer.chunk
            return mixer.eval().requires_grad_(False), torch.randn(batch, length, WIDTH, dtype=torch.float64)

    def largest(self, measure: Callable[[CoefficientMixer, Tensor], Tensor]) -> Callable[[], float]:
        """A function that returns the largest number in ``measure(mixer, x)`` over three seeds.

        NaN if any number is NaN.
        """
        return lambda: float(torch.stack([measure(*self.sample(seed)) for seed in CHECK_SEEDS]).max())

    def smallest(self, measure: Callable[[CoefficientMixer, Tensor], Tensor]) -> Callable[[], float]:
        """A function that returns the smallest number in ``measure(mixer, x)`` over three seeds.

        It is for checks that require two results to differ, and :meth:`largest` for those that require equal results.
        NaN if any number is NaN.
        """
        return lambda: float(torch.stack([measure(*self.sample(seed)) for seed in CHECK_SEEDS]).min())


def is_positive(label: CdLabel) -> bool:
    """True if no coefficient of the label's mixers can be negative.

    This holds for a readout that is not negative, and for a kernel readout without mirrors.
    """
    return not label.mirror if label.is_kernel else label.readout != "id"


def relative(actual: Tensor, expected: Tensor) -> Tensor:
    """The largest absolute difference, divided by 1 + the largest absolute number of ``expected``."""
    return (actual - expected).abs().max() / (1 + expected.abs().max())
