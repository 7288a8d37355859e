"""Trains stored runs again, and counts how many give the same numbers.

    python -m madbench.bench.again RESULTS [--share 0.1] [--seed 0] [--slots 1] [--group] [--keep FOLDER]

RESULTS is a results folder, or an archive of one. Runs are drawn at random from those that were trained alone and need
no corpus, and are trained on the CPU in as many threads as their records say; with ``--group`` also those that shared a
step with others, together with these. On the same kind of processor and with the same versions numbers are equal to the
last bit. Elsewhere they differ by rounding, which training can make large. With ``--keep`` the new runs stay in a
folder, and the same command goes on where it was interrupted.

The table that is printed, in Markdown, has of each task the number of runs, how many are equal to the last bit, the
largest difference of a metric of the others, and the seconds that they took; below it every run that differs.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from madbench.errors import MadbenchError
from madbench.execute.base import Event
from madbench.execute.local import run_jobs
from madbench.jobs import Record
from madbench.store.archive import unpack
from madbench.store.runs import Run, Store
from madbench.suites import suites
from madbench.training.loop import train


@dataclass(frozen=True)
class Repeat:
    """A stored run, and what the same job gave again."""

    run: Run
    record: Record

    @property
    def difference(self) -> float:
        """:meth:`madbench.jobs.Record.difference` of the two."""
        return self.run.record.difference(self.record)


def draw(store: Store, share: float, seed: int, with_groups: bool = False) -> list[list[Run]]:
    """A share of the runs that need no corpus, drawn at random, in the groups that train together."""
    names = {suite.name for suite in suites().values() if not suite.takes_corpus}
    stored = [run for run in store.runs(with_curves=False) if run.job.suite in names and run.record.status != "failed"]
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in stored:
        count = run.record.details.get("group")
        if count is None:
            groups[run.job.id].append(run)
        elif with_groups:
            groups[f"{count} {replace(run.job, seed=0).id}"].append(run)
    names, chosen = sorted(groups), []
    for i in np.random.default_rng(seed).permutation(len(names)):
        if sum(map(len, chosen)) < share * len(stored):
            chosen.append(groups[names[i]])
    return chosen


def repeat(groups: Sequence[Sequence[Run]], store: Store, slots: int) -> list[Repeat]:
    """Trains the jobs of stored runs, those that ``store`` lacks, in as many threads as their records say."""
    by_threads = defaultdict(list)
    for group in groups:
        by_threads[group[0].record.details.get("threads", 1)].append([run.job for run in group])
    jobs = [job for of_threads in by_threads.values() for group in of_threads for job in group]
    ended = len(jobs) - len(store.missing(jobs))

    def show(event: Event) -> None:
        nonlocal ended
        if event["event"] in ("finished", "failed"):
            ended += 1
            print(f"[{ended}/{len(jobs)}] {event['job'].label} {event['job'].task} {event['event']}", file=sys.stderr)

    for threads, of_threads in by_threads.items():
        training = functools.partial(train, threads=threads, stacking="always")
        run_jobs(of_threads, store, training, show, slots=slots, threads_per_slot=threads)
    return [Repeat(run, store.read(run.job.id).record) for group in groups for run in group]


def text_of(repeats: Iterable[Repeat]) -> str:
    """Counts by task, in Markdown, and the runs that differ."""
    by_task = defaultdict(list)
    for each in repeats:
        by_task[each.run.job.task].append(each)
    lines = ["| task | runs | equal to the last bit | largest difference | seconds |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    for task, own in sorted(by_task.items()):
        differences = [each.difference for each in own]
        seconds = sum(each.record.details.get("seconds", 0) for each in own)
        counts = f"{len(own)} | {differences.count(0)} | {max(differences):.3g}"
        lines.append(f"| {task} | {counts} | {seconds:,.0f} |")
    for each in sorted(itertools.chain(*by_task.values()), key=lambda each: -each.difference):
        if each.difference:
            job, before, after = each.run.job, each.run.record, each.record
            changes = [f"{before.status}, again {after.status}"] * (before.status != after.status)
            numbers = [(name, value, after.metrics.get(name)) for name, value in before.metrics.items()]
            changes += [f"{name} {old}, again {new}" for name, old, new in numbers if old != new]
            lines += ["", f"{job.id} {job.label} {job.task} seed {job.seed}: {changes[0]}"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a results folder, or an archive of one")
    parser.add_argument("--share", type=float, default=0.1, help="of the runs")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--slots", type=int, default=1, help="runs at a time")
    parser.add_argument("--group", action="store_true", help="also runs that shared a step with others")
    parser.add_argument("--keep", type=Path, help="results folder of the new runs; by default none is kept")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            stored = options.results
            if stored.is_file():
                stored = Path(folder, "stored")
                unpack(options.results, Store.open(stored))
            groups = draw(Store.open(stored, create=False), options.share, options.seed, options.group)
            again = Store.open(options.keep or Path(folder, "again"))
            print(text_of(repeat(groups, again, options.slots)))
    except MadbenchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
