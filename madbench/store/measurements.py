"""Measurements of a stored run made after its training: evaluation at another length, a benchmark, kernels, probes.

``<root>/runs/<job id>/measurements/`` holds one file each, never changed once written, with its provenance in it. A file is
named by its number in the run and the digest of its content, so that an altered one is found. Measurements never change
the record and go where the run goes: a run that is replaced takes them along. Of those with the same name and settings the
newest counts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.files import explain_os_errors, write_atomically
from madbench.store.format import DamagedRunError, json_bytes, load_json, numbers, plain, plain_numbers
from madbench.store.index import WORTH_INDEXING, RunIndex

FOLDER = "measurements"
_NAME = re.compile("[0-9]{6,}-[0-9a-f]{64}[.]json")


@dataclass(frozen=True)
class Measurement:
    """Numbers of a run, other than its record's."""

    name: str
    """What was measured, such as ``evaluation``."""
    values: dict[str, float]
    """Numbers by name."""
    details: dict[str, Any] = field(default_factory=dict)
    """Where they come from: versions, device, command."""
    settings: dict[str, Any] = field(default_factory=dict)
    """How it was measured: tells measurements of one name apart, such as ``{"seq_len": 2048}``."""


def add(folder: Path, measurement: Measurement) -> None:
    """Writes the measurement into the run's ``folder``, atomically, as the newest.

    Raises ``TypeError`` where a value is not a number.
    """
    fields = {"run": folder.name, **plain(dataclasses.asdict(measurement)), "values": plain_numbers(measurement.values)}
    content = json_bytes(fields)
    with explain_os_errors(folder):
        (folder / FOLDER).mkdir(exist_ok=True)
    number = 1 + max((int(name.partition("-")[0]) for name in _files(folder)), default=0)
    write_atomically(folder / FOLDER / f"{number:06}-{hashlib.sha256(content).hexdigest()}.json", content)


def read(runs: Path, job_ids: Iterable[str], index: RunIndex) -> tuple[dict[str, list[Measurement]], list[StoreError]]:
    """The measurements that count, by run, of those that have any; and why those of other runs cannot be read.

    Those of many runs are looked up in ``index``: of a file that it knows only the name is needed.
    """
    files = {job_id: names for job_id in job_ids if (names := _files(runs / job_id))}
    digests = {_digest_in(name) for names in files.values() for name in names}
    texts = index.texts(digests) if len(digests) >= WORTH_INDEXING else {}
    known, found, problems = set(texts), {}, []
    for job_id, names in files.items():
        try:
            found[job_id] = _newest(_read(runs / job_id / FOLDER / name, job_id, texts) for name in names)
        except StoreError as error:
            problems.append(error)
    if len(texts) - len(known) >= WORTH_INDEXING:
        index.note([text for digest, text in texts.items() if digest not in known])
    return found, problems


def _newest(measurements: Iterable[Measurement]) -> list[Measurement]:
    return list({(one.name, json.dumps(one.settings, sort_keys=True)): one for one in measurements}.values())


def _files(folder: Path) -> list[str]:
    """Names of the files of measurements in a run's folder, oldest first."""
    with explain_os_errors(folder):
        try:
            return sorted(name for name in os.listdir(f"{folder}/{FOLDER}") if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []


def _digest_in(name: str) -> str:
    return name[-69:-5]


def _read(path: Path, job_id: str, texts: dict[str, str]) -> Measurement:
    """The measurement in ``path``, whose content is in ``texts`` or will be."""
    digest = _digest_in(path.name)
    if digest not in texts:
        with explain_os_errors(path):
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise DamagedRunError(f"{path}: does not match the digest in its name; delete it and measure again")
        texts[digest] = content.decode()
    fields = load_json(path, texts[digest].encode())
    if fields.pop("run", None) != job_id:
        raise DamagedRunError(f"{path}: a measurement of another run; delete it")
    return Measurement(**fields | {"values": numbers(fields["values"])})
