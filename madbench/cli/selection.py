"""Which stored runs a verb shows: those of one protocol of either half, by the options that verbs share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from madbench.cli.options import Counting, Fidelity, labels_and_overrides, split_list
from madbench.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import pandas as pd

    from madbench.experiment import Experiment
    from madbench.jobs import ModelConfig
    from madbench.store.runs import Run, Snapshot


@dataclass(frozen=True)
class Selection:
    """What a verb was told of the runs to show. The store is read once, however much of it is asked for."""

    labels: list[str]
    """Those that were named; without any all in the store count."""
    overrides: list[str]
    profile: str
    tasks: list[str] | None
    """None for all, and for the language model too where there is one."""
    fidelity: Fidelity
    budget: Counting
    protocol: str | None
    results: Path

    @classmethod
    def of(
        cls,
        words: list[str] | None,
        profile: str,
        tasks: list[str] | None,
        fidelity: Fidelity,
        budget: Counting,
        protocol: str | None,
        results: Path,
    ) -> Selection:
        """What the options mean; raises ``LabelError`` and ``ConfigError``, for options without effect too."""
        from madbench.labels import expand

        named, overrides = labels_and_overrides(words or [])
        made = cls(expand(named), overrides, profile, split_list(tasks), fidelity, budget, protocol, results)
        made.check()
        return made

    def check(self) -> None:
        """Raises ``ConfigError`` for options without effect on the tasks."""
        from madbench.language_jobs import TASK

        if self.mad_tasks == []:
            profile = ["--profile"] * (self.profile != "quick")
            fidelity = ["--fidelity"] * (self.fidelity != Fidelity.corrected)
            if unused := [*self.overrides, *profile, *fidelity]:
                raise ConfigError(f"{unused[0]}: has no effect on language models; --protocol chooses among those")
        if self.protocol and self.tasks and TASK not in self.tasks:
            raise ConfigError(f"--protocol {self.protocol}: has no effect, the tasks are {', '.join(self.tasks)}")

    @property
    def mad_tasks(self) -> list[str] | None:
        """The MAD tasks among those asked for, None for all."""
        from madbench.language_jobs import TASK

        return self.tasks and [task for task in self.tasks if task != TASK]

    @property
    def has_mad(self) -> bool:
        return self.mad_tasks != []

    @property
    def has_language(self) -> bool:
        from madbench.language_jobs import TASK

        return self.tasks is None or TASK in self.tasks

    @functools.cached_property
    def store(self) -> Snapshot:
        from madbench.cli.stored_runs import opened

        return opened(self.results)

    def language(self, nothing: str, is_enough: Callable[[set[str]], bool] = bool) -> tuple[list[Run], list[str]]:
        """The language-model runs, with their curves, of the one protocol whose labels are enough, and its sentence.

        None where there is no such protocol, or several, unless the language model or a protocol was asked for: then
        that is a ``MadbenchError``, which says ``nothing`` where there is none.
        """
        from madbench.analysis.language_runs import by_protocol, describe, language_runs, only_protocol, protocol_list

        stored = [run for run in language_runs(self.store) if not self.labels or run.job.label in self.labels]
        groups = by_protocol(run for run in stored if run.job.counting == self.budget.value)
        shared = {
            found: runs
            for found, runs in groups.items()
            if is_enough({run.job.label for run in runs}) and self.protocol in (None, found.id)
        }
        runs = [run for of_protocol in shared.values() for run in of_protocol]
        is_asked = self.tasks is not None or self.protocol is not None
        if is_asked and not runs:
            has = f"; it has:\n{protocol_list(stored)}" if stored else ""
            raise StoreError(f"{self.results}: {nothing}{has}")
        if is_asked:
            only_protocol(runs)
        elif len(shared) > 1:
            found = protocol_list(runs)
            print(
                f"warning: language models are left out; choose a protocol with --protocol ID:\n{found}",
                file=sys.stderr,
            )
        if len(shared) != 1:
            return [], []
        ((found, runs),) = shared.items()
        return [self.store.read(run.job.id) for run in runs], [f"Language model: {describe(found, runs[0])}."]

    def mad_runs(self) -> tuple[pd.DataFrame, list[str]]:
        """The frame of :func:`madbench.analysis.scores.collect` for :meth:`experiment`, and what its runs share."""
        from madbench.analysis.scores import collect
        from madbench.experiment import accuracy_meaning, protocol_sentences

        made = self.experiment()
        collected = collect(made.jobs, self.store)
        return collected, [f"MAD: {accuracy_meaning(made.fidelity)}.", *protocol_sentences(made, collected)]

    def experiment(self) -> Experiment:
        """The experiment of the labels, as far as it has begun.

        Names on stderr every damaged run, and every label that is left out because it does not fit. Raises
        ``StoreError`` where nothing of the protocol is stored and ``ConfigError`` where it is stored in two precisions.
        """
        from madbench.experiment import prepare
        from madbench.jobs import Job, Precision
        from madbench.suites.plan import task_settings
        from madbench.suites.profile import load_profile
        from madbench.tasks import TASK_NAMES

        named, results = self.labels, self.results
        jobs = self.store.jobs()
        stored = {job_id: job for job_id, job in jobs.items() if isinstance(job, Job)}
        for problem in self.store.problems:
            print(f"warning: {problem}", file=sys.stderr)
        if not stored:
            instead = "; its language models are in madbench lm table" if jobs else ""
            raise StoreError(f"{results}: no runs of MAD tasks yet; madbench run G-cg-q-12o makes some{instead}")
        fidelity, counting = self.fidelity.value, self.budget.value
        of_protocol = [job for job in stored.values() if (job.fidelity, job.counting) == (fidelity, counting)]
        labels = named or in_grammar_order({job.label for job in of_protocol})
        precisions = {job.training.precision for job in of_protocol}
        choices = {
            "profile": self.profile,
            "overrides": self.overrides,
            "tasks": self.mad_tasks,
            "seeds": sorted({job.seed for job in stored.values()}),
            "fidelity": fidelity,
            "counting": counting,
            "device": "cpu",
            "results": results,
        }
        if not named:
            loaded = load_profile(self.profile, self.overrides)
            settings = {task: task_settings(task, loaded) for task in self.mad_tasks or TASK_NAMES}
            labels = [label for label in labels if _fits(label, loaded.model, settings, counting)]
        tried = [precision for precision in get_args(Precision) if precision in precisions or not of_protocol]
        candidates = [prepare(labels, **choices, precision=precision) for precision in tried if labels]
        present = {made.precision: made for made in candidates if any(job.id in stored for job in made.jobs)}
        if len(present) > 1:
            raise ConfigError(
                f"{results}: runs in float32 and in bfloat16; add precision=float32 or precision=bfloat16"
            )
        if not present:
            raise StoreError(
                f"{results}: none of its {len(stored)} runs belongs to profile {self.profile}, fidelity {fidelity}, "
                f"budget {counting}; madbench ls runs shows what is there"
            )
        return next(iter(present.values())).begun(stored, all_labels=bool(named))


def _fits(label: str, model: ModelConfig, settings: Mapping[str, Sequence[dict]], counting: str) -> bool:
    """Whether the label has ranks on every task; it may be stored for one task, or for other sizes, alone."""
    from madbench.errors import BudgetError
    from madbench.labels import parse
    from madbench.suites.plan import check_budgets

    try:
        check_budgets(parse(label), model, settings, counting)
    except BudgetError as error:
        print(f"warning: {label} is left out; {error}", file=sys.stderr)
        return False
    return True


def in_grammar_order(labels: set[str]) -> list[str]:
    from madbench.labels import all_labels

    position = {label: i for i, label in enumerate(all_labels())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))
