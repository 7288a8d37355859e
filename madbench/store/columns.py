"""Columns of stored runs in the index of a store, as plain values: suite, profile, protocol and others.

Tables are made from these columns, so reading a store runs no code of labels, tasks and profiles. Other programs can
read them by SQL. For example, this command lists the runs of a profile::

    sqlite3 results/index/runs.sqlite 'SELECT label, seed FROM runs WHERE profile = "evening"'

The columns of a run depend on its job, on its record, and on the files of this package (:func:`stamp`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from madbench.config import PAPERS, TASKS, VARIANTS, Override
from madbench.errors import ConfigError, MadbenchError
from madbench.files import file_state
from madbench.jobs import Job, Precision, Record, mapping_text
from madbench.labels import factors_of_text, is_of_package, label_identity, parse
from madbench.plugins.paper_folders import GROUP
from madbench.plugins.registry import installed_folders
from madbench.suites import REGISTRY as SUITES
from madbench.suites import Suite, suite_of, suites
from madbench.suites.code import RunCode, run_code
from madbench.suites.profile import Profile, has_settings
from madbench.suites.protocol import protocol_id
from madbench.suites.published import FILE as PUBLISHED
from madbench.suites.published import published_by_paper, published_under
from madbench.tasks import task_problem


@dataclass(frozen=True)
class JobInProfile:
    """The position of a job in a shipped profile, and the fields of this profile.

    The fields (``precision``, ``comparable_with_paper``, ``chosen_on``) are those that a table of stored runs needs.
    """

    place: int
    """The index of the job among the jobs that the profile trains with the same label, task and seed. 0 if ``count`` is
    0."""
    count: int
    """The number of jobs that the profile trains with the same label, task and seed. 0 if the profile does not list its
    jobs (:meth:`Profile.jobs_like`)."""
    precision: Literal["auto", Precision]
    comparable_with_paper: bool
    chosen_on: str

    @classmethod
    def of(cls, profile: Profile, job: Job) -> JobInProfile | None:
        """The position of ``job`` in ``profile``, with the fields of the profile.

        None if the profile lists its jobs and ``job`` is not among them.
        """
        ids = [planned_job.id for planned_job in profile.jobs_like(job)]
        if ids and job.id not in ids:
            return None
        place = ids.index(job.id) if ids else 0
        return cls(place, len(ids), profile.precision, profile.comparable_with_paper, profile.chosen_on)


class StoredProfile:
    """A shipped profile whose fields come from the index of a store, so that its file need not be read.

    It has the attributes of :class:`madbench.suites.profile.ProfileFacts`, which are enough for tables of stored runs.
    """

    overrides: tuple[Override, ...] = ()
    is_shipped = True

    def __init__(self, kind: type[Profile], name: str, job: JobInProfile):
        self.kind, self.noun, self.source = kind, kind.noun, name
        self.precision, self.comparable_with_paper = job.precision, job.comparable_with_paper
        self.chosen_on = job.chosen_on

    @functools.cached_property
    def loaded(self) -> Profile:
        """The complete profile, which is read from its file on first use."""
        return self.kind.load(self.source)


@dataclass(frozen=True)
class IndexEntry:
    """The index entry of one stored run: the values of its columns, by name."""

    suite: str
    task: str
    setting: str
    """The task's setting as JSON."""
    label: str
    seed: int
    profile: str
    """The names of the shipped profiles that contain this run's job, separated by spaces.

    If no profile contains the job, this is the name of the nearest profile, which needs the fewest changes to give the
    job. It is ``of its own`` if every profile needs too many changes, and empty if the label or the task is not
    installed.
    """
    changes: str
    """The changes to the nearest profile that give this run's job, as ``KEY=VALUE`` separated by spaces. Empty if a
    shipped profile contains the job unchanged.
    """
    in_profiles: str
    """The position of the job in each shipped profile that contains it, as JSON.

    The JSON object maps the name of a profile to the fields of its :class:`JobInProfile`. This column and the columns
    ``untrained`` and ``published`` are empty if no shipped profile contains the job, or if ``is_known`` is 0.
    """
    untrained: str
    """The fields of :class:`madbench.suites.outcomes.UntrainedScores` as a JSON list.

    They take long to compute. So they are left out (empty) for a job that no shipped profile contains.
    """
    published: str
    """The published numbers of the label, as JSON, for each profile in ``in_profiles``.

    The JSON object maps the name of a profile to a list of two: the numbers that its tables show by default, and those
    that they show with ``--published`` (:meth:`madbench.suites.published.PublishedNumbers.shown`).
    """
    protocol: str
    """The id of the protocol under which the run was trained. Empty if the label or the task is not installed."""
    fidelity: str
    budget: str
    precision: str
    corpus: str
    """The digest of the corpus. Empty if the task needs no corpus."""
    source: str
    """The version of the label's family when the run was trained. Hashes of the source code of family and task follow
    if this code is outside of madbench.
    """
    is_known: int
    """1 if this package alone has the code of the label, the task and the suite, and can show the run. The columns
    below depend on this code. They are 0 or empty if the run is not known.
    """
    is_present: int
    """1 if the installed version of the label's family is the version that trained the run."""
    is_over_budget: int
    """1 if the label is marked as one that exceeds its budget, as ``R-12!`` is by ``!``."""
    code: str
    """The state of the code that trained the run, as JSON: the fields of :class:`madbench.suites.code.RunCode`."""

    @property
    def run_code(self) -> RunCode | None:
        """The value of the column ``code``. None if the column is empty, because :attr:`is_known` is 0."""
        return RunCode(*json.loads(self.code)) if self.code else None

    @property
    def untrained_scores(self) -> list[float] | None:
        """The fields of :class:`madbench.suites.outcomes.UntrainedScores`, from the column ``untrained``.

        None if the column is empty.
        """
        return [float(value) for value in json.loads(self.untrained)] if self.untrained else None

    def published_under(self, profile: str, shows_always: bool = False) -> dict[str, float] | None:
        """The published numbers of the run's label to show in a table of ``profile``, by column of the table.

        A published number may name a profile, and is then shown for this profile only. Other numbers are shown if
        ``profile`` is comparable with the paper, or if ``shows_always`` is True
        (:meth:`madbench.suites.published.PublishedNumbers.shown`). None if the column ``published`` is empty or lacks
        the profile.
        """
        numbers = json.loads(self.published).get(profile) if self.published else None
        return numbers and numbers[shows_always]

    def in_profile(self, name: str) -> JobInProfile | None:
        """The position of the run's job in the shipped profile ``name``, from the column ``in_profiles``.

        None if the profile does not contain the job, or if ``is_known`` is 0.
        """
        fields = json.loads(self.in_profiles).get(name) if self.in_profiles else None
        return fields and JobInProfile(**fields)

    def is_of_profile(self, name: str) -> bool:
        """True if the shipped profile ``name`` has this run's job without changes."""
        return not self.changes and name in self.profile.split()


NAMES = tuple(field.name for field in fields(IndexEntry))
_NUMBERS = ("seed", "is_known", "is_present", "is_over_budget")


def read_entry(values: Sequence[Any]) -> IndexEntry:
    """The index entry of a run from the values in a row of the index.

    Raises ``TypeError`` if a value does not have the type of its column, and ``ValueError`` if a column that has JSON
    cannot be parsed.
    """
    entry = IndexEntry(*values)
    for name, value in vars(entry).items():
        if type(value) is not (int if name in _NUMBERS else str):
            raise TypeError(f"{name}: not a value of this column")
    for text in (entry.in_profiles, entry.untrained, entry.published, entry.code):
        json.loads(text or "null")
    return entry


def entry_of(job: Job, record: Record) -> IndexEntry:
    """The index entry of the run with this job and record, computed from the job's suite, label and profiles."""
    setting, corpus = mapping_text(job.setting), suite_of(job).corpus_of(job)
    is_known = _is_known(job) and not isinstance(record.details.get("code"), dict)
    decided_by = (job.suite, job.task, job.label, job.fidelity, job.budget, setting, job.mixer, job.model, job.training)
    key = repr((is_known, decided_by))
    if key not in _BELONGS_TO:
        _BELONGS_TO[key] = _belongs_to(job, is_known)
    code = _code_columns(job, record) if is_known else _CodeColumns(is_present=0, is_over_budget=0, code="")
    return IndexEntry(
        suite=job.suite,
        task=job.task,
        setting=setting,
        label=job.label,
        seed=job.seed,
        fidelity=job.fidelity,
        budget=job.budget,
        precision=job.training.precision,
        corpus=corpus.digest if corpus else "",
        source=" ".join(filter(None, [job.family, job.task_source])),
        is_known=int(is_known),
        **_BELONGS_TO[key],
        **code,
    )


class _CodeColumns(TypedDict):
    is_present: int
    is_over_budget: int
    code: str


def _code_columns(job: Job, record: Record) -> _CodeColumns:
    """The values of ``is_present``, ``is_over_budget`` and ``code`` of a run whose ``is_known`` is 1."""
    is_present = label_identity(job.label) == job.family
    code = run_code(job, record.details)
    is_over = factors_of_text(job.label).get("budget") == "over"
    return {
        "is_present": int(is_present),
        "is_over_budget": int(is_over),
        "code": json.dumps([code.state, code.what, code.is_recorded]),
    }


def _is_known(job: Job) -> bool:
    if job.has_outside_code or job.suite not in SUITES.built_in or not is_of_package(job.label):
        return False
    if not has_settings(job.label) or str(parse(job.label)) != job.label:
        return False
    return job.task in suite_of(job).tasks() and not task_problem(job.task)


class _ProfileColumns(TypedDict):
    profile: str
    changes: str
    in_profiles: str
    untrained: str
    published: str
    protocol: str


_BELONGS_TO: dict[str, _ProfileColumns] = {}


def _belongs_to(job: Job, is_known: bool) -> _ProfileColumns:
    """Compute the columns from ``profile`` to ``protocol`` of an :class:`IndexEntry` that depend only on its job.

    If ``is_known``, the column of this name, is false, ``in_profiles``, ``untrained`` and ``published`` are empty. All
    columns are empty if the label or the task is not installed.
    """
    if has_settings(job.label):
        suite = suite_of(job)
        with suppress(MadbenchError):  # the task is not installed
            exact = [name for name, profile in suite.shipped().items() if not profile.changes(job)]
            profile, changes = (" ".join(exact), ()) if exact else suite.nearest(job)
            places = {name: JobInProfile.of(suite.shipped()[name], job) for name in exact if is_known}
            in_profiles = {name: vars(place) for name, place in places.items() if place}
            columns = _ProfileColumns(
                profile=profile,
                changes=" ".join(map(str, changes)),
                in_profiles="",
                untrained="",
                published="",
                protocol=protocol_id(suite, job),
            )
            if in_profiles:
                shipped = [suite.shipped()[name] for name in in_profiles]
                columns["in_profiles"] = json.dumps(in_profiles)
                columns["untrained"] = _untrained_json(suite, job)
                columns["published"] = _published_json(job.label, shipped)
            return columns
    return _ProfileColumns(profile="", changes="", in_profiles="", untrained="", published="", protocol="")


def _published_json(label: str, profiles: Sequence[Profile]) -> str:
    try:
        if any(PAPERS not in folder.parents for folder, _ in published_by_paper().values()):
            return ""  # files of an installed paper may change
        numbers = [(profile, published_under(label, profile.source)) for profile in profiles]
    except ConfigError:  # reported by the table that shows the numbers
        return ""
    return json.dumps(
        {
            profile.source: [published.shown(profile), published.shown(profile, shows_always=True)]
            for profile, published in numbers
        }
    )


def _untrained_json(suite: Suite, job: Job) -> str:
    from madbench.suites.scoring import scoring_of  # imports pandas

    scoring = scoring_of(suite)
    return json.dumps([scoring.chance(job), scoring.heuristic(job), scoring.solved_share(job.task)])


def stamp() -> str:
    """A digest of the states (:func:`madbench.files.file_state`) of the files from which columns are computed.

    The files are those of this package, the profiles of suites, and the profiles and published numbers of installed
    papers. If the stamp differs from that of a row of the index, the row is out of date.
    """
    lines = [line for folder in (Path(__file__).parents[1], TASKS, VARIANTS) for line in _file_lines(folder)]
    for suite in suites().values():
        lines += [f"{suite.name} {line}" for line in map(_file_line, suite.Profile.folder.glob("*.yaml"))]
    for paper in installed_folders(GROUP):
        lines += map(_file_line, [*paper.glob("profiles/*/*.yaml"), *paper.glob(PUBLISHED)])
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _file_lines(folder: Path | str) -> Iterator[str]:
    """Yield one line per file in a folder and its subfolders, with the file's path, inode, size and times.

    The lines are those of :func:`_file_line`. Hidden files and bytecode are skipped.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from _file_lines(entry.path)
            elif entry.is_file():
                yield _file_line(entry)


def _file_line(file: Path | os.DirEntry[str]) -> str:
    """A line with the path of a file and its inode, size and times, so that the line changes with the file."""
    return f"{os.fspath(file)} {file_state(file.stat())}"
