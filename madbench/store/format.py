"""The format of a stored run: ``job.json``, ``record.json`` and ``curve.csv``, and the files of its measurements.

JSON has no NaN or infinity. They are written as the texts ``"nan"``, ``"inf"`` and ``"-inf"``. In metrics, and in
``details`` that madbench's commands read as numbers, these texts are read back as numbers. In other ``details`` they
remain texts. An empty cell of ``curve.csv`` means that the row has no
value in that column. ``record.json`` ends with the digests of the run's other files, such as weights, and with a
checksum of ``job.json``, ``curve.csv`` and all other fields of ``record.json``.

Measurements of a run are made after its training: evaluation at another length, a benchmark, kernels, probes. The
folder ``measurements`` of the run has one file per measurement, which also says how it was made, and is never changed.
The name of the file has the measurement's number and the digest of the content, so that a changed file is found. A
measurement never changes the record, and a run that is trained again keeps its measurements. If several measurements
have the same name and settings, the newest counts.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
import os
import re
import reprlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madbench.config import MOST_SEED, short_repr
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.files import (
    MOST_BYTES,
    UnfitFileError,
    check_json,
    explain_os_errors,
    is_name,
    make_folder,
    make_printable,
    names_in,
    parse_json,
    read_file,
    write_atomically,
)
from madbench.jobs import SCHEMA, Job, Record
from madbench.store.checks import check_keys, check_type, read_curve, read_numbers, read_record
from madbench.suites import job_from_dict, suite_of

NAMES = ("job.json", "record.json", "curve.csv")
MEASUREMENTS = "measurements"
_MEASUREMENT_NAME = re.compile("[0-9]{6,}-[0-9a-f]{64}[.]json")
_CANONICAL = json.JSONEncoder(sort_keys=True)
_MOST_DETAIL_DEPTH = 32
"""Details that are nested deeper than this are stored as text. :func:`madbench.files.parse_json` can read deeper JSON.
"""


class DamagedRunError(StoreError):
    """Raised if a file of a stored run is missing, was changed, or does not have the format of such a file."""


class OtherVersionError(DamagedRunError):
    """Raised for a run that is stored in another version of the format than this madbench reads."""

    def __init__(self, where: Path | str, schema: int | None):
        self.schema = schema
        is_newer = schema is not None and schema > SCHEMA
        older = "train again into a new results folder, or read it with madbench 0.1"
        remedy = "read it with the madbench that wrote it" if is_newer else older
        super().__init__(f"{where}: has format {short_repr(schema)}, and this madbench reads format {SCHEMA}; {remedy}")


def encode(job: Job, record: Record, other_files: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The content of the files of a run, ``job.json``, ``record.json`` and ``curve.csv``, by name.

    ``other_files`` has the SHA-256 digests of further files of the run by name. Raises ``TypeError`` if a metric or a
    value of the curve is not a number, if the name of a further file is invalid, or if a file would be too large to be
    read back.
    """
    for name in other_files or ():
        if not all(map(is_name, name.split("/"))):
            raise TypeError(f"{short_repr(name)}: not a name that a file of a run can have")
    job_file = json_bytes({"schema": SCHEMA, **job.to_dict()})
    curve_file = _encode_curve(record.curve)
    fields = {"status": record.status, "metrics": plain_numbers(record.metrics), "details": plain(record.details)}
    fields |= {"error": _valid_text(record.error), "files": dict(other_files or {})}
    fields["checksum"] = run_checksum(job_file, fields, curve_file)
    files = dict(zip(NAMES, (job_file, json_bytes(fields), curve_file), strict=True))
    if too_large := [name for name, content in files.items() if len(content) > MOST_BYTES]:
        raise TypeError(f"{too_large[0]}: larger than {MOST_BYTES // 2**20} MB, which could not be read back")
    return files


def read_run(folder: Path, with_curve: bool = True) -> tuple[Job, Record, dict[str, str]]:
    """Read and verify the run in ``folder``. Return its job, its record, and the digests of its other files by name.

    If ``with_curve`` is False, the record's curve is empty. Raises ``DamagedRunError`` if a file is missing or damaged,
    and ``StoreError`` if one cannot be read. The content of the other files is not verified.
    """
    with explain_os_errors(folder):
        try:
            job_file, record_file, curve_file = (read_file(f"{folder}/{name}") for name in NAMES)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise DamagedRunError(f"{error.filename}: missing or not a file") from error
        except UnfitFileError as error:
            raise DamagedRunError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from error
    fields = load_json(f"{folder}/job.json", job_file)
    schema = fields.pop("schema", None)
    if type(schema) not in (int, type(None)):
        raise DamagedRunError(f"{folder}: job.json has no number of its format")
    if schema != SCHEMA:
        raise OtherVersionError(folder, schema)
    label, seed = fields.pop("label", None), fields.pop("seed", None)
    record_fields = load_json(f"{folder}/record.json", record_file)
    if record_fields.pop("checksum", None) != run_checksum(job_file, record_fields, curve_file):
        raise DamagedRunError(f"{folder}: the files do not match their checksum")
    try:
        job = make_job(json.dumps(fields), label, seed, f"{folder}/job.json")
        job_id = job.id
        record, digests = read_record(record_fields, read_curve(curve_file, suite_of(job).logged))
    except MadbenchError as error:
        raise DamagedRunError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise DamagedRunError(f"{folder}: not a record: {error}") from error
    if job_id != folder.name:
        raise DamagedRunError(f"{folder}: job.json is not the job of this id")
    return job, record if with_curve else dataclasses.replace(record, curve=[]), digests


def read_job(fields: object, where: str) -> Job:
    """Make a job from a dict such as :meth:`Job.to_dict` returns. It may come from a file that anyone wrote.

    Raises ``ConfigError``, whose message begins with ``where``, if these are not the fields of a job.
    """
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{where}: expected the fields of a job, got {reprlib.repr(fields)}")
    try:
        check_json(fields)
        others = {name: value for name, value in fields.items() if name not in ("label", "seed")}
        return make_job(json.dumps(others), fields.get("label"), fields.get("seed"), where)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: not the fields of a job: {error}") from error


def make_job(shared: str, label: object, seed: object, where: str) -> Job:
    """Make a job from its label, its seed, and ``shared``, the JSON of all its other fields.

    Jobs with equal ``shared`` are checked once, and share the values of these fields. Raises ``ConfigError``, whose
    message begins with ``where``, if these are not the fields of a job, if the seed is out of range, or if a text has
    characters that cannot be printed.
    """
    if type(seed) is int and not 0 <= seed <= MOST_SEED:
        raise ConfigError(f"{where}: seed: expected a whole number from 0 to 2^63 - 1")
    if type(label) is str and not label.isprintable():
        raise ConfigError(f"{where}: label: {reprlib.repr(label)} has characters that cannot be printed")
    if shared not in _SHARED or type(label) is not str or type(seed) is not int:
        fields = parse_json(shared)
        if make_printable(fields) != fields:
            raise ConfigError(f"{where}: has text with characters that cannot be printed")
        job = job_from_dict(fields | {"label": label, "seed": seed}, where)
        _SHARED[shared] = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    return Job(**{**_SHARED[shared], "label": label, "seed": seed})


_SHARED: dict[str, dict[str, Any]] = {}  # fields of jobs that were checked, by their JSON


@dataclass(frozen=True)
class Measurement:
    """Numbers that were measured on a run after its training."""

    name: str
    """The name of the kind of measurement, such as ``evaluation``."""
    values: dict[str, float]
    """The measured numbers by name."""
    details: dict[str, Any] = field(default_factory=dict)
    """The versions, device and command with which the values were measured."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of the measurement, such as ``{"seq_len": 2048}``. They distinguish measurements of one kind."""


def add_measurement(folder: Path, measurement: Measurement) -> None:
    """Write a measurement to the ``folder`` of a run, atomically. It becomes the newest one.

    Raises ``TypeError`` if a value is not a number.
    """
    fields = {"run": folder.name, **plain(dataclasses.asdict(measurement)), "values": plain_numbers(measurement.values)}
    content = json_bytes(fields)
    with explain_os_errors(folder):
        make_folder(folder / MEASUREMENTS)
    number = 1 + max((int(name.partition("-")[0]) for name in _measurement_files(folder)), default=0)
    write_atomically(folder / MEASUREMENTS / measurement_name(number, content), content)


def measurement_name(number: int, content: bytes) -> str:
    """The file name of a measurement: its number and the SHA-256 digest of the file's ``content``."""
    return f"{number:06}-{hashlib.sha256(content).hexdigest()}.json"


def read_measurements(folder: Path) -> list[Measurement]:
    """The measurements of the run in ``folder``. Of measurements with the same name and settings, only the newest.

    Raises ``StoreError`` if a file cannot be read, and ``DamagedRunError`` if a file is damaged.
    """
    measurements = [_read_measurement(folder, name) for name in _measurement_files(folder)]
    newest = {
        (measurement.name, json.dumps(measurement.settings, sort_keys=True)): measurement
        for measurement in measurements
    }
    return list(newest.values())


def damaged_measurements(folder: Path) -> list[str]:
    """One line per damaged or unknown file in the folder ``measurements`` of a run, with a remedy.

    Empty if all are sound. ``folder`` is the folder of the run.
    """
    problems = []
    try:
        names = names_in(folder / MEASUREMENTS)
    except StoreError as error:
        return [str(error)]
    for name in names:
        try:
            if _MEASUREMENT_NAME.fullmatch(name):
                _read_measurement(folder, name)
            else:
                problems.append(f"{folder / MEASUREMENTS / name}: not the name of a measurement; delete it")
        except StoreError as error:
            problems.append(str(error))
    return problems


def _measurement_files(folder: Path) -> list[str]:
    """The names of the measurement files in a run's folder, oldest first."""
    with explain_os_errors(folder), suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(f"{folder}/{MEASUREMENTS}") if _MEASUREMENT_NAME.fullmatch(name))
    return []


def _read_measurement(folder: Path, name: str) -> Measurement:
    path = folder / MEASUREMENTS / name
    with explain_os_errors(path):
        content = read_file(path)
    if hashlib.sha256(content).hexdigest() not in name:
        raise DamagedRunError(f"{path}: does not match the digest in its name; delete it and measure again")
    fields = load_json(path, content)
    if fields.pop("run", None) != folder.name:
        raise DamagedRunError(f"{path}: a measurement of another run; delete it")
    try:
        check_keys(fields, {"name", "values", "details", "settings"})
        fields = make_printable(fields)
        check_type(fields["name"], str, "name")
        check_type(fields["details"], dict, "details")
        check_type(fields["settings"], dict, "settings")
        return Measurement(**fields | {"values": read_numbers(fields["values"], "values")})
    except ValueError as error:
        raise DamagedRunError(f"{path}: not a measurement ({error}); delete it and measure again") from error


def load_json(where: Path | str, content: bytes) -> dict[str, Any]:
    """The JSON object in ``content``.

    Raises ``DamagedRunError``, whose message begins with ``where``, if it has none.
    """
    try:
        mapping = parse_json(content)
    except ValueError as error:
        raise DamagedRunError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise DamagedRunError(f"{where}: expected a JSON object")
    return mapping


def json_bytes(mapping: Mapping[str, object]) -> bytes:
    """The content of a JSON file in the store that holds ``mapping``. Raises ``ValueError`` for NaN and infinities."""
    return (json.dumps(mapping, indent=1, allow_nan=False) + "\n").encode()


def plain(value: Any, depth: int = _MOST_DETAIL_DEPTH) -> Any:
    """Convert ``value`` to a value of JSON: text, a number, true, false, null, a list or an object.

    Values of other types become text. So do NaN, infinities and integers beyond the range of a float, and lists and
    objects that are nested deeper than ``depth`` levels. Arrays and tensors become lists.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return hex(value)  # Python refuses to write thousands of decimal digits
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, Mapping) and depth:
        return {_valid_text(str(key)): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and depth:
        return [plain(item, depth - 1) for item in value]
    return _valid_text(str(value))


def _valid_text(text: str) -> str:
    """``text`` with unpaired surrogates replaced by escapes. They occur in file names that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def plain_numbers(values: Mapping[str, object]) -> dict[str, int | float | str]:
    """Convert numbers by name to values of JSON. NaN and infinities become text.

    Raises ``TypeError`` if a value is not a number or is an integer beyond the range of a float.
    """
    return {str(name): plain(_number(value)) for name, value in values.items()}


def run_checksum(job_file: bytes, fields: Mapping[str, object], curve_file: bytes) -> str:
    record = _CANONICAL.encode(fields).encode()
    parts = (hashlib.sha256(part).digest() for part in (job_file, record, curve_file))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _number(value: Any) -> int | float:
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, got {value!r:.100}")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise TypeError("expected a number in the range of a float")
    return int(value) if isinstance(value, bool) else value


def _encode_curve(rows: list[dict[str, float]]) -> bytes:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([repr(_number(row[name])) if name in row else "" for name in columns] for row in rows)
    return text.getvalue().encode()
