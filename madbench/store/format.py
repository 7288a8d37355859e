"""The three files of a stored run: ``job.json``, ``record.json`` and ``curve.csv``.

JSON has no NaN or Inf: they are the text ``"nan"``, ``"inf"`` and ``"-inf"``. Metrics are numbers, so there the text is
read back as the number; ``details`` are given back as JSON has them. In ``curve.csv`` an empty cell is a value that
the row does not have. ``record.json`` ends with a checksum of all three files.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import marshal
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors
from madbench.jobs import NAMELESS, SCHEMA, Job, JobBase, Record, Status
from madbench.language_jobs import TASK, LanguageJob

NAMES = ("job.json", "record.json", "curve.csv")
_CANONICAL = json.JSONEncoder(sort_keys=True)
_NON_FINITE = ("nan", "inf", "-inf")


class DamagedRunError(StoreError):
    """A run folder whose content is incomplete, was altered, or is of another version of the protocol."""


def encode(job: JobBase, record: Record) -> dict[str, bytes]:
    """Content by file name. Raises ``TypeError`` where a metric or a value of the curve is not a number."""
    job_file = _json_bytes({"schema": SCHEMA, **job.to_dict()})
    curve_file = _encode_curve(record.curve)
    fields = {
        "status": record.status,
        "metrics": {str(name): _plain(_number(value)) for name, value in record.metrics.items()},
        "details": _plain(record.details),
        "error": record.error,
    }
    fields["checksum"] = _checksum(job_file, fields, curve_file)
    return dict(zip(NAMES, (job_file, _json_bytes(fields), curve_file), strict=True))


@dataclass(frozen=True)
class RunFiles:
    """The verified content of a run folder, of which the record is not yet made into values."""

    folder: Path
    job: JobBase
    record: dict[str, Any]
    curve: bytes

    @classmethod
    def read(cls, folder: Path) -> RunFiles:
        """Reads the files of ``folder``, whose name must be the job's id.

        Raises ``DamagedRunError`` where the content cannot be trusted, and ``StoreError`` where it cannot be read.
        """
        with explain_os_errors(folder):
            try:
                job_file, record_file, curve_file = (_bytes(f"{folder}/{name}") for name in NAMES)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                raise DamagedRunError(f"{error.filename}: missing or not a file") from error
        fields = _load(f"{folder}/job.json", job_file)
        schema = fields.pop("schema", None)
        if schema != SCHEMA:
            raise DamagedRunError(f"{folder}: of protocol version {schema!r}; this madbench has version {SCHEMA}")
        job = _job(fields, f"{folder}/job.json")
        if job.id != folder.name:
            raise DamagedRunError(f"{folder}: job.json is not the job of this id")
        record = _load(f"{folder}/record.json", record_file)
        if record.pop("checksum", None) != _checksum(job_file, record, curve_file):
            raise DamagedRunError(f"{folder}: the files do not match their checksum")
        if record.get("status") not in get_args(Status):
            raise DamagedRunError(f"{folder}: unknown status {record.get('status')!r}")
        return cls(folder, job, record, curve_file)

    def decode(self, with_curve: bool = True) -> tuple[JobBase, Record]:
        """The values. Without ``with_curve`` the record's curve is empty. Raises ``DamagedRunError``."""
        try:
            metrics = {k: float(v) if v in _NON_FINITE else v for k, v in self.record["metrics"].items()}
            curve = _decode_curve(self.curve) if with_curve else []
            return self.job, Record(**{**self.record, "metrics": metrics, "curve": curve})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DamagedRunError(f"{self.folder}: not a record: {error}") from error


def _job(fields: dict[str, Any], where: str) -> JobBase:
    try:
        if type(fields.get("label")) is str and type(fields.get("seed")) is int:
            with suppress(ConfigError):  # which is to name this file
                return _nameless(marshal.dumps(fields | NAMELESS, 2)).copy(fields["label"], fields["seed"])
        return _from_dict(fields, where)
    except ConfigError as error:
        raise DamagedRunError(str(error)) from error


@functools.lru_cache(maxsize=4096)
def _nameless(content: bytes) -> JobBase:
    """What many jobs have in common: the one of these fields, without a label and with seed 0."""
    return _from_dict(marshal.loads(content), "job.json")


def _from_dict(fields: dict[str, Any], where: str) -> JobBase:
    return (LanguageJob if fields.get("task") == TASK else Job).from_dict(fields, where)


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _load(path: str, content: bytes) -> dict[str, Any]:
    try:
        mapping = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedRunError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise DamagedRunError(f"{path}: expected a JSON object")
    return mapping


def _json_bytes(mapping: dict[str, Any]) -> bytes:
    return (json.dumps(mapping, indent=1, allow_nan=False) + "\n").encode()


def _checksum(job_file: bytes, fields: dict[str, Any], curve_file: bytes) -> str:
    record = _CANONICAL.encode(fields).encode()
    parts = (hashlib.sha256(part).digest() for part in (job_file, record, curve_file))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _number(value: Any) -> int | float:
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, got {value!r}")
    return int(value) if isinstance(value, bool) else value


def _plain(value: Any) -> Any:
    """``value`` in what JSON has: text, numbers, true, false, null, lists, objects; anything else as its text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value)


def _encode_curve(rows: list[dict[str, float]]) -> bytes:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([repr(_number(row[name])) if name in row else "" for name in columns] for row in rows)
    return text.getvalue().encode()


def _decode_curve(content: bytes) -> list[dict[str, float]]:
    text = content.decode()
    head, _, body = text.partition("\n")
    if body and '"' not in text:
        with suppress(ValueError):  # of an empty cell, NaN or Inf
            rows = json.loads("[[" + body[:-1].replace("\n", "],[") + "]]")  # faster than cell by cell
            names = head.split(",")
            return [dict(zip(names, row, strict=True)) for row in rows]
    columns, *rows = csv.reader(io.StringIO(text, newline=""))
    return [dict(_cells(columns, row)) for row in rows]


def _cells(columns: list[str], row: list[str]) -> Iterator[tuple[str, int | float]]:
    for name, cell in zip(columns, row, strict=True):
        if cell:
            yield name, int(cell) if cell.lstrip("-").isdigit() else float(cell)
