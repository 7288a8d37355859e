"""Archives of stored runs: one compressed file, to publish or to share.

An archive is a tar file of a results folder, with ``<name>/runs/<id>/`` for each run, so ``tar xf`` gives a folder that
every verb can read. It contains finished and diverged runs with their measurements, and by default the source code of
users' modules as text (:mod:`madbench.store.sources`). Weights are included if requested. File owners and file times
are not recorded. Absolute paths of this machine are cut to their last part, unless ``with_folders`` is given. Packing
the same runs under the same name gives the same bytes. When an archive is unpacked, each run is verified by its id and
its checksum.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO

from madbench.config import short_repr
from madbench.errors import StoreError
from madbench.files import explain_os_errors, is_name, output_file, read_file, write_atomically
from madbench.jobs import Record
from madbench.store.format import MEASUREMENTS, encode, json_bytes, load_json, measurement_name
from madbench.store.index import Track
from madbench.store.reading import StoredRuns
from madbench.store.runs import Store
from madbench.store.sources import is_known, is_source, places_of, sources_of
from madbench.store.tar import TarReader, UnpackingLimits, read_tar

SUFFIX = ".tar.xz"
_UNPACKED = "archive"  # the work folder into which an archive is unpacked


@dataclass
class UnpackResult:
    """The result of :func:`unpack`: what happened to each run in an archive.

    ``problems`` has sentences, and the other lists have ids of runs.
    """

    added: list[str] = field(default_factory=list)
    already_stored: list[str] = field(default_factory=list)
    """The ids of runs that were already stored with the same numbers."""
    conflicts: list[str] = field(default_factory=list)
    """The ids of runs that were already stored with other numbers. The stored numbers are kept."""
    problems: list[str] = field(default_factory=list)
    """One line per run that was not added, with the reason."""


@dataclass
class PackResult:
    """The result of :func:`pack`: the source files of users' modules, tasks and suites that the packed runs used.

    Files are given by their paths in the code listings of the runs. Both sets are empty if ``with_source`` was False.
    """

    sources: set[str] = field(default_factory=set)
    """The source files that are in the archive as text."""
    absent: set[str] = field(default_factory=set)
    """The source files that are not in the archive, because they changed after a run or do not exist on this
    machine."""


def pack(
    store: StoredRuns,
    ids: Iterable[str],
    path: Path,
    with_weights: bool = False,
    track: Track = iter,
    with_folders: bool = False,
    with_source: bool = True,
) -> PackResult:
    """Write stored runs to the archive ``path``, which appears complete or not at all.

    Args:
        store: the store of the runs.
        ids: the ids of the runs.
        path: the file to write; its name without ``.tar.xz`` is the name of the folder in the archive.
        with_weights: include the weights of the runs.
        track: a function that shows progress while its result is iterated over.
        with_folders: keep absolute paths of this machine in the records.
        with_source: include the source code of users' modules, as text.

    Raises ``StoreError`` for a run that failed, is missing, or is damaged.
    """
    root, packed = path.name.removesuffix(SUFFIX), PackResult()

    def write(file: BinaryIO) -> None:
        with tarfile.open(fileobj=file, mode="w:xz") as archive:
            for job_id in track(sorted(ids)):
                for name, content in _files_of(store, job_id, with_weights, with_folders, with_source, packed):
                    member = tarfile.TarInfo(f"{root}/runs/{job_id}/{name}")
                    member.size = len(content) if isinstance(content, bytes) else content.stat().st_size
                    with io.BytesIO(content) if isinstance(content, bytes) else open(content, "rb") as source:
                        archive.addfile(member, source)

    write_atomically(output_file(path), write)
    return packed


def unpack(path: Path, store: Store, track: Track = iter, limits: UnpackingLimits = UnpackingLimits()) -> UnpackResult:
    """Add the runs of the archive ``path`` to the store. The digests of each run are verified before it is added.

    A finished or diverged run in the store is kept, and a failed one is replaced. Runs that are not added are listed in
    the result. Raises ``StoreError`` if the file is not an archive of runs, if it exceeds ``limits``, or if another
    process is unpacking an archive into the same store.
    """
    report = UnpackResult()
    with store.lock(_UNPACKED, afresh=True) as work:
        root = work / "unpacked"
        try:
            _extract(path, root, limits)
            unpacked = Store(root)
            for job_id in track(unpacked.job_ids()):
                problems = unpacked.problems_of(job_id) or _unknown_files(unpacked, job_id)
                if not problems and (run := unpacked.read(job_id)).record.status == "failed":
                    problems = [f"{run.folder}: the run failed and has no result"]
                if problems:
                    report.problems += [problem.replace(f"{root}{os.sep}", f"{path}: ") for problem in problems]
                elif not store.has(run.job):
                    store.adopt(run)
                    report.added.append(job_id)
                elif store.read(job_id).record.difference(run.record) == 0:
                    _add_measurements(store, unpacked, job_id)
                    report.already_stored.append(job_id)
                else:
                    report.conflicts.append(job_id)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return report


def _add_measurements(store: Store, unpacked: Store, job_id: str) -> None:
    """Add the measurements of an unpacked run to the same run in the store.

    A measurement is left out if the stored run already has one with the same name and settings.
    """
    stored_keys = [(measurement.name, measurement.settings) for measurement in store.measurements(job_id)]
    for new in unpacked.measurements(job_id):
        if (new.name, new.settings) not in stored_keys:
            store.measure(job_id, new.name, new.values, new.details, new.settings)


def _unknown_files(store: StoredRuns, job_id: str) -> list[str]:
    """One line for each file of a run that is neither weights nor source code. Such a file may be a program.

    Only files that the record of the run lists are examined.
    """
    folder = store.read(job_id).folder
    unknown = [name for name in store.kept_files(job_id) if not is_known(name)]
    return [f"{folder}{os.sep}{name}: not a file that madbench stores with a run" for name in unknown]


def _files_of(
    store: StoredRuns, job_id: str, with_weights: bool, with_folders: bool, with_source: bool, packed: PackResult
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield the name and the content of each file of a run for an archive, sorted by name. Contents are bytes or paths.

    If ``with_source`` is true, the run's source files are added to ``packed``: to its set of files in the archive, or
    to its set of files that are missing there.
    """
    run = store.read(job_id)
    if run.record.status == "failed":
        raise StoreError(f"{run.folder}: the run failed and has no result")
    kept_files = {
        name: digest
        for name, digest in store.kept_files(job_id).items()
        if (with_source if is_source(name) else with_weights)
    }
    files: dict[str, bytes | Path] = {name: store.kept_file(job_id, name) for name in kept_files}
    if with_source:
        for name, text in sources_of(run.record.details).items():
            if text is not None and name not in kept_files:
                files[name], kept_files[name] = text, hashlib.sha256(text).hexdigest()
            (packed.sources if name in kept_files else packed.absent).update(places_of([name]))
    record = run.record if with_folders else public_record(run.record)
    files |= encode(run.job, record, kept_files)
    store.measurements(job_id)  # reading verifies the measurements
    for path in (run.folder / MEASUREMENTS).glob("[!.]*"):
        content = read_file(path)
        fields = load_json(path, content)
        if not with_folders and (public := _without_folders(fields)) != fields:
            content = json_bytes(public)
        files[f"{MEASUREMENTS}/{measurement_name(int(path.name.partition('-')[0]), content)}"] = content
    yield from sorted(files.items())


def public_record(record: Record) -> Record:
    """A copy of the record in which absolute paths, in details and in the error, are cut to their last part.

    The folder in the details of a corpus is left out.
    """
    details = record.details.copy()
    if "corpus" in details:
        corpus = details["corpus"] = details["corpus"].copy()
        corpus.pop("folder", None)
        if "tokenizer" in corpus:
            corpus["tokenizer"] = without_folder(corpus["tokenizer"])
    return replace(record, details=_without_folders(details), error=_without_folders(record.error))


_FOLDERS = re.compile(r"(?:file://[\w.-]*|(?<![\w.~/])~?)/(?!/)(?:[^\s/:'\"]+/)+")
"""Matches all folders at the start of an absolute path, of a path below a home folder (``~``), or of a file URL. Other
URLs do not match.
"""
_PATH_START = re.compile(r"(?<![\w.~/-])/(?!/)")
"""Matches the first character of an absolute path."""
MOST_PARTS = 64
"""The largest number of path parts that :func:`_without_spaced_folders` examines."""
_HOME = r"(?:file://[\w.-]*|(?<![\w.~/-]))(?:/(?:home|Users)/[^\s/:'\"]+(?![\w./-])|{own}(?![\w.-]))"
"""Matches a home folder with nothing below it. Its last part is the name of a person. ``{own}`` stands for this user's
home folder, which may have spaces.
"""


def _without_folders(value: Any) -> Any:
    """A copy of a JSON ``value`` in which absolute paths, in texts and in keys, are cut to their last part.

    A home folder becomes ``~``.
    """
    if isinstance(value, str):
        home = os.path.expanduser("~").rstrip("/")
        text = re.sub(_HOME.format(own=re.escape(home) if home else "(?!)"), "~", value)
        return _FOLDERS.sub("", _without_spaced_folders(text))
    if isinstance(value, Mapping):
        public: dict[str, Any] = {}
        for key, item in value.items():
            name = short = _without_folders(key)
            for number in itertools.count(2):
                if name not in public and (name == key or name not in value):
                    break
                name = f"{short} ({number})"  # a file of the same name in another folder
            public[name] = _without_folders(item)
        return public
    return [_without_folders(item) for item in value] if isinstance(value, list) else value


def _without_spaced_folders(text: str) -> str:
    """Return ``text`` with absolute paths cut to their last part if their folders have spaces in their names.

    No pattern can distinguish such a path from a sentence, so only folders that exist on this machine are found.
    """
    starts = [match.start() for match in _PATH_START.finditer(text)] if " " in text else []
    for start in reversed(starts):
        ends = [match.start() for match in re.finditer(r"/|$", text) if match.start() > start][:MOST_PARTS]
        for end in reversed(ends):
            folder = text[start:end]
            if " " in folder and os.path.isdir(folder):
                last = "" if text[end : end + 1] == "/" else PurePath(folder).name
                text = text[:start] + last + text[end + 1 :]
                break
    return text


def without_folder(spec: str) -> str:
    """The name of a tokenizer, such as ``hf-tokenizer:/data/gpt2``, with its folder cut: ``hf-tokenizer:gpt2``."""
    kind, colon, name = spec.rpartition(":")
    return f"{kind}{colon}{PurePath(name).name}"


def _extract(path: Path, root: Path, limits: UnpackingLimits) -> None:
    """Write the files of all runs in the archive ``path`` to ``<root>/runs``, and nothing outside of it.

    The whole archive is checked before the first file is written. Raises ``StoreError`` if it has a file twice, a file
    below ``runs`` that does not belong to a run, or no run.
    """
    with explain_os_errors(root):
        (root / "runs").mkdir(parents=True)
    with read_tar(path, limits) as archive:  # a complete pass before the first file is written
        for _ in _files_in(path, archive):
            pass
    with read_tar(path, limits) as archive:
        for name, inner_parts in _files_in(path, archive):
            target = root.joinpath("runs", *inner_parts)
            with explain_os_errors(target):
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    file = open(target, "xb")  # noqa: SIM115  closed below
                except (FileExistsError, IsADirectoryError, NotADirectoryError):
                    problem = "twice, or as a file and as a folder; it was not unpacked"
                    raise StoreError(f"{path}: holds {short_repr(name)} {problem}") from None
                with file:
                    file.writelines(archive.content())
    if not any((root / "runs").iterdir()):
        raise StoreError(f"{path}: holds no runs; expected an archive that madbench archive wrote")
    os.sync()  # one call for thousands of small files


def _files_in(path: Path, archive: TarReader) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each file of a run in an archive: its full name, and the parts of its path below ``runs``.

    Members outside of ``runs`` are skipped. Raises ``StoreError`` for a member below ``runs`` that is not a file of a
    run.
    """
    for member in archive.members():
        parts = PurePosixPath(member.name).parts
        root_parts = 1 if parts[1:2] == ("runs",) else 0  # below a folder of any name
        if parts[root_parts : root_parts + 1] != ("runs",) or member.isdir():
            continue
        name, inner_parts = member.name[:200], parts[root_parts + 1 :]
        if not member.isfile() or len(inner_parts) < 2 or not all(map(is_name, inner_parts)):
            raise StoreError(f"{path}: holds {short_repr(name)}, which is not a file of a run; it was not unpacked")
        yield name, inner_parts
