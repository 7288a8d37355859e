"""One job in training: its trial, its optimizer, its state, and everything that happens between two steps."""

from __future__ import annotations

import copy
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from madbench.details import Details, TrainingPlace
from madbench.errors import TrainingError
from madbench.files import explain_os_errors
from madbench.jobs import KEEP, WEIGHTS, Job, Progress, Record
from madbench.mixers.ops.tracing import as_compiled
from madbench.mixers.sequence import MixerSequence
from madbench.suites import suite_of
from madbench.suites.code import check_planned_code, code_details
from madbench.suites.compute import compute_details
from madbench.suites.trial import LogWindow, Trial
from madbench.text.corpus import Corpus
from madbench.training import distributed as world
from madbench.training.checkpoints import TrainingState, load_checkpoint, save_checkpoint, save_weights
from madbench.training.devices import cpu_kind, device_name, git_state, peak_flops, versions
from madbench.training.optimizer import make_optimizer, optimizer_details
from madbench.training.processes import is_first


class GroupMember:
    """One job in training, alone or in a group. It resumes from an intact checkpoint in its ``work`` folder.

    ``report`` is called with the progress of the job. ``corpora`` has corpora by digest.

    Raises ``ConfigError`` if the suite cannot train the job with these settings. Raises ``TrainingError`` for a
    checkpoint of another job or version, and if the job's corpus is not in ``corpora``.
    """

    def __init__(
        self,
        job: Job,
        work: Path,
        report: Callable[[Progress], None],
        device: str = "cpu",
        corpora: Mapping[str, Corpus] | None = None,
        micro_batch: int | None = None,
        threads: int | None = None,
    ):
        self.job, self.work, self.device, self._report = job, work, device, report
        suite = suite_of(job)
        check_planned_code(job)
        self.trial: Trial = suite.Trial(job, device, world, corpora=corpora, micro_batch=micro_batch)
        self.optimizer = make_optimizer(self.trial.model, job.training, job.fidelity)
        self.state = TrainingState(device)
        self.warning = load_checkpoint(work, job, self.trial, self.optimizer, self.state, device)
        self._choose_threads(threads)
        self._note_place()
        if world.agree(self.state.step != world.from_first(self.state.step)):
            raise TrainingError(f"{work}: not every process found the same checkpoint here; all must share this folder")
        self._prove_kernels()
        self.flops_per_token = 3 * suite.size(job).flops_per_token
        self._peak = peak_flops(device_name(device), job.training.precision)

    def _prove_kernels(self) -> None:
        """Let each mixer compare its kernels with a reference on this device, before steps are timed.

        If a kernel is wrong, the mixer uses another path, and the problem is added to ``warning``.
        """
        problems: dict[str, None] = {}
        for mixer in self.trial.mixers:
            if hasattr(mixer, "kernel_problem"):
                with self.trial.autocast:
                    path = mixer.resolve_path(*self.trial.batch_shape)
                if mixer.kernel_problem:
                    problems[f"{mixer.kernel_problem}; path {path} is used instead"] = None
        self.warning = "; ".join(filter(None, [self.warning, *problems]))

    def _choose_threads(self, asked: int | None) -> None:
        """Set ``state.threads``, the number of CPU threads, to ``asked``.

        If ``asked`` is None, a run on the CPU keeps the number of threads with which it began, or uses those of this
        process if they are fewer. A run on a GPU uses the threads of this process. A resumed run on the CPU gets a
        warning if its number of threads changes.
        """
        began, here = self.state.threads, torch.get_num_threads()
        is_cpu = torch.device(self.device).type == "cpu"
        self.state.threads = asked or (min(began, here) if is_cpu else here)
        if self.state.threads != began and is_cpu and not self.is_over:
            change = f"began in {began} thread{'' if began == 1 else 's'} and resumes in {self.state.threads}"
            self._warn(f"{change}, which changes the last digits of its numbers; --threads {began} does not")

    def _note_place(self) -> None:
        """Record torch's version and the device for the next steps. Add a warning if earlier steps had others."""
        if self.is_over:
            return
        kind = cpu_kind() if torch.device(self.device).type == "cpu" else device_name(self.device)
        here: TrainingPlace = {"torch": str(torch.__version__), "device": kind, "from_step": self.state.step}
        if not self.state.places:
            if not self.state.step:  # a checkpoint of an old version has no places
                self.state.places.append(here)
            return
        began, now = (f"torch {place['torch']} on {place['device']}" for place in (self.state.places[-1], here))
        if began != now:
            self.state.places.append(here)
            self._warn(f"trained with {began} and resumes with {now}, which changes the last digits of its numbers")

    @property
    def group(self) -> list[str]:
        """Ids of the jobs that trained together with this one in its last step, in order. This job is one of them."""
        return self.state.groups[-1]["ids"] if self.state.groups else [self.job.id]

    def note_group(self, ids: list[str]) -> None:
        """Record ``ids``, the jobs that train together with this one from the next step on, itself included."""
        groups = self.state.groups
        if groups and groups[-1]["from_step"] == self.state.step:  # no step was taken in that group
            groups.pop()
        if ids != self.group:
            groups.append({"from_step": self.state.step, "ids": ids})

    def warn_of_group(self, count: int) -> None:
        """Add the warning that the run resumes in a group of ``count`` jobs and had trained in another group."""
        here = f"in one of {count}" if count > 1 else "alone"
        change = f"trained in a group of {len(self.group)} jobs and resumes {here}"
        self._warn(f"{change}, which changes the last digits of its numbers; the command that began it does not")

    def _warn(self, problem: str) -> None:
        self.warning = "; ".join(filter(None, [self.warning, f"{self.work}: {problem}"]))

    @property
    def is_over(self) -> bool:
        """True if nothing is left to train: all steps are taken, the run diverged, or the trial ended it early."""
        state, trial = self.state, self.trial
        return state.step >= trial.steps or state.diverged or bool(state.curve and trial.is_done(state.curve[-1]))

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self.trial.learning_rate(self.state.step)

    @property
    def has_row(self) -> bool:
        """True if the curve gets a row at the present step."""
        return self.trial.has_row(self.state.step)

    def count_step(self, loss: Tensor) -> None:
        """Count one more step, and add its loss to the sum since the curve's last row."""
        self.state.loss_sum += loss
        self.state.step += 1

    def add_row(self, seconds: float, rate: float, norm: Tensor | None) -> None:
        """Evaluate the model and add a row to the curve.

        ``seconds`` is training time that is not in ``state.seconds`` yet. ``rate`` is the learning rate of the last
        step, and ``norm`` its gradient norm, or None if that was not measured.
        """
        row = self.trial.row(self._log_window(seconds, rate, norm))
        if self._peak is not None and "tokens_per_second" in row:
            row["mfu"] = self.flops_per_token * row["tokens_per_second"] / (self._peak * world.size())
        self.state.add(row)

    def _log_window(self, seconds: float, rate: float, norm: Tensor | None) -> LogWindow:
        """Summarize the steps since the curve's last row, and start to sum for the next row.

        The arguments are those of :meth:`add_row`.
        """
        state = self.state
        before, state.row_seconds = state.row_seconds, state.seconds + seconds
        state.seconds = state.row_seconds
        steps = state.step - int(state.curve[-1]["step"] if state.curve else 0)
        mean_loss = float(state.loss_sum) / steps
        state.loss_sum.zero_()
        grad_norm, memory = None if norm is None else float(norm), _memory_bytes(self.device)
        return LogWindow(state.step, steps, state.seconds, state.seconds - before, mean_loss, rate, grad_norm, memory)

    def save(self, seconds: float) -> None:
        """Write a checkpoint. ``seconds`` is training time that is not in ``state.seconds`` yet."""
        save_checkpoint(self.work, self.job, self.trial, self.optimizer, self.state, seconds=seconds)

    def report(self) -> None:
        """Report the step, the number of steps, the metrics of the curve's last row, and the warning if there is one.

        Raises ``StopTraining`` if the receiver of the report wants training to stop.
        """
        progress: Progress = {"step": self.state.step, "total_steps": self.trial.steps}
        if self.state.curve:
            progress |= cast(Progress, self.trial.progress(self.state.curve[-1]))
        if self.warning:
            progress["warning"] = self.warning
        self._report(progress)

    def copy(self, step: int | None = None) -> GroupMember:
        """Return a copy with its own weights and a new optimizer, for steps that are only tried or timed.

        ``step`` is the number of steps that the copy counts as taken, by default those of the original. Do not save or
        report a copy.
        """
        other = copy.copy(self)
        other.trial = copy.copy(self.trial)
        other.trial.model = copy.deepcopy(self.trial.model)
        other.trial.loss = other.trial.Loss(other.trial.model)
        other.optimizer = make_optimizer(other.trial.model, self.job.training, self.job.fidelity)
        other.state = TrainingState(self.device)
        other.state.step = self.state.step if step is None else step
        return other

    def record(self, step_details: Details, keep_weights: bool = False) -> Record:
        """Make the record of a job that is over, with metrics unless it diverged. Write its weights if they are kept.

        ``step_details`` are added to the record's details, and must have ``compiled``. Weights are kept if the suite
        keeps them or if ``keep_weights`` is true.
        """
        trial, state = self.trial, self.state
        details: Details = {
            **self._provenance(step_details["compiled"]),
            "flops_per_token": self.flops_per_token,
            "steps": state.step,
            "seconds": state.seconds,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "steps_per_second": state.step / max(state.seconds, 1e-9),
            "world_size": world.size(),
        }
        if world.size() > 1:
            details["equal_shares"] = True
        details["micro_batch"] = trial.batch_shape[0]
        details |= step_details
        if len(state.places) > 1:
            details["places"] = state.places
        if groups := [group for group in state.groups if group["from_step"] < state.step]:
            details |= {"group": len(groups[0]["ids"]), "group_jobs": groups}
        details |= cast(Details, trial.details(state.curve))
        if state.diverged:
            return Record("diverged", {}, state.curve, details, f"loss was not finite at step {state.step}")
        metrics = trial.finish(state.curve)
        if is_first() and (trial.is_kept or keep_weights):
            with explain_os_errors(self.work / KEEP):
                (self.work / KEEP).mkdir(exist_ok=True)
            save_weights(self.work / KEEP / WEIGHTS, trial.model, self.job)
        return Record("finished", metrics, state.curve, details)

    def _provenance(self, is_compiled: bool) -> Details:
        """Details of a record about how its numbers were made: budget, path, seeds, versions, device, threads and code.

        ``mixer_parameters`` and ``budget`` are means over the blocks. ``budget_ratio`` is the quantity that the budget
        limits, summed over all blocks, divided by the sum of their budgets.
        """
        mixers = self.trial.mixers
        details: Details = {
            "model_parameters": count_parameters(self.trial.model),
            "mixer_parameters": statistics.mean(map(count_parameters, mixers)),
            "seeds": {stream: self.job.derived_seed(stream) for stream in self.trial.streams},
            "device": device_name(self.device),
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "git": git_state(),
            **code_details(self.job),
            **optimizer_details(self.trial.model, self.job.training),
            **compute_details(self.job, suite_of(self.job).size),
        }
        if torch.device(self.device).type == "cpu":
            details["processor"] = cpu_kind()
        sequence = MixerSequence.from_mixers(mixers)
        if sequence.blocks:
            details |= {
                "ranks": sequence.ranks,
                "budget": statistics.mean(block.size.rule.target(block) for block in sequence.blocks),
                "budget_ratio": sequence.ratio,
            }
        with self.trial.autocast, as_compiled(is_compiled):
            shape = self.trial.batch_shape
            paths = [mixer.resolve_path(*shape) for mixer in mixers if hasattr(mixer, "resolve_path")]
        if paths:
            details["path"] = ", ".join(dict.fromkeys(paths))
        if problems := dict.fromkeys(filter(None, (getattr(mixer, "kernel_problem", "") for mixer in mixers))):
            details["kernel_problem"] = "; ".join(problems)
        return details


class Stopwatch:
    """A clock whose method ``lap`` returns the seconds since the last call.

    On a GPU, ``lap`` first waits for queued work.
    """

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.last = time.monotonic()

    def lap(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.monotonic()
        seconds, self.last = now - self.last, now
        return seconds


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _memory_bytes(device: str) -> int:
    """Peak memory of this process in bytes: memory that torch allocated on a GPU, or resident memory for ``cpu``."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
