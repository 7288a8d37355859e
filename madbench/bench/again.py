"""Repeated training of stored runs, to test if they give the same numbers, for ``madbench again``.

Runs are drawn at random and trained on the CPU, with the number of threads in their records. Language models are
included if their corpus is given. Runs that were trained together in one step are drawn together and trained together
again. Records of earlier versions have the number of runs in a group but not the ids of their jobs. Such runs are put
in groups by consecutive seeds. If the seeds of a label do not fill its groups, the label is left out.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from madbench.errors import MadbenchError, UntrustedCodeError
from madbench.execute.base import OnEvent, ignore_event, reason
from madbench.execute.local import run_jobs
from madbench.execute.products import DETAIL
from madbench.jobs import Job, Record
from madbench.mixers.ops import products
from madbench.store.format import read_run
from madbench.store.reading import Run
from madbench.store.runs import Store
from madbench.suites import size_of, suite_of
from madbench.text.corpus import Corpus
from madbench.training.loop import train
from madbench.training.options import LoopOptions

ONEDNN_IS_FASTER = products.onednn_is_faster
"""The function that chooses oneDNN or MKL for large matrix products in this process. :func:`train_with` replaces it.

``torch.backends.mkldnn.enabled`` is no alternative, because it also switches off other operations.
"""

MEASURED = frozenset({"seconds", "tokens_per_second", "memory_bytes", "mfu"})
"""Columns of curves that depend on the machine, and are not compared."""


@dataclass(frozen=True)
class RepeatedRun:
    """A stored run, and the record of a second training of its job."""

    run: Run
    record: Record

    @property
    def difference(self) -> float:
        """The largest absolute difference between the metrics of the two records.

        See :meth:`madbench.jobs.Record.difference` for records with other metrics or NaN.
        """
        return self.run.record.difference(self.record)

    @property
    def change(self) -> str:
        """The first difference between the two records as text, such as ``accuracy 0.5, again 0.25``.

        Empty if the records have equal statuses, metrics and curves. Columns of a curve that depend on the machine
        (``MEASURED``) are not compared.
        """
        old_record, new_record = self.run.record, self.record
        if old_record.status != new_record.status:
            text = f"{old_record.status}, again {new_record.status}"
            return text if new_record.status == "finished" else f"{text}: {reason(new_record)}"
        if change := _first_change(old_record.metrics, new_record.metrics):
            return change
        old_curve, new_curve = ([_without_measured(row) for row in each.curve] for each in (old_record, new_record))
        for i, (old, new) in enumerate(zip(old_curve, new_curve), 1):
            if change := _first_change(old, new):
                return f"row {i} of the curve: {change}"
        lengths = len(old_curve), len(new_curve)
        return "" if len(set(lengths)) == 1 else "a curve of {} rows, again {}".format(*lengths)

    @property
    def processors(self) -> tuple[str, str]:
        """The processors of the first and the second training, as recorded, or ``not recorded``."""
        return self._both("processor")

    @property
    def products(self) -> tuple[str, str]:
        """The libraries that computed matrix products in the first and the second training, as recorded.

        An example is ``MKL`` (:func:`madbench.execute.products.product_library`). ``not recorded`` for an old record.
        """
        return self._both(DETAIL)

    @property
    def machines(self) -> str:
        """A clause on how the machines of both trainings differ, such as ``; processor A, again B``.

        It names the processors and the libraries of matrix products that differ. Empty if neither differs.
        """
        both = {"processor": self.processors, "matrix products": self.products}
        return "".join(f"; {what} {old}, again {new}" for what, (old, new) in both.items() if old != new)

    def _both(self, detail: Literal["processor", "products"]) -> tuple[str, str]:
        old, new = (record.details.get(detail, "not recorded") for record in (self.run.record, self.record))
        return old, new


@dataclass(frozen=True)
class RepeatableRuns:
    """The stored runs that can be trained again, in groups that train together, and counts of the runs that cannot."""

    groups: list[list[Run]]
    left_out: Counter[str]
    """Counts of runs that are left out, by reason."""

    @classmethod
    def from_store(cls, store: Store, alone: bool = False, corpora: Collection[str] = ()) -> Self:
        """Find the repeatable runs of a store.

        ``alone`` is True to leave out runs that shared a step with other runs. ``corpora`` has the digests of the
        available corpora. Runs on other corpora are left out.
        """
        by_step: dict[str, list[Run]] = defaultdict(list)
        left_out: Counter[str] = Counter()
        problems: dict[str, str] = {}
        for run in store.runs(with_curves=False):
            count = run.record.details.get("group")
            corpus = suite_of(run.job).corpus_of(run.job)
            if corpus and corpus.digest not in corpora:
                left_out["their corpus was not given"] += 1
            elif run.record.status == "failed":
                left_out["failed"] += 1
            elif problem := _problem_of(run.job, problems):
                left_out[problem] += 1
            elif count and alone:
                left_out["shared a step with others"] += 1
            else:
                shape = f"{count} {replace(run.job, seed=0).id}" if count else run.job.id
                by_step[" ".join(_ids(run)) or shape].append(run)
        if store.problems:
            left_out["cannot be read"] = len(store.problems)
        groups = []
        for _, runs in sorted(by_step.items()):
            size, ids = runs[0].record.details.get("group", 1), _ids(runs[0])
            if ids and ({*ids} != {run.job.id for run in runs} or not all(_kept_group(run, runs) for run in runs)):
                left_out["jobs that shared the step are not stored, or left it midway"] += len(runs)
            elif ids:
                groups.append(sorted(runs, key=lambda run: ids.index(run.job.id)))
            elif len(runs) % size:
                left_out["seeds that shared the step cannot be told"] += len(runs)
            else:
                in_order = sorted(runs, key=lambda run: run.job.seed)
                groups += [in_order[i : i + size] for i in range(0, len(runs), size)]
        return cls(groups, left_out)

    @property
    def count(self) -> int:
        """The number of repeatable runs, over all groups."""
        return sum(map(len, self.groups))

    @property
    def text(self) -> str:
        """The counts in words: ``Drawn from 440 of 480 stored runs. Left out: 40 (failed).``"""
        others = "; ".join(f"{count} ({reason})" for reason, count in sorted(self.left_out.items()))
        drawn_text = f"Drawn from {self.count:,} of {self.count + self.left_out.total():,} stored runs."
        return drawn_text + (f" Left out: {others}." if others else "")

    def draw(self, share: float, seed: int) -> list[list[Run]]:
        """Draw groups at random, by ``seed``, until they have at least ``share`` (0 to 1) of the repeatable runs."""
        chosen_groups: list[list[Run]] = []
        for i in np.random.default_rng(seed).permutation(len(self.groups)):
            if sum(map(len, chosen_groups)) < share * self.count:
                chosen_groups.append(self.groups[i])
        return chosen_groups


def _first_change(old: Mapping[str, float], new: Mapping[str, float]) -> str:
    """The first number that differs between two rows, as text: ``accuracy 0.5, again 0.25``.

    A number that only one of the rows has differs too. NaN equals NaN. Empty if no number differs.
    """
    for name in (*old, *(name for name in new if name not in old)):
        pair = old.get(name), new.get(name)
        if pair[0] != pair[1] and not all(number is not None and math.isnan(number) for number in pair):
            return f"{name} {pair[0]}, again {pair[1]}"
    return ""


def _without_measured(row: Mapping[str, float]) -> dict[str, float]:
    return {name: number for name, number in row.items() if name not in MEASURED}


def _with_curve(run: Run) -> Run:
    job, record, _ = read_run(run.folder)
    return Run(job, record, run.runs)


def _problem_of(job: Job, known: dict[str, str]) -> str:
    """The reason why a model for ``job`` cannot be built here. Empty if it can.

    The reason is looked up in ``known`` by the job's label, and added to it if it is not there.
    """
    if job.label not in known:
        try:
            size_of(job)
            known[job.label] = ""
        except UntrustedCodeError:
            known[job.label] = "code of a module: name the label with --trust"
        except MadbenchError:
            known[job.label] = "cannot be built here"
    return known[job.label]


def _ids(run: Run) -> list[str]:
    """The ids of the jobs that shared the first step of a run, including its own id.

    Empty if the run did not share steps, or if its record does not list the ids.
    """
    history = run.record.details.get("group_jobs")
    return history[0]["ids"] if history else []


def _kept_group(run: Run, group: Sequence[Run]) -> bool:
    """True if ``run`` shared each of its steps with all runs of ``group`` that were still training at this step.

    A run trains for the number of steps in its record.
    """
    steps = {run_of_group.job.id: run_of_group.record.details.get("steps", 0) for run_of_group in group}
    return all(
        part["ids"] == [id for id in _ids(run) if steps[id] > part.get("from_step", 0)]
        for part in run.record.details["group_jobs"]
    )


def repeat(
    groups: Sequence[Sequence[Run]],
    store: Store,
    slots: int,
    corpora: Mapping[str, Corpus] | None = None,
    on_event: OnEvent = ignore_event,
) -> list[RepeatedRun]:
    """Train the jobs of the stored runs in ``groups`` again and return each run with its new record.

    The new runs are written to ``store``, which is not the store of ``groups``. A job whose run is already in ``store``
    is not trained. Each group trains together, with the number of threads in its records. Runs whose records name no
    library of matrix products were trained with MKL, so MKL is used for them. ``slots`` groups train at a time.
    ``corpora`` has the corpora of language models, by digest.
    """
    by_machine = defaultdict(list)
    for group in groups:
        details = group[0].record.details
        by_machine[details.get("threads", 1), DETAIL in details].append([run.job for run in group])
    for (threads, uses_onednn), jobs in by_machine.items():
        options = LoopOptions(threads=threads, stacking="always")
        training = functools.partial(train_with, uses_onednn, corpora=corpora, options=options)
        run_jobs(jobs, store, training, on_event, slots=slots, threads_per_slot=threads)
    return [RepeatedRun(_with_curve(run), store.read(run.job.id).record) for group in groups for run in group]


def train_with(uses_onednn: bool, *arguments: Any, **further: Any) -> list[Record]:
    """Train in a worker, with or without oneDNN for large matrix products. The records name the library that was used.

    The other arguments and the result are those of :func:`madbench.training.loop.train`.
    """
    vars(products)["onednn_is_faster"] = ONEDNN_IS_FASTER if uses_onednn else lambda: False
    return train(*arguments, **further)


def rows_by_task(repeats: Iterable[RepeatedRun]) -> list[dict[str, Any]]:
    """The runs that were trained again, summed up in one row per task, sorted by task.

    A row has the number of ``runs``, the number of ``equal`` runs, the ``largest_difference`` between metrics, and the
    ``seconds`` of the second training. A run is equal if all metrics and curves are equal to the last bit. The largest
    difference is None if two records do not have the same status and metrics, or if a metric is NaN in only one.
    """
    by_task: dict[str, list[RepeatedRun]] = defaultdict(list)
    for repeat in repeats:
        by_task[repeat.run.job.task].append(repeat)
    rows = []
    for task, of_task in sorted(by_task.items()):
        differences = [repeat.difference for repeat in of_task]
        largest = max(differences)
        row = {"task": task, "runs": len(of_task), "equal": sum(not repeat.change for repeat in of_task)}
        row |= {"largest_difference": largest if math.isfinite(largest) else None}
        rows.append(row | {"seconds": sum(repeat.record.details.get("seconds", 0.0) for repeat in of_task)})
    return rows


if __name__ == "__main__":
    print("python -m madbench.bench.again is now madbench again ARCHIVE", file=sys.stderr)
    sys.exit(2)
