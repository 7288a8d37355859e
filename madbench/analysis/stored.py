"""Stored runs: which of a store are shown (:class:`Selection`), and what they gave (:class:`Results`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from madbench.config import key_of
from madbench.errors import BudgetError, ConfigError, LabelError, StoreError
from madbench.experiment import Experiment, PlannedRow, prepare
from madbench.grid import LANGUAGE_MODEL, Grid, Row, suite_of_override
from madbench.jobs import Budget, Fidelity, Job, Precision
from madbench.labels import all_labels, family_identity, family_of
from madbench.store.runs import Run, Snapshot, Store
from madbench.suites import LANGUAGE, MAD, Suite
from madbench.suites.language import TASK
from madbench.suites.mad import check_budget
from madbench.tasks import MAD_TASKS, check_task

if TYPE_CHECKING:
    import pandas as pd


def in_grammar_order(labels: Iterable[str]) -> list[str]:
    """S/R/G labels in the order of their grammar, then those of other families by name."""
    position = {label: i for i, label in enumerate(all_labels())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))


@dataclass(frozen=True)
class Results:
    """What the jobs of an experiment gave, as far as ``store`` has it; read once, however much of it is asked for.

    Of the MAD suite a row shows all its jobs, whether they are stored or not; of the language suite those with a result.
    """

    experiment: Experiment
    store: Store

    @functools.cached_property
    def collected(self) -> pd.DataFrame:
        """The MAD jobs (:func:`madbench.analysis.scores.collect`), once for each row that has them, under its name."""
        from madbench.analysis.scores import collect

        pairs = [(job, row.name) for row in self.rows(MAD) for job in row.jobs]
        return collect([job for job, _ in pairs], self.store, [name for _, name in pairs])

    @functools.cached_property
    def runs(self) -> dict[str, list[Run]]:
        """The finished and diverged language models with their curves, by the name of the row; no row without one."""
        rows = self.rows(LANGUAGE)
        records = self.store.records({job.id for row in rows for job in row.jobs})
        done = {job_id for job_id, record in records.items() if record.status != "failed"}
        found = {row.name: [self.store.read(job.id) for job in row.jobs if job.id in done] for row in rows}
        return {name: runs for name, runs in found.items() if runs}

    @property
    def language_runs(self) -> list[Run]:
        """Those of all rows, in their order."""
        return [run for runs in self.runs.values() for run in runs]

    @functools.cached_property
    def setting_scores(self) -> pd.DataFrame:
        """Scores of every setting of the MAD tasks (:func:`madbench.analysis.scores.setting_scores`)."""
        from madbench.analysis.scores import no_scores, setting_scores

        return setting_scores(self.collected) if self.rows(MAD) else no_scores().assign(setting="")

    @functools.cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of all rows, suite by suite (:mod:`madbench.analysis.scores`); ``label`` is the row's name."""
        import pandas as pd

        from madbench.analysis.scores import language_scores, mad_scores, no_scores

        frames = [mad_scores(self.collected)] if self.rows(MAD) else []
        if self.runs:
            names = [name for name, runs in self.runs.items() for _ in runs]
            frames.append(language_scores(self.language_runs, names=names))
        return pd.concat(frames, ignore_index=True) if frames else no_scores()

    def rows(self, suite: Suite) -> list[PlannedRow]:
        """The rows of one suite."""
        return self.experiment.of(suite).rows

    def of(self, suite: Suite) -> Results:
        """The part of one suite."""
        return Results(self.experiment.of(suite), self.store)

    def has(self, suite: Suite) -> bool:
        """Whether there is a row of the suite; of the language suite, one with a result."""
        return bool(self.runs if suite is LANGUAGE else self.rows(suite))

    @property
    def labels(self) -> list[str]:
        """The labels of all rows, each once, in their order."""
        return self.experiment.labels

    def sentences(self, suite: Suite | None = None) -> list[str]:
        """What the runs of one suite share, or those of each."""
        from madbench.analysis.captions import protocol_sentences

        suites = (MAD, LANGUAGE) if suite is None else (suite,)
        return [sentence for one in suites if self.has(one) for sentence in protocol_sentences(self, one)]


@dataclass(frozen=True)
class Selection:
    """What a user asked to see of a store: one protocol of every suite, as far as it is stored."""

    labels: Sequence[str] = ()
    """Canonical labels; without any all in the store count."""
    overrides: Sequence[str] = ()
    """Changes to the profile, as KEY=VALUE; ``language_model=PRESET`` and ``language_model.KEY=VALUE`` to the preset."""
    profile: str = "quick"
    tasks: Sequence[str] | None = None
    """MAD tasks and language_model; None for the six, and for the language model too where one protocol is stored."""
    fidelity: Fidelity = "corrected"
    budget: Budget | None = "strict"
    """None for any, which only language models allow."""
    protocol: str | None = None
    """Id of a protocol of language models."""
    corpus: str | None = None
    """Name, folder or digest of the language models' corpus."""
    results: Path = Path("results")
    opened: Callable[[Path], Store] = functools.partial(Snapshot.open, create=False)
    """Opens the store, once it is needed."""
    warn: Callable[[str], None] = field(default=lambda _: None)
    """Told of damaged runs and of labels that are left out."""

    def __post_init__(self):
        for task in self.mad_tasks or ():
            check_task(task)
        if self.mad_tasks == []:
            unused = [word for word in self.overrides if suite_of_override(word) == MAD.name]
            unused += ["--profile"] * (self.profile != "quick") + ["--fidelity"] * (self.fidelity != "corrected")
            if unused:
                raise ConfigError(f"{unused[0]}: has no effect on language models; --protocol chooses among those")
        if not self.has_language:
            chosen = {f"--protocol {self.protocol}": self.protocol, f"--corpus {self.corpus}": self.corpus}
            for word in [*(name for name, value in chosen.items() if value), *self._of_preset]:
                raise ConfigError(f"{word}: has no effect, the tasks are {', '.join(self.tasks)}")
        if self.protocol and (self.corpus or self._of_preset):
            raise ConfigError(
                f"--protocol {self.protocol}: other choices have no effect beside it; give one or the other"
            )

    @property
    def mad_tasks(self) -> list[str] | None:
        """The MAD tasks among those asked for, None for the six."""
        return None if self.tasks is None else [task for task in self.tasks if task != TASK]

    @property
    def has_mad(self) -> bool:
        return self.mad_tasks != []

    @property
    def has_language(self) -> bool:
        return self.tasks is None or TASK in self.tasks

    @property
    def _of_preset(self) -> list[str]:
        return [word for word in self.overrides if suite_of_override(word) == LANGUAGE.name]

    @functools.cached_property
    def store(self) -> Store:
        """The store, opened at the first question; its damaged runs are warned of."""
        store = self.opened(self.results)
        store.jobs()
        for problem in store.problems:
            self.warn(problem)
        return store

    @functools.cached_property
    def jobs(self) -> dict[str, Job]:
        """The stored jobs by id, of labels that this installation can train, each as it would be trained now."""
        found = self.store.jobs()
        current: dict[str, str] = {}
        for label in dict.fromkeys(job.label for job in found.values()):
            try:
                current[label] = family_identity(family_of(label))
            except LabelError as error:
                if not self.labels or label in self.labels:
                    self.warn(f"{label} is left out; {str(error).splitlines()[-1].strip()}")
        return {job_id: job for job_id, job in found.items() if current.get(job.label) == job.family}

    def results_of(self, rows: Sequence[PlannedRow]) -> Results:
        """What the jobs of these rows gave."""
        labels = tuple(dict.fromkeys(row.row for row in rows))
        budget = self.budget or "strict"
        grid = Grid(
            labels, self.tasks and tuple(self.tasks), (), self.profile, self.fidelity, budget, tuple(self.overrides)
        )
        return Results(Experiment(grid, list(rows), "cpu", self.results), self.store)

    def select(
        self, nothing: str = "none of its language-model runs is as asked", is_enough: Callable[[set[str]], bool] = bool
    ) -> Results:
        """The rows of both suites. A suite that is neither stored nor asked for is left out.

        Raises what :meth:`mad` and :meth:`language` do.
        """
        has_mad = self.has_mad and (self.tasks is not None or self._stored(MAD) or not self._stored(LANGUAGE))
        rows = self.mad() if has_mad else []
        rows = [*rows, *(self.language(nothing, is_enough) if self.has_language else [])]
        if not rows:
            raise StoreError(f"{self.results}: no language-model runs of one protocol; choose one with --protocol ID")
        return self.results_of(rows)

    def _stored(self, suite: Suite) -> list[Job]:
        return [job for job in self.jobs.values() if job.suite == suite.name]

    def mad(self) -> list[PlannedRow]:
        """The rows of the labels on MAD tasks, as far as they have begun, with the jobs that a run of them trains.

        Warns of every label that is left out because it does not fit. Raises ``StoreError`` where nothing of the
        protocol is stored, with the protocols that are, and ``ConfigError`` where it is stored in two precisions.
        """
        stored = self._stored(MAD)
        if not stored:
            instead = "; its language models are in madbench lm table" if self.jobs else ""
            raise StoreError(f"{self.results}: no runs of MAD tasks yet; madbench run G-cg-q-12o makes some{instead}")
        asked = (self.fidelity, self.budget or "strict")
        alike = [job for job in stored if (job.fidelity, job.budget) == asked]
        labels = list(self.labels) or self._fitting(in_grammar_order({job.label for job in alike}))
        own = tuple(word for word in self.overrides if suite_of_override(word) == MAD.name)
        tasks = tuple(self.mad_tasks or MAD_TASKS)
        seeds = tuple(sorted({job.seed for job in stored}))
        grid = Grid(tuple(map(Row, labels)), tasks, seeds, self.profile, *asked, own)
        precisions = {job.training.precision for job in alike} or set(get_args(Precision))
        present = {}
        for precision in get_args(Precision):
            if labels and precision in precisions:
                made = prepare(grid, device="cpu", results=self.results, precision=precision)
                if any(job.id in self.jobs for job in made.jobs):
                    present[made.protocol.precision] = made
        if len(present) > 1:
            raise ConfigError(
                f"{self.results}: runs in float32 and in bfloat16; add precision=float32 or precision=bfloat16"
            )
        if not present:
            raise StoreError(self._no_mad_runs(stored))
        return _begun(next(iter(present.values())).rows, self.jobs, all_labels=bool(self.labels))

    def _fitting(self, labels: Sequence[str]) -> list[str]:
        """The labels that have ranks on every task; one may be stored for one task, or for other sizes, alone."""
        profile = MAD.Profile.load(
            self.profile, [word for word in self.overrides if suite_of_override(word) == MAD.name]
        )
        model, fitting = profile.model_config(), []
        lengths = {
            setting["seq_len"]: task
            for task in reversed(self.mad_tasks or MAD_TASKS)
            for setting in reversed(profile.settings(task))
        }
        for label in labels:
            try:
                mixer = profile.mixer_settings(label)
                for seq_len, task in lengths.items():
                    check_budget(label, model, mixer, seq_len, self.budget or "strict", task)
                fitting.append(label)
            except BudgetError as error:
                self.warn(f"{label} is left out; {error}")
            except ConfigError:  # a setting that this family does not have, so no run of the label has it
                continue
        return fitting

    def _no_mad_runs(self, stored: Sequence[Job]) -> str:
        from madbench.analysis.protocols import mad_protocol_list

        return (
            f"{self.results}: none of its {len(stored)} runs belongs to profile {self.profile}"
            f"{' with ' if self.overrides else ''}{' '.join(self.overrides)}, fidelity {self.fidelity}, budget "
            f"{self.budget or 'strict'}; madbench table shows one of these:\n{mad_protocol_list(stored)}"
        )

    def language(
        self, nothing: str = "none of its language-model runs is as asked", is_enough: Callable[[set[str]], bool] = bool
    ) -> list[PlannedRow]:
        """The rows of the language models of the one protocol whose labels are enough.

        None where there is no such protocol, or several, unless the language model was asked for: then that is a
        ``MadbenchError``, which says ``nothing`` where there is none, and lists the protocols that are stored.
        """
        from madbench.analysis.protocols import by_protocol, check_one_protocol, language_protocol, protocol_list

        found = self.store.runs(with_curves=False, suite=LANGUAGE.name)
        stored = [run for run in found if run.record.status != "failed" and run.job.id in self.jobs]
        matches = self._language_tests()
        groups = by_protocol(run for run in stored if all(test(run) for test in matches))
        groups = {name: runs for name, runs in groups.items() if is_enough({run.job.label for run in runs})}
        chosen = [run for runs in groups.values() for run in runs]
        is_asked = self.tasks is not None or self.protocol or self.corpus or self._of_preset
        if is_asked and not stored:
            raise StoreError(f"{self.results}: no language-model runs yet; madbench lm G-cg-q-12o makes some")
        if is_asked and not chosen:
            raise StoreError(f"{self.results}: {nothing}; it has:\n{protocol_list(stored)}")
        if is_asked:
            check_one_protocol(chosen)
        elif len(groups) > 1:
            self.warn(f"language models are left out; choose a protocol with --protocol ID:\n{protocol_list(chosen)}")
        if len(groups) != 1:
            return []
        jobs: dict[str, list[Job]] = {}
        for run in chosen:
            jobs.setdefault(run.job.label, []).append(run.job)
        protocol = language_protocol(chosen[0])
        labels = [label for label in self.labels if label in jobs] if self.labels else in_grammar_order(jobs)
        for label in self.labels if not self.has_mad else ():
            if label not in jobs:
                self.warn(f"no run of {label} is as asked")
        return [PlannedRow(Row(label), protocol, sorted(jobs[label], key=lambda job: job.seed)) for label in labels]

    def _language_tests(self) -> list[Callable[[Run], bool]]:
        """What a language-model run has to meet."""
        from madbench.analysis.protocols import language_protocol_id, profile_changes

        tests: list[Callable[[Run], Any]] = []
        if self.labels:
            tests.append(lambda run: run.job.label in self.labels)
        if self.budget is not None:
            tests.append(lambda run: run.job.budget == self.budget)
        if self.protocol is not None:
            tests.append(lambda run: language_protocol_id(run.job) == self.protocol)
        if self.corpus is not None:
            name = Path(self.corpus).name
            tests.append(
                lambda run: (
                    run.record.details.get("corpus", {}).get("name", run.job.setting["corpus"]) == name
                    or run.job.setting["corpus"].startswith(self.corpus)
                )
            )
        if self._of_preset:
            preset = next((w.partition("=")[2] for w in self._of_preset if key_of(w) == "language_model"), "tiny")
            own = [word.removeprefix(LANGUAGE_MODEL) for word in self._of_preset if word.startswith(LANGUAGE_MODEL)]
            wanted = LANGUAGE.Profile.load(preset, own)
            tests.append(
                lambda run: (
                    wanted.precision in ("auto", run.job.training.precision) and not profile_changes(run.job, wanted)
                )
            )
        return tests


def _begun(rows: Sequence[PlannedRow], stored: Collection[str], all_labels: bool) -> list[PlannedRow]:
    """Only rows and seeds of which at least one job is stored; with ``all_labels``, rows without any stay."""
    pairs = {(row.name, job.seed) for row in rows for job in row.jobs if job.id in stored}
    names, seeds = ({pair[i] for pair in pairs} for i in range(2))
    found = []
    for row in rows:
        keep_all = all_labels and row.name not in names
        jobs = [job for job in row.jobs if (row.name, job.seed) in pairs or (keep_all and job.seed in seeds)]
        if jobs:
            found.append(replace(row, jobs=jobs))
    return found
