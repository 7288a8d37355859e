"""An experiment: the checked jobs of a grid in every suite, and the method that trains them into one store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import settings_of
from madbench.errors import no_effect
from madbench.execute.base import Listener, OnEvent, Policy, Summary, ignore_event
from madbench.execute.options import RunOptions
from madbench.experiment.notes import note_on_groups
from madbench.files import explain_os_errors
from madbench.jobs import Job, Record
from madbench.rows import TableRows
from madbench.store.html import cell_text, html_table
from madbench.store.runs import Store
from madbench.store.text_table import aligned_lines
from madbench.suites import size_of, suite_of
from madbench.suites.protocol import Protocol
from madbench.trackers import Tracking, open_trackers
from madbench.trackers.options import TrackOptions

if TYPE_CHECKING:
    from madbench.training.options import LoopOptions

_ABOUT_COSTS = "Parameters: the whole model. FLOPs: training of all jobs, without masked positions."
SPEEDS = "speed"  # folder in the results for measurements of this machine


@dataclass(frozen=True, repr=False)
class Experiment(TableRows):
    """A checked plan of training. Call :meth:`execute` to train it.

    Until then nothing is trained, but the corpus of a profile may have been prepared.
    """

    device: str
    results: Path
    notes: list[str] = field(default_factory=list)
    """Notes for the user before training."""

    @property
    def protocol(self) -> Protocol:
        """The protocol of the first row, which is the baseline of comparisons."""
        return self.rows[0].protocol

    @property
    def title(self) -> str:
        """A line on the experiment: its rows, its protocols, and profiles without comparable published numbers."""
        protocols = [self.for_suite(suite).protocol for suite in self.suites]
        parts = [protocol.title for protocol in protocols]
        if any(row.row.changes for row in self.rows):
            parts.insert(0, f"{len(self.grid.rows)} rows, the baseline {self.grid.rows[0].name}")
        unpublished = [protocol.profile_name for protocol in protocols if not protocol.profile.comparable_with_paper]
        if unpublished:
            parts.append(f"do not compare {' and '.join(dict.fromkeys(unpublished))} with published numbers")
        return "; ".join(parts)

    def __repr__(self) -> str:
        count = len(self.jobs)
        return f"<Experiment of {count} job{'' if count == 1 else 's'}: {self.title}>"

    def __str__(self) -> str:
        """The table that a notebook shows, as text: one line per row and suite."""
        costs = self._costs()
        names = [*costs[0]]
        cells = [names, *([cell_text(row[name]) for name in names] for row in costs)]
        lines = aligned_lines(cells, [name not in ("row", "suite") for name in names])
        return "\n".join([self.title, "", *lines, "", _ABOUT_COSTS, *self.notes])

    def _repr_html_(self) -> str:
        return html_table(self._costs(), " ".join([f"{self.title}.", *self.notes]))

    def _costs(self) -> list[dict[str, Any]]:
        """The jobs, parameters and FLOPs of each row of every suite, by heading. Nothing is timed."""
        missing = {job.id for job in self.missing}
        rows = []
        for row in self.rows:
            sizes = [size_of(job) for job in row.jobs]
            parameters = {size.parameters for size in sizes}
            least, most = min(parameters), max(parameters)
            cells = {"row": row.name, "suite": row.protocol.suite.title, "jobs": len(row.jobs)}
            cells["to train"] = sum(job.id in missing for job in row.jobs)
            cells["parameters"] = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            cells["steps"] = sum(size.steps for size in sizes)
            rows.append(cells | {"FLOPs": float(sum(size.flops for size in sizes))})
        return rows

    @property
    def row_names(self) -> dict[str, str]:
        """The name of the row of each job, by the job's id."""
        return {job.id: row.name for row in self.rows for job in row.jobs}

    @contextmanager
    def tracking(self, options: TrackOptions, warn: Callable[[str], None]) -> Iterator[OnEvent]:
        """A context that yields a function, which passes the events of jobs to the tracking services of ``options``.

        Under torchrun only the first process passes events on. ``warn`` is called with a sentence if a service fails.
        Raises ``MissingExtraError`` or ``ConfigError`` for a service that cannot be used.
        """
        from madbench.training.processes import is_first

        if not options.names or not is_first():
            yield ignore_event
            return
        varied = {job.id: settings_of(row.row.changes) for row in self.rows for job in row.jobs}
        naming = replace(options.naming(), rows=self.row_names, varied=varied)
        with Tracking(open_trackers(options.names, self.results, naming), warn) as tracking:
            yield tracking.on_event

    @property
    def missing(self) -> list[Job]:
        """The jobs that have no finished or diverged run in the results folder."""
        store = self._stored()
        return store.missing(self.jobs) if store else self.jobs

    def _stored(self) -> Store | None:
        """The store in the results folder, to be read only. None if the folder has no runs."""
        with explain_os_errors(self.results):
            return Store(self.results) if (self.results / "runs").is_dir() else None

    def check_keep_weights(self) -> None:
        """Raise ``ConfigError`` if ``--keep-weights`` has no effect, because all suites keep the weights anyway."""
        if all(suite.keeps_weights for suite in self.suites):
            titles = " and ".join(suite.title.lower() for suite in self.suites)
            raise no_effect("--keep-weights", because=f"these runs always keep their weights ({titles})")

    def note_on_weights(self) -> str:
        """A note on finished runs of the experiment that are stored without weights.

        Empty if there are no such runs.
        """
        if not (store := self._stored()):
            return ""
        records = store.records(job.id for job in self.jobs).items()
        finished = [job_id for job_id, record in records if record.status == "finished"]
        without_weights = [job_id for job_id in finished if not store.has_weights(job_id)]
        if not without_weights:
            return ""
        runs_text = "1 stored run has" if len(without_weights) == 1 else f"{len(without_weights)} stored runs have"
        return f"{runs_text} no weights and will not be trained again; with --force they are, and keep them"

    def note_on_damage(self) -> str:
        """A note on stored runs of the experiment that are damaged and therefore trained again.

        Empty if there are no such runs.
        """
        store = self._stored()
        damaged = store.damaged(job.id for job in self.jobs) if store else []
        if not damaged:
            return ""
        runs_text = "1 stored run is" if len(damaged) == 1 else f"{len(damaged)} stored runs are"
        return f"{runs_text} damaged and trained again: {damaged[0]}"

    def notes_on_training(self, options: RunOptions, policy: Policy) -> list[str]:
        """Notes on options that have no effect on some of the jobs, and on damaged runs that are trained again.

        Empty if there are no such options and runs. Raises ``ConfigError`` for an option that has no effect on any job.
        """
        notes = [self.note_on_damage()]
        if options.keep_weights:
            self.check_keep_weights()
            if not policy.redo:
                notes.append(self.note_on_weights())
        notes.append(note_on_groups(self.jobs, options.group))
        return [note for note in notes if note]

    def check_processes(self) -> None:
        """Raise ``ConfigError`` if the processes that torchrun started cannot train one of the jobs together."""
        from madbench.training.processes import planned_size

        if (processes := planned_size()) > 1:
            for job in self.jobs:
                suite_of(job).check_processes(job, processes)

    def execute(
        self, on_event: OnEvent = ignore_event, options: RunOptions = RunOptions(), policy: Policy = Policy()
    ) -> Summary:
        """Train the jobs that the store lacks, and return the number of jobs per outcome.

        ``options`` choose where and how jobs train. ``policy`` says which stored runs are replaced, and its
        ``max_failures`` limits the failures of all suites together. If ``on_event`` is a
        :class:`madbench.execute.base.Listener`, it is told the number of slots and threads when training begins.
        """
        from madbench.execute.main_module import check_is_not_imported
        from madbench.text.corpus import Corpus
        from madbench.training.groups import groups_of
        from madbench.training.processes import is_distributed, is_first
        from madbench.training.start import train

        check_is_not_imported()
        options.check(self.device)
        executor = options.executor
        if is_distributed():
            from madbench.execute.torchrun import train_distributed

            self.check_processes()
            executor = functools.partial(train_distributed, device=self.device)
        unfinished = self._unfinished(policy)
        # the folder of a store in which nothing is to be written may be read-only
        store = Store.open(self.results, create=bool(unfinished)) if is_first() else Store(self.results)
        corpora_of_rows = (row.protocol.corpus for row in self.rows)
        corpora = {corpus.digest: corpus.absolute() for corpus in corpora_of_rows if isinstance(corpus, Corpus)}
        training = functools.partial(train, device=self.device, corpora=corpora)
        if executor is not None:
            training = functools.partial(training, options=self._loop_options(options))
            return executor(groups_of(self.jobs, options.group or 1), store, training, on_event=on_event, policy=policy)
        return self._train_here(unfinished, store, training, on_event, policy, options)

    def _loop_options(self, options: RunOptions, threads: int | None = None) -> LoopOptions:
        """The options of the training loop, which stores measured step times in the results folder."""
        return replace(options.for_loop(), measurements=self.results.absolute() / SPEEDS, threads=threads)

    def _unfinished(self, policy: Policy) -> list[Job]:
        """The jobs that are to be trained: those without a run, and those whose stored run the policy replaces."""
        store = self._stored()
        records = store.records(job.id for job in self.jobs) if store else {}
        statuses = {job_id: record.status for job_id, record in records.items()}
        return [job for job in self.jobs if not policy.reason_to_skip(statuses.get(job.id))]

    def _train_here(
        self,
        unfinished: list[Job],
        store: Store,
        training: Callable[..., list[Record]],
        on_event: OnEvent,
        policy: Policy,
        options: RunOptions,
    ) -> Summary:
        """Train the experiment on this machine, in the batches of :func:`madbench.execute.slots.plan_batches`.

        ``unfinished`` are the jobs that are to be trained, and ``training`` is the function that trains a group.
        """
        from madbench.execute.local import run_jobs
        from madbench.execute.slots import choose_threads, plan_batches
        from madbench.training.groups import groups_of, usual_size

        can_group = self.device != "cpu" and options.compile == "never" and policy.time_limit is None
        todo = {job.id for job in unfinished}
        chosen = choose_threads(unfinished, options.threads)
        total = Summary()
        for batch in plan_batches(self.jobs, self.device, options, unfinished, chosen):
            usual = usual_size(len(batch.jobs), batch.slots) if can_group else 1
            groups = groups_of(batch.jobs, options.group or usual)
            failures_left = policy.max_failures and policy.max_failures - total.failed
            if failures_left is not None and failures_left < 1:
                total.left += len(store.missing(batch.jobs))
                continue
            at_once = min(batch.slots, len(groups))
            if isinstance(on_event, Listener) and any(job.id in todo for job in batch.jobs):
                on_event.announce(batch.text(at_once))
            total += run_jobs(
                groups,
                store,
                functools.partial(training, options=self._loop_options(options, chosen.per_job)),
                on_event=on_event,
                policy=replace(policy, max_failures=failures_left),
                slots=at_once,
                threads_per_slot=batch.threads,
                devices=options.gpus,
                passive=chosen.may_meet_others,
            )
        return total
