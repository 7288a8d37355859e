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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madbench.files import explain_os_errors, write_atomically
from madbench.store.format import DamagedRunError, json_bytes, load_json, numbers, plain, plain_numbers

FOLDER = "measurements"
_NAME = re.compile("[0-9]{6,}-[0-9a-f]{64}[.]json")


@dataclass(frozen=True)
class Measurement:
    """Numbers of a run, other than its record's."""

    name: str  # what was measured, such as ``evaluation``
    values: dict[str, float]  # numbers by name
    details: dict[str, Any] = field(default_factory=dict)  # where they come from: versions, device, command
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


def read(folder: Path) -> list[Measurement]:
    """The newest measurement of each name and settings of the run in ``folder``.

    Raises ``StoreError`` where one cannot be read and ``DamagedRunError`` where it cannot be trusted.
    """
    found = [_read(folder, name) for name in _files(folder)]
    return list({(one.name, json.dumps(one.settings, sort_keys=True)): one for one in found}.values())


def _files(folder: Path) -> list[str]:
    """Names of the files of measurements in a run's folder, oldest first."""
    with explain_os_errors(folder), suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(f"{folder}/{FOLDER}") if _NAME.fullmatch(name))
    return []


def _read(folder: Path, name: str) -> Measurement:
    path = folder / FOLDER / name
    with explain_os_errors(path):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() not in name:
        raise DamagedRunError(f"{path}: does not match the digest in its name; delete it and measure again")
    fields = load_json(path, content)
    if fields.pop("run", None) != folder.name:
        raise DamagedRunError(f"{path}: a measurement of another run; delete it")
    return Measurement(**fields | {"values": numbers(fields["values"])})
