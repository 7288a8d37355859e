"""The shipped evidence for a paper: one verdict per item, and in a clone of the repository archives of stored runs."""

from __future__ import annotations

import functools
import json
import tarfile
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from madbench.config import seed_list
from madbench.errors import ConfigError
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.files import parse_json
from madbench.papers import Item, Paper
from madbench.papers.making import Measure, Request, jobs_of
from madbench.rows import Grid
from madbench.store.archive import SUFFIX, unpack
from madbench.store.format import load_json, read_job
from madbench.store.reading import Snapshot
from madbench.store.runs import Store

if TYPE_CHECKING:
    from madbench.analysis.scores import Results
    from madbench.jobs import Job

VERDICTS = "verdicts.json"
"""The name of the file in a paper's folder with the verdict on each item. ``docs/filled.py --verdicts`` writes it."""
MEASURED = Path(__file__).parents[2] / "results" / "measured"
"""The folder with archives of stored runs in a clone of the repository. Other installations do not have it."""
JOB, RECORD = "job.json", "record.json"


@functools.cache
def _verdicts(folder: Path) -> Mapping[str, str]:
    """The shipped verdicts of the paper in a folder, by id of the item. Empty if the folder has no file of verdicts.

    Raises ``ConfigError`` if the file is invalid.
    """
    path = folder / VERDICTS
    if folder == Path() or not path.is_file():  # a paper that was not read from a file has no folder
        return {}
    try:
        verdicts = parse_json(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(verdicts, dict) or not all(isinstance(verdict, str) for verdict in verdicts.values()):
        raise ConfigError(f"{path}: expected a verdict by item, such as {json.dumps({'table1': 'reproduced (quick)'})}")
    return verdicts


def shipped_state(paper: Paper, item: Item) -> str:
    """The shipped verdict on an item with its size, such as ``reproduced (quick)``. Empty if there is none."""
    return _verdicts(paper.folder).get(item.id, "") if item.is_made_here else ""


def archive_names(item: Item) -> list[str]:
    """The paths of the archives with the item's runs, relative to the root of the repository."""
    return [f"results/measured/{name}{SUFFIX}" for name in item.runs]


def has_archives(item: Item) -> bool:
    """True if the item has archives of runs and all of them exist, as in a clone of the repository."""
    return bool(item.runs) and all((MEASURED / f"{name}{SUFFIX}").exists() for name in item.runs)


@contextmanager
def shipped_store(items: Iterable[Item]) -> Iterator[Path]:
    """A context with a temporary results folder that has the shipped runs of ``items``."""
    names = dict.fromkeys(name for item in items if has_archives(item) for name in item.runs)
    with tempfile.TemporaryDirectory(prefix="madbench-") as folder:
        results = Path(folder, "results")
        store = Store.open(results)
        for name in names:
            unpack(MEASURED / f"{name}{SUFFIX}", store)
        yield results


def shipped_ids(item: Item) -> set[str]:
    """The ids of the runs in the item's archives, which must exist."""
    ids = set()
    for name in item.runs:
        with tarfile.open(MEASURED / f"{name}{SUFFIX}") as archive:
            ids |= {path.parent.name for path in map(PurePosixPath, archive.getnames()) if path.name == RECORD}
    return ids


def shipped_jobs(item: Item) -> list[Job]:
    """The jobs of the runs in the item's archives, which must exist. Nothing is unpacked."""
    jobs = []
    for name in item.runs:
        with tarfile.open(MEASURED / f"{name}{SUFFIX}") as archive:
            for member in archive:
                if PurePosixPath(member.name).name == JOB and (file := archive.extractfile(member)):
                    fields = load_json(member.name, file.read())
                    jobs.append(read_job({key: fields[key] for key in fields if key != "schema"}, member.name))
    return jobs


def complete_seeds(request: Request, jobs: Iterable[Job], stored_ids: Container[str]) -> list[int]:
    """The seeds whose jobs in ``jobs`` are all stored, in ascending order. ``stored_ids`` are the ids of stored jobs.

    Empty if the user requested seeds and a job is not stored.
    """
    jobs = list(jobs)
    missing = {job.seed for job in jobs if job.id not in stored_ids}
    return [] if missing and request.seeds else sorted({job.seed for job in jobs} - missing)


def results_in(request: Request, measure: Measure) -> Results | None:
    """The results of the runs that ``measure`` plans for the request. None if one of the runs is not stored."""
    from madbench.analysis.scores import Results

    experiment = _prepare(request, measure)
    return None if experiment.missing else Results.from_rows(experiment, Snapshot.open(request.results))


def _prepare(request: Request, measure: Measure) -> Experiment:
    plan = measure.plan(request)
    if isinstance(plan, Grid):
        return prepare(plan, ExperimentOptions(request.device, request.results))
    assert plan is not None
    return plan


@contextmanager
def shipped_results(request: Request, measure: Measure) -> Iterator[tuple[Request, Results] | None]:
    """A context with a changed request and the shipped results that it selects, or None.

    The changed request names a temporary results folder, and the seeds for which all runs are shipped. The value is
    None if there is no such seed, or if a requested seed is not among them.
    """
    jobs = jobs_of(request)  # empty for a language model whose text is missing
    if jobs and not complete_seeds(request, jobs, shipped_ids(request.item)):
        yield None
        return
    with shipped_store(request.paper.items) as folder:
        request = replace(request, results=folder)
        jobs = _prepare(request, measure).jobs
        seeds = complete_seeds(request, jobs, {*Store(folder).job_ids()})
        if not seeds:
            yield None
            return
        request = replace(request, seeds=seed_list(seeds))
        results = results_in(request, measure)
        yield None if results is None else (request, results)
