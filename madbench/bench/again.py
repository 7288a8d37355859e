"""Train stored runs again, and count the runs that give the same numbers.

    python -m madbench.bench.again RESULTS [--share 0.1] [--seed 0] [--slots 1] [--alone] [--keep FOLDER]
        [--pairs FILE] [--corpus FOLDER]

RESULTS is a results folder, or an archive of one. Runs are drawn at random and trained on the CPU, with the number of
threads in their records. Language models are among them if ``--corpus`` has the tokens they were trained on. Runs that
shared a step are drawn together and share a step again; with ``--alone`` they are left out. Earlier records have the
number of runs in a group but not their ids. Groups are then formed from consecutive seeds, and a label whose seeds do
not fill its groups is left out.

On the same kind of processor and with the same versions, numbers are equal to the last bit. Elsewhere they differ by
rounding, which training can amplify. With ``--keep`` the new runs stay in a folder, and the same command resumes where
it was interrupted.

The printed Markdown table has for each task: the number of runs, the number of runs equal to the last bit, the largest
difference of a metric, and the seconds of training. Below it are the number of available runs and every run that
differs.

Records have digests of the code that trained them (:mod:`madbench.suites.code`). A pair has the digest of a stored
run's code and of the installed code. It is written to ``madbench/identity/known_equal.json`` if all runs with the pair
are equal to the last bit. Tables then no longer mark these runs as trained by other code.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from madbench.errors import MadbenchError, StoreError
from madbench.execute.base import Event
from madbench.execute.local import run_jobs
from madbench.files import write_atomically
from madbench.identity.package import KNOWN_EQUAL, Pairs, known_pairs
from madbench.jobs import Record
from madbench.store.archive import unpack
from madbench.store.runs import Run, Store
from madbench.suites import suite_of
from madbench.text.corpus import Corpus, open_corpus
from madbench.training.loop import train


@dataclass(frozen=True)
class Repeat:
    """A stored run, and the record of training its job again."""

    run: Run
    record: Record

    @property
    def difference(self) -> float:
        """The :meth:`madbench.jobs.Record.difference` between both records."""
        return self.run.record.difference(self.record)


@dataclass(frozen=True)
class Repeatable:
    """The stored runs that can be repeated, in groups that train together, and the counts of other runs."""

    groups: list[list[Run]]
    left_out: Counter[str]
    """Counts of runs that are left out, by reason."""

    @classmethod
    def from_store(cls, store: Store, alone: bool = False, corpora: Collection[str] = ()) -> Self:
        """The repeatable runs of a store. With ``alone``, runs that shared a step are left out.

        ``corpora`` has the digests of the corpora that are at hand.
        """
        by_step: dict[str, list[Run]] = defaultdict(list)
        left_out: Counter[str] = Counter()
        for run in store.runs(with_curves=False):
            count = run.record.details.get("group")
            corpus = suite_of(run.job).corpus_of(run.job)
            if corpus and corpus.digest not in corpora:
                left_out["their corpus was not given"] += 1
            elif run.record.status == "failed":
                left_out["failed"] += 1
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
        """The number of runs in all groups."""
        return sum(map(len, self.groups))

    @property
    def text(self) -> str:
        """``Drawn from 440 of 480 runs. Left out: 40 failed.``"""
        others = "; ".join(f"{count} ({reason})" for reason, count in sorted(self.left_out.items()))
        drawn = f"Drawn from {self.count:,} of {self.count + self.left_out.total():,} stored runs."
        return drawn + (f" Left out: {others}." if others else "")

    def draw(self, share: float, seed: int) -> list[list[Run]]:
        """Draw groups at random until they have the given share of the runs."""
        chosen: list[list[Run]] = []
        for i in np.random.default_rng(seed).permutation(len(self.groups)):
            if sum(map(len, chosen)) < share * self.count:
                chosen.append(self.groups[i])
        return chosen


def _ids(run: Run) -> list[str]:
    """The ids of the jobs that shared the first step of a run.

    Empty if no jobs did, or if its record does not list them.
    """
    history = run.record.details.get("group_jobs") or [{"ids": []}]
    return history[0]["ids"]


def _kept_group(run: Run, group: Sequence[Run]) -> bool:
    """True if a run shared all its steps with the unfinished runs of its group."""
    steps = {each.job.id: each.record.details.get("steps", 0) for each in group}
    return all(
        part["ids"] == [id for id in _ids(run) if steps[id] > part.get("from_step", 0)]
        for part in run.record.details["group_jobs"]
    )


def repeat(
    groups: Sequence[Sequence[Run]], store: Store, slots: int, corpora: Mapping[str, Corpus] | None = None
) -> list[Repeat]:
    """Train the jobs of stored runs that ``store`` lacks, with the number of threads in their records."""
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
        training = functools.partial(train, threads=threads, stacking="always", corpora=corpora)
        run_jobs(of_threads, store, training, show, slots=slots, threads_per_slot=threads)
    return [Repeat(run, store.read(run.job.id).record) for group in groups for run in group]


def text_of(repeats: Iterable[Repeat], repeatable: Repeatable) -> str:
    """The report in Markdown: counts by task, the number of available runs, and the runs that differ."""
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
    lines += ["", repeatable.text]
    for each in sorted(itertools.chain(*by_task.values()), key=lambda each: -each.difference):
        if each.difference:
            job, before, after = each.run.job, each.run.record, each.record
            changes = [f"{before.status}, again {after.status}"] if before.status != after.status else []
            numbers = [(name, value, after.metrics.get(name)) for name, value in before.metrics.items()]
            changes += [f"{name} {old}, again {new}" for name, old, new in numbers if old != new]
            lines += ["", f"{job.id} {job.label} {job.task} seed {job.seed}: {changes[0]}{_processors(each)}"]
    return "\n".join(lines)


def proven_pairs(repeats: Iterable[Repeat]) -> Pairs:
    """By part of the code: pairs of unequal digests for which all runs are equal to the last bit."""
    are_equal: dict[tuple[str, str, str], bool] = {}
    for each in repeats:
        stored, here = (record.details.get("package_code", {}) for record in (each.run.record, each.record))
        for part in stored.keys() & here.keys():
            if stored[part] != here[part]:
                pair = (part, stored[part], here[part])
                are_equal[pair] = are_equal.get(pair, True) and each.difference == 0
    pairs: Pairs = {}
    for (part, *pair), is_equal in sorted(are_equal.items()):
        if is_equal:
            pairs.setdefault(part, []).append(pair)
    return pairs


def pairs_in(path: Path) -> Pairs:
    """The pairs in a file; empty if there is no file. Raises ``StoreError`` if it has other content."""
    try:
        pairs = known_pairs(path)
        if all(len(pair) == 2 and all(map(str.isalnum, pair)) for own in pairs.values() for pair in own):
            return pairs
        problem = "not pairs of digests by part"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        problem = getattr(error, "strerror", None) or str(error)
    raise StoreError(f"{path}: no file of --pairs: {problem}")


def add_pairs(pairs: Pairs, path: Path) -> int:
    """Add pairs to a file, and return the number of new pairs."""
    known = {part: list(own) for part, own in pairs_in(path).items()}
    count = 0
    for part, own in pairs.items():
        new = [pair for pair in own if pair not in known.get(part, [])]
        known[part] = sorted([*known.get(part, []), *new])
        count += len(new)
    if count:
        write_atomically(path, (json.dumps(dict(sorted(known.items())), indent=1) + "\n").encode())
    return count


def _processors(each: Repeat) -> str:
    """The processors of both runs, if they differ or the older one is not recorded."""
    old, new = (record.details.get("processor", "not recorded") for record in (each.run.record, each.record))
    return f"; processor {old}, again {new}" if old != new else ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a results folder, or an archive of one")
    parser.add_argument("--share", type=float, default=0.1, help="of the runs")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--slots", type=int, default=1, help="runs at a time")
    parser.add_argument("--alone", action="store_true", help="leave out runs that shared a step with others")
    parser.add_argument(
        "--keep", type=Path, help="results folder that keeps the new runs; by default they are not kept"
    )
    parser.add_argument("--corpus", type=Path, help="folder of the corpus of language models")
    parser.add_argument("--pairs", type=Path, default=KNOWN_EQUAL, help="file of digests that gave equal numbers")
    options = parser.parse_args(arguments)
    if not 0 < options.share <= 1:
        parser.error(f"--share {options.share:g}: expected a number above 0 and at most 1")
    if options.seed < 0 or options.slots < 1:
        parser.error("--seed must be at least 0 and --slots at least 1")
    try:
        pairs_in(options.pairs)  # check before hours of training
        with tempfile.TemporaryDirectory() as folder:
            stored = options.results
            if stored.is_file():
                stored = Path(folder, "stored")
                unpack(options.results, Store.open(stored))
            corpora = {}
            if options.corpus:
                corpus = open_corpus(options.corpus)
                corpora = {corpus.digest: corpus}
            repeatable = Repeatable.from_store(Store.open(stored, create=False), options.alone, corpora)
            if not repeatable.groups:
                raise StoreError(f"{options.results}: nothing to repeat. {repeatable.text}")
            again = Store.open(options.keep or Path(folder, "again"))
            repeats = repeat(repeatable.draw(options.share, options.seed), again, options.slots, corpora)
            print(text_of(repeats, repeatable))
            if count := add_pairs(proven_pairs(repeats), options.pairs):
                print(f"\n{options.pairs}: {count} new pairs of digests of code that gave the same numbers.")
    except MadbenchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
