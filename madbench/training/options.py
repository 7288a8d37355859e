"""The options of the training loop. They decide how jobs train, and change numbers by rounding at most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class LoopOptions:
    """Options of :func:`madbench.training.loop.train`."""

    micro_batch: int | None = None
    """Sequences of a job that go through the model at once; gradients are accumulated over micro-batches."""
    compile: Literal["never", "auto", "always"] = "never"
    """Train through ``torch.compile``. ``auto``: only if measured steps are faster (:mod:`madbench.training.measured`).

    Evaluations are not compiled, because there are few.
    """
    keep_weights: bool = False
    """Keep the weights even if the suite keeps none. This changes no number of the run."""
    cuda_graph: bool = True
    """On a GPU, launch each step as one CUDA graph if one process trains the run."""
    stacking: Literal["never", "measured", "always"] = "never"
    """Train jobs of equal shapes in common steps. ``measured``: only if measured steps are faster."""
    measurements: Path | None = None
    """Folder in which measured step times are stored and looked up."""
    threads: int | None = None
    """Number of CPU threads. By default the number that the process has.

    A resumed run on the CPU uses at most the number with which it began.
    """
