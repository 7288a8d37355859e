"""Train stored runs again after a change of code, and record the code whose numbers are equal to the last bit.

    python studies/equal_code.py           # after a change that should leave all numbers as they are
    python studies/equal_code.py --list    # only names the marked runs and the files that changed

It reads the archives in ``results/measured`` and finds the runs that tables would mark, because the code that trained
them has another digest than the present code (:mod:`madbench.suites.code`). It names the files that changed since the
newest commit that has the stored digests. Then it trains few runs again, on the CPU: the cheapest that have all of
the unequal digests and execute each changed function that a run of the tried labels executes. It names the other
functions, and the constants, fields and statements that changed outside of functions. If all of the runs with a
digest are equal, it adds the present digest to ``madbench/identity/known_equal.json``, and no run with the stored
digest is marked. Commit this file with the change.

Runs on a GPU are left out, because a run on the CPU proves nothing for them. Numbers are equal only on the kind of
processor that ``results/measured/README.md`` names. An interrupted call continues, because new runs are kept in
``build/equal_code`` until the code changes again. The exit code is 1 if runs stay marked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import tarfile
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

from rich.console import Console

import madbench
from code_changes import ROOT, Difference, Function, changes_since
from madbench.bench.again import RepeatableRuns, RepeatedRun, repeat, train_with
from madbench.cli.shared.printing import count_text, first_of, track_progress
from madbench.cli.shared.progress import RunScreen
from madbench.execute.base import duration
from madbench.execute.products import DETAIL
from madbench.files import write_atomically
from madbench.identity.package import KNOWN_EQUAL, EqualDigests, equal_digests, gives_equal_bits
from madbench.jobs import Job, Progress, StopTraining
from madbench.store.archive import SUFFIX
from madbench.store.reading import Run
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.suites.code import PARTS, package_code
from madbench.text.corpus import Corpus, open_corpus
from madbench.text.prepare import default_corpus
from madbench.training.options import LoopOptions

KEPT = ROOT / "build" / "equal_code"
HAS_DIGESTS = b'"package_code"'
"""Part of the record of a run with digests of madbench's code."""
PROBE_SECONDS = 1.0
"""The seconds for which a run is trained in order to see which functions it executes."""
MOST_PROBES = 24
"""The most labels that are tried after the runs for the digests."""
MOST_CHARACTERS = 100
"""Most characters of a changed constant that are printed."""
MOST_NAMED = 12
Marked = dict[str, frozenset[Difference]]
"""The differences of marked runs, by id."""
Group = Sequence[Run]
"""Runs that train together."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", type=Path, help="archives or folders of runs; all of results/measured")
    parser.add_argument("--list", action="store_true", help="train nothing")
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1, help="runs at a time; one per core")
    parser.add_argument("--corpus", type=Path, help="corpus of language models; Python's standard library")
    parser.add_argument("--equal", type=Path, default=KNOWN_EQUAL, help="file of equal digests")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archives = given.archives or sorted((ROOT / "results/measured").rglob(f"*{SUFFIX}"))
        print(f"Reading the runs of {count_text(len(archives), 'archive')} ...", flush=True)
        stores = list(stores_of(track_progress(archives, "reading archives"), Path(folder)))
        compared = track_progress(stores, "comparing code")
        marked = [(store, found) for store in compared if (found := marked_runs(store, given.equal))]
        if not marked:
            print("No stored run is marked.")
            return
        differences = {each for _, found in marked for of_run in found.values() for each in of_run}
        print("Looking for the stored code in recent commits ...", flush=True)
        changes = changes_since(jobs_with(differences, marked), Path(folder, "commits"), given.equal)
        count = sum(len(found) for _, found in marked)
        print(f"{count_text(count, 'stored run')} marked, for {count_text(len(differences), 'digest')} of code.")
        print(*changes.lines, sep="\n", flush=True)
        if given.list:
            sys.exit(1)
        corpora = corpora_for(marked, given.corpus)
        groups, left_out = repeatable_groups(marked, corpora)
        print(f"Choosing runs that execute {count_text(len(changes.functions), 'changed function')} ...", flush=True)
        with Probes(corpora) as probes:
            chosen, missed = choose(groups, changes.functions, probes.executed)
        repeats = train_again(chosen, given.slots, corpora)
    add_equal(proven(repeats), given.equal)
    report(repeats, differences, missed, changes.outside, left_out, given.equal)


def stores_of(files: Iterable[Path], folder: Path) -> Iterator[Store]:
    """A store for each results folder and each archive. Runs with digests of code are unpacked in ``folder``."""
    for number, file in enumerate(files):
        if file.is_dir():
            yield Store.open(file, create=False)
        else:
            (unpacked := folder / f"{number}").mkdir()
            unpack_digested_runs(file, unpacked)
            yield from (Store.open(each, create=False) for each in unpacked.iterdir())


def unpack_digested_runs(archive: Path, folder: Path) -> None:
    """Write the runs of an archive whose records have digests of code into ``folder``.

    The archive is read once, from its beginning to its end: a compressed file has no other quick order.
    """
    runs: dict[str, dict[str, bytes]] = defaultdict(dict)  # contents by file name, by folder
    with tarfile.open(archive) as members:
        for member in members:
            if member.isfile() and (content := members.extractfile(member)):
                run, _, name = tarfile.data_filter(member, str(folder)).name.rpartition("/")
                runs[run][name] = content.read()
    for run, files in runs.items():
        if HAS_DIGESTS in files.get("record.json", b""):
            (home := folder / run).mkdir(parents=True)
            for name, content in files.items():
                (home / name).write_bytes(content)


def marked_runs(store: Store, equal: Path) -> Marked:
    """The marked runs of a store whose record names a processor, so that a CPU run can repeat them.

    Failed runs and runs without digests have no mark.
    """
    marked = {}
    for run in store.runs():
        stored = run.record.details.get("package_code")
        is_on_cpu = "processor" in run.record.details
        if isinstance(stored, dict) and is_on_cpu and run.record.status != "failed":
            here = package_code(run.job)
            found = [Difference(part, stored.get(part, ""), here.get(part, "")) for part in PARTS]
            if unequal := [each for each in found if not gives_equal_bits(*each, path=equal)]:
                marked[run.job.id] = frozenset(
                    each._replace(stored=first_equal(each.part, each.stored, equal)) for each in unequal
                )
    return marked


def first_equal(part: str, digest: str, equal: Path) -> str:
    """The first of the digests that are known to be equal to ``digest``."""
    return next((each[0] for each in equal_digests(equal).get(part, []) if digest in each), digest)


def jobs_with(differences: Iterable[Difference], marked: Iterable[tuple[Store, Marked]]) -> dict[Difference, Job]:
    """For each difference, one stored job that has it."""
    ids = {each: (store, id) for store, found in marked for id, of_run in found.items() for each in of_run}
    return {each: ids[each][0].read(ids[each][1]).job for each in differences}


def corpora_for(marked: Iterable[tuple[Store, Marked]], folder: Path | None) -> dict[str, Corpus]:
    """The corpus in ``folder`` by its digest, or the default corpus. Empty if no marked run needs one."""
    jobs = (store.read(id).job for store, found in marked for id in found)
    if not any(suite_of(job).corpus_of(job) for job in jobs):
        return {}
    corpus = open_corpus(folder) if folder else default_corpus(ROOT / "results")
    return {corpus.digest: corpus}


def repeatable_groups(
    marked: Iterable[tuple[Store, Marked]], corpora: Mapping[str, Corpus]
) -> tuple[list[tuple[Group, frozenset[Difference]]], Counter[str]]:
    """The groups of runs that can be trained again and have marked runs, each with its differences; cheapest first.

    Also counts the other runs, by the reason why they cannot.
    """
    groups, left_out = [], Counter[str]()
    for store, found in marked:
        repeatable = RepeatableRuns.from_store(store, corpora=corpora)
        left_out += repeatable.left_out
        for group in repeatable.groups:
            if differences := frozenset().union(*(found.get(run.job.id, ()) for run in group)):
                groups.append((group, differences))
    return sorted(groups, key=lambda each: seconds_of(each[0])), left_out


def seconds_of(group: Group) -> float:
    """The seconds of training that the records of a group state."""
    return sum(float(run.record.details.get("seconds", 0.0)) for run in group)


def choose(
    groups: Sequence[tuple[Group, frozenset[Difference]]],
    functions: Collection[Function],
    executed: Callable[[Group], set[Function]],
) -> tuple[list[Group], set[Function]]:
    """Choose groups that have all differences and execute all ``functions``, and name the functions that none executes.

    ``groups`` are sorted by cost. After the groups for the differences, one group of each other label is tried, the
    cheapest first. It is chosen if it executes a function that no chosen group executes.
    """
    chosen, missed = cheapest_cover(groups), set(functions)
    for group in chosen if missed else ():
        missed -= executed(group)
    tried = {(group[0].job.suite, group[0].job.label) for group in chosen}
    most = len(tried) + MOST_PROBES
    for group, _ in groups:
        name = (group[0].job.suite, group[0].job.label)
        if missed and name not in tried and len(tried) < most:
            tried.add(name)
            if found := executed(group) & missed:
                chosen.append(group)
                missed -= found
    return chosen, missed


def cheapest_cover(groups: Sequence[tuple[Group, frozenset[Difference]]]) -> list[Group]:
    """Groups that together have all differences: repeatedly the group with the most open differences per second.

    Groups whose differences others have too are left out in the end, the dearest first.
    """
    chosen, waiting = [], {each for _, differences in groups for each in differences}
    while waiting:
        best = max(groups, key=lambda each: len(each[1] & waiting) / max(seconds_of(each[0]), 0.1))
        chosen.append(best)
        waiting -= best[1]
    for each in sorted(chosen, key=lambda each: -seconds_of(each[0])):
        others = [other for other in chosen if other is not each]
        if each[1] <= frozenset().union(*(differences for _, differences in others)):
            chosen = others
    return [group for group, _ in chosen]


class Probes:
    """A process that trains groups for ``PROBE_SECONDS`` and notes the functions of this package that they execute.

    It is not this process, in which functions whose results are cached have been called before.
    """

    def __init__(self, corpora: Mapping[str, Corpus]):
        self.corpora = corpora
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # workers that are killed leave semaphores
        self.pool = multiprocessing.get_context("spawn").Pool(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()
        self.pool.join()

    def executed(self, group: Group) -> set[Function]:
        """The functions that the first seconds of a group execute. Ends the study if the group does not train."""
        jobs = [run.job for run in group]
        try:
            return self.pool.apply(executed_functions, (jobs, group[0].record.details, self.corpora))
        except Exception as error:
            sys.exit(f"{jobs[0].label} {jobs[0].task} does not train any more: {type(error).__name__}: {error}")


def executed_functions(jobs: Sequence[Job], details: Mapping[str, Any], corpora: Mapping[str, Corpus]) -> set[Function]:
    """Train jobs for ``PROBE_SECONDS``, or one step if it takes longer. Return the functions of this package called.

    The threads and the library of matrix products are those with which :func:`madbench.bench.again.repeat` trains runs
    whose records have ``details``.
    """
    called: set[CodeType] = set()
    end = time.monotonic() + PROBE_SECONDS

    def note(frame: FrameType, *_: object) -> None:
        called.add(frame.f_code)

    def stop(job: Job, progress: Progress) -> None:
        if time.monotonic() > end and progress["step"] >= 1:  # an evaluation comes first, which has no backward pass
            raise StopTraining

    with tempfile.TemporaryDirectory() as folder:
        sys.settrace(note)
        try:
            for work in (works := [Path(folder, job.id) for job in jobs]):
                work.mkdir()
            options = LoopOptions(threads=details.get("threads", 1), stacking="always")
            train_with(DETAIL in details, jobs, works, stop, corpora=corpora, options=options)
        except StopTraining:
            pass
        finally:
            sys.settrace(None)
    home = Path(madbench.__file__).resolve().parent
    files = [(Path(code.co_filename), code.co_qualname) for code in called]
    return {
        Function(file.relative_to(home.parent).as_posix(), name) for file, name in files if file.is_relative_to(home)
    }


def train_again(groups: Sequence[Group], slots: int, corpora: Mapping[str, Corpus]) -> list[RepeatedRun]:
    """Train groups again. Results are kept in a folder of the present code, so that an interrupted call continues."""
    jobs = [run.job for group in groups for run in group]
    code = hashlib.sha256("\n".join(sorted(str(package_code(job)) for job in jobs)).encode()).hexdigest()[:16]
    seconds = sum(map(seconds_of, groups))
    print(f"Training again what took {duration(seconds)} when it was stored, {count_text(slots, 'run')} at a time.")
    with RunScreen(jobs, f"kept in {KEPT / code}", Console(stderr=True)) as screen:
        return repeat(groups, Store.open(KEPT / code), slots, corpora, screen.on_event)


def proven(repeats: Iterable[RepeatedRun]) -> EqualDigests:
    """By part of the code: pairs of a stored and a present digest whose runs are all equal to the last bit."""
    are_equal: dict[Difference, bool] = defaultdict(lambda: True)
    for each in repeats:
        stored, here = (record.details.get("package_code", {}) for record in (each.run.record, each.record))
        for part in stored.keys() & here.keys():
            if stored[part] != here[part]:
                are_equal[Difference(part, stored[part], here[part])] &= not each.change
    pairs: EqualDigests = {}
    for each in sorted(each for each, is_equal in are_equal.items() if is_equal):
        pairs.setdefault(each.part, []).append([each.stored, each.here])
    return pairs


def add_equal(pairs: EqualDigests, path: Path) -> None:
    """Add pairs of equal digests to a file. Lists that share a digest become one."""
    known = {part: [*lists] for part, lists in equal_digests(path).items()}
    for part, pair in [(part, pair) for part, of_part in pairs.items() for pair in of_part]:
        lists = known.setdefault(part, [])
        same = [each for each in lists if not {*each}.isdisjoint(pair)]
        joined = [*dict.fromkeys(digest for each in (*same, pair) for digest in each)]
        known[part] = [*(each for each in lists if each not in same), joined]
    if pairs:
        write_atomically(path, equal_text(known).encode())


def equal_text(equal: EqualDigests) -> str:
    """Lists of equal digests as JSON with a line per list."""
    parts = []
    for part, lists in sorted(equal.items()):
        lines = ",\n".join(f"  {json.dumps(each)}" for each in sorted(lists))
        parts.append(f" {json.dumps(part)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def report(
    repeats: Sequence[RepeatedRun],
    differences: Collection[Difference],
    missed: Collection[Function],
    outside: Mapping[str, Sequence[str]],
    left_out: Mapping[str, int],
    equal: Path,
) -> None:
    """Print the result, and exit with 1 if runs stay marked."""
    unequal = [each for each in repeats if each.change]
    print(f"Equal to the last bit: {len(repeats) - len(unequal)} of {len(repeats)}.")
    for each in unequal:
        job = each.run.job
        print(f"  {job.label} {job.task} seed {job.seed}: {each.change}{each.machines}")
    if missed:
        print("No run that was tried executes these changed functions, so only tests can show that they are equal:")
        names = [f"  {each.file}: {each.name}" for each in sorted(missed)]
        print(*first_of(names, MOST_NAMED, "  and {:,} more"), sep="\n")
    if outside:
        print("Changed outside of functions, so only tests can show that what no run uses is equal:")
        lines = [
            f"  {file}: {textwrap.shorten(line, MOST_CHARACTERS, placeholder=' ...')}"
            for file, changed in sorted(outside.items())
            for line in changed
        ]
        print(*first_of(lines, MOST_NAMED, "  and {:,} more"), sep="\n")
    if marked := [each for each in differences if not gives_equal_bits(*each, path=equal)]:
        print(f"{count_text(len(marked), 'digest')} still marked: " + ", ".join(sorted({each.part for each in marked})))
        print(*(f"  {count_text(count, 'run')} not trained: {why}" for why, count in left_out.items()), sep="\n")
        sys.exit(1)
    print(f"No stored run is marked any more. Commit {equal}.")


if __name__ == "__main__":
    main()
