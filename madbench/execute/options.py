"""The options of training that decide where and how jobs run, but not what they train."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from madbench.config import convert, short_repr
from madbench.config.options import EVERY_VERB, option
from madbench.errors import ConfigError, no_effect
from madbench.execute.base import Executor

if TYPE_CHECKING:
    from madbench.training.options import LoopOptions

Compile = Literal["never", "auto", "always"]
"""The choices of ``--compile``."""


def parse_group(text: str) -> int | None:
    """The number of jobs that ``--group`` gives, from 1 to 9,999. None for ``auto``.

    Raises ``ValueError`` for any other text.
    """
    if text == "auto":
        return None
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise ValueError(f"{short_repr(text)} is neither auto nor a number of jobs above 0")
    return int(text)


ThreadsOption = Annotated[
    int | None,
    option(
        "Threads per job on a CPU; another number changes the last digits of the results.",
        min=1,
        max=1024,
        show_default="OMP_NUM_THREADS, otherwise 1; all free cores for a long language model",
        rare="run sweep paper",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """The options that decide on which machine and how jobs run. The command line passes them on as one object.

    By default jobs train on this machine. On the CPU, jobs of all suites share the same slots
    (:func:`madbench.execute.slots.plan_batches`). Under torchrun, all processes train one job together. Options do not
    change the result of a run, except by rounding if an option's help says so.
    """

    slots: Annotated[
        int | None,
        option(
            "Jobs at a time; by default one per GPU or CPU core. A long language model gets all free cores.",
            min=1,
        ),
    ] = None
    threads: ThreadsOption = None
    micro_batch: Annotated[
        int | None,
        option("Sequences in memory at a time; the gradients of a step are accumulated.", min=1, rare=EVERY_VERB),
    ] = None
    group: Annotated[
        int | None,
        option(
            "Run jobs that differ only in seed and rate in one step, at most N at a time. auto: at most 8 on a GPU, "
            "if a quick timing shows a speed-up; never on a CPU.",
            parser=parse_group,
            metavar="auto|N",
            completes="auto",
            show_default="auto",
            rare=EVERY_VERB,
        ),
    ] = None
    """The largest number of jobs of equal shapes that share a training step. Sharing changes results by rounding only.

    By default no jobs share a step if there is a time limit, which applies per job, or if models are compiled."""
    no_cuda_graph: Annotated[
        bool,
        option(
            "On a GPU launch every operation alone instead of one graph per step.", "--no-cuda-graph", rare=EVERY_VERB
        ),
    ] = False
    compile: Annotated[
        Compile,
        option(
            "torch.compile, which needs a C++ compiler; auto: if five minutes or more are left and a timing test shows "
            "a speed-up.",
            rare=EVERY_VERB,
        ),
    ] = "never"
    keep_weights: Annotated[
        bool, option("Store the weights with each run. Language models always do.", "--keep-weights", rare=EVERY_VERB)
    ] = False
    gpus: Sequence[str] | None = None
    """The GPUs that the slots take in turn, as values of CUDA_VISIBLE_DEVICES. See :class:`MachineOptions`."""
    executor: Executor | None = None
    """The executor that trains the jobs on other machines. None to train them on this machine."""

    def for_loop(self) -> LoopOptions:
        """The options of the training loop. The folder of measured step times and the number of threads are not set."""
        from madbench.training.options import LoopOptions

        return LoopOptions(
            micro_batch=self.micro_batch,
            compile=self.compile,
            keep_weights=self.keep_weights,
            cuda_graph=not self.no_cuda_graph,
            stacking="measured" if self.group is None else "always",
        )

    def check(self, device: str) -> None:
        """Raise ``ConfigError`` for an option that has no effect on ``device``, under torchrun, or with another option.

        Also raises it for an option that this machine does not support, such as compiling without a compiler.
        """
        from madbench.training.processes import is_distributed

        if is_distributed():
            given = {"slots": self.slots, "on": self.executor, "devices": self.gpus, "group": self.group}
            for name, value in given.items():
                if value is not None:
                    raise no_effect(f"--{name}", "under torchrun", "all its processes train one run together")
            if self.threads is not None:
                raise no_effect(
                    f"--threads {self.threads}", "under torchrun", f"give it OMP_NUM_THREADS={self.threads}"
                )
        if self.executor is not None and self.threads is not None:
            raise no_effect(
                f"--threads {self.threads}",
                "on other machines, where a job has as many threads as cores",
                f"cpus_per_job: {self.threads} in the file of --on",
            )
        if self.group is not None and self.group > 1 and self.compile != "never":
            raise no_effect(
                f"--group {self.group}", f"with --compile {self.compile}", "compiled models train one by one"
            )
        convert(self.compile, Compile, "compile")
        is_here = self.executor is None and not is_distributed()
        if self.compile == "always" and is_here:
            from madbench.training.measured import has_compiler

            if not has_compiler():
                raise ConfigError("--compile always: there is no C++ compiler here; install g++, or take auto or never")
        if self.no_cuda_graph and device == "cpu":
            raise no_effect("--no-cuda-graph", "with --device cpu")


@dataclass(frozen=True)
class MachineOptions:
    """The machines, and the GPUs of this machine, on which jobs run."""

    on: Annotated[
        str | None,
        option(
            "Where jobs run: ray, ray:ADDRESS, slurm, or either with a file of options, such as slurm:cluster.yaml.",
            rare=EVERY_VERB,
            show_default="this machine",
        ),
    ] = None
    devices: Annotated[
        str | None,
        option("GPUs such as 0,1 that the slots take in turn; one slot per GPU by default.", rare=EVERY_VERB),
    ] = None

    def __post_init__(self) -> None:
        if self.on and self.devices:
            raise no_effect(f"--devices {self.devices}", f"with --on {self.on}; its file has gpus_per_job")

    def resolve(self, options: RunOptions, device: str) -> tuple[RunOptions, str]:
        """``options`` with the machines or GPUs that the user named, and the device of the jobs.

        Raises ``ConfigError`` if ``on`` or ``devices`` is invalid.
        """
        from madbench.execute.machines import executor_of, gpus_of  # imports torch

        gpus = None if self.devices is None else gpus_of(self.devices, device)
        executor, device = executor_of(self.on, "cuda" if gpus else device, options.slots)
        return replace(options, slots=None if executor else options.slots, gpus=gpus, executor=executor), device
