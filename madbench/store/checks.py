"""Checks of the fields in the files of a stored run. They raise ``ValueError`` with a sentence about the first fault.

A checksum proves only that a file was not changed, not that madbench wrote it. So the type of every field is checked
before the rest of the package uses it.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import reprlib
from collections.abc import Collection, Mapping
from typing import Any, cast, get_args

from madbench.details import Details
from madbench.files import is_name, make_printable
from madbench.jobs import Record, Status

NON_FINITE = ("nan", "inf", "-inf")
"""The texts by which floats that JSON does not have are stored."""
MOST_LETTERS = 4000
"""The largest number of characters of a text in a record's details. Longer texts are cut when they are read."""
_DIGEST = re.compile("[0-9a-f]{64}")
COUNTS = ("step", "epoch", "tokens", "evaluation")
"""Columns of a curve that are whole numbers from 0 to ``MOST_COUNT``."""
MOST_COUNT = 2**53
_NUMBER = (int, float)
_MOST_INTEGER = 2**63 - 1  # largest integer of NumPy and pandas
_FINITE = ("budget", "budget_ratio", "mixer_parameters", "mixer_parameters_published", "model_parameters")
_NONE = type(None)
_SPLIT = {"bytes": (*_NUMBER, _NONE), "tokens": (*_NUMBER, _NONE)}
_DETAILS: dict[str, Any] = {
    "corpus": {
        **dict.fromkeys(("digest", "dtype", "folder", "name", "split_rule", "tokenizer"), str),
        "splits": {"train": _SPLIT, "val": _SPLIT},
    },
    "evaluation": {"seq_len": _NUMBER, "windows": _NUMBER},
    "git": (dict, _NONE),
    **dict.fromkeys(("group_jobs", "places"), list),
    "versions": dict,
    **dict.fromkeys(("device", "ended", "kernel_problem", "path", "processor", "products"), str),
    **dict.fromkeys(("budget", "budget_ratio", "flops_per_token", "group", "micro_batch"), _NUMBER),
    **dict.fromkeys(("mixer_parameters", "mixer_parameters_published", "model_parameters"), _NUMBER),
    **dict.fromkeys(("seconds", "steps", "steps_per_second", "threads", "tokens_per_second", "world_size"), _NUMBER),
}
"""The types of the details that madbench's commands read. Each detail may be missing. Details that are not listed here
may have any type.
"""
_NAMES = {dict: "an object", str: "text", int: "a whole number", float: "a number", list: "a list", _NONE: "null"}


def check_type(value: object, expected: type | tuple[type, ...], what: str) -> None:
    """Raise ``ValueError`` if ``value`` is not of the type ``expected``, which may be a tuple of types.

    A boolean does not count as a number. ``what`` names the field in the message.
    """
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        kinds = expected if isinstance(expected, tuple) else (expected,)
        names = " or ".join(_NAMES[kind] for kind in kinds if kind is not int or float not in kinds)
        raise ValueError(f"{what}: expected {names}, got {reprlib.repr(value)}")


def check_keys(fields: Mapping[str, object], names: set[str]) -> None:
    """Raise ``ValueError`` unless ``fields`` has exactly the keys ``names``."""
    if missing := names - fields.keys():
        raise ValueError(f"{min(missing)} is missing")
    if unknown := fields.keys() - names:
        raise ValueError(f"unknown key {reprlib.repr(min(unknown))}")


def read_record(fields: Mapping[str, Any], curve: list[dict[str, float]]) -> tuple[Record, dict[str, str]]:
    """Check the ``fields`` of a ``record.json``, without its checksum, and make a record with the rows ``curve``.

    Return the record, and the digests of the run's other files by name. Raises ``ValueError`` for the first invalid
    field.
    """
    check_keys(fields, {"status", "metrics", "details", "error", "files"})
    if fields["status"] not in get_args(Status):
        raise ValueError(f"status: expected {', '.join(get_args(Status))}, got {reprlib.repr(fields['status'])}")
    check_type(fields["error"], str, "error")
    check_type(fields["files"], dict, "files")
    for name, digest in fields["files"].items():
        if not all(map(is_name, name.split("/"))):
            raise ValueError(f"files: {reprlib.repr(name)} is not a file inside the run's folder")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"files: {reprlib.repr(name)}: expected a SHA-256 digest, got {reprlib.repr(digest)}")
    texts = {name: make_printable(fields[name]) for name in ("details", "metrics", "error")}
    details, metrics = read_details(_shorten(texts["details"])), read_numbers(texts["metrics"], "metrics")
    for part in details.get("group_jobs", []):
        read_details(part, {"from_step": _NUMBER, "ids": list}, "details: group_jobs")
        for job_id in part.get("ids", [None]):
            check_type(job_id, str, "details: group_jobs: ids")
    for part in details.get("places", []):
        read_details(part, {"torch": str, "device": str, "from_step": _NUMBER}, "details: places")
    return Record(fields["status"], metrics, curve, cast(Details, details), texts["error"]), dict(fields["files"])


def _shorten(value: Any) -> Any:
    """A copy of a record's details with texts cut to ``MOST_LETTERS`` characters, so that captions can show them."""
    if isinstance(value, str):
        return value if len(value) <= MOST_LETTERS else f"{value[: MOST_LETTERS - 3]}..."
    if isinstance(value, dict):
        return {_shorten(key): _shorten(item) for key, item in value.items()}
    return [_shorten(item) for item in value] if isinstance(value, list) else value


def read_details(details: Any, types: Mapping[str, Any] = _DETAILS, what: str = "details") -> dict[str, Any]:
    """Check the types of those ``details`` of a record that madbench's commands read, and return a copy.

    ``types`` has the expected type of each detail, a dict for nested details. Where a number is expected, a text such
    as ``"nan"`` becomes a float, because JSON has no NaN or infinity. Raises ``ValueError``, which names ``what``, for
    a wrong type, and for an infinite number of parameters or budget.
    """
    check_type(details, dict, what)
    details = dict(details)
    for name in types.keys() & details.keys():
        value, expected, where = details[name], types[name], f"{what}: {name}"
        if isinstance(expected, dict):
            details[name] = read_details(value, expected, where)
        elif expected == _NUMBER:
            details[name] = _number(value, where)
            if name in _FINITE and math.isinf(details[name]):
                raise ValueError(f"{where}: expected a finite number, got {value}")
        else:
            check_type(value, expected, where)
    return details


def read_numbers(values: Any, what: str) -> dict[str, int | float]:
    """Check a dict of numbers from JSON, and return a copy.

    Raises ``ValueError``, which names ``what``, for other content. Texts such as ``"nan"``, and integers beyond 64
    bits, become floats.
    """
    check_type(values, dict, what)
    return {name: _number(value, f"{what}: {reprlib.repr(name)}") for name, value in values.items()}


def _number(value: Any, what: str) -> int | float:
    """Check a number from JSON, and return it. Texts such as ``"nan"``, and integers beyond 64 bits, become floats.

    Raises ``ValueError``, which names ``what``, for another value.
    """
    if isinstance(value, str) and value in NON_FINITE:
        return float(value)
    check_type(value, _NUMBER, what)
    return _within_range(value)


def _within_range(value: int | float) -> int | float:
    return float(value) if isinstance(value, int) and abs(value) > _MOST_INTEGER else value


def read_curve(content: bytes, logged_names: Collection[str] = ()) -> list[dict[str, float]]:
    """The rows of ``curve.csv``, one dict per row: column name to number. Empty cells are left out.

    Raises ``ValueError`` for an invalid file, or if a row has no value for a column in ``logged_names``.
    """
    try:
        columns, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
        columns = make_printable(columns)
        if len(set(columns)) < len(columns):
            raise ValueError("a column appears twice")
        longest = max(map(len, itertools.chain.from_iterable(rows)), default=0)
        if longest > 310:  # longer texts are outside of the range of a float
            raise ValueError("a cell is too long for a number")
        curve = [{name: _cell(cell) for name, cell in zip(columns, row, strict=True) if cell} for row in rows]
        for row in curve:
            _check_counts(row, logged_names)
        return curve
    except (csv.Error, ValueError, OverflowError) as error:
        raise ValueError(f"curve.csv: {error}") from None


def _cell(text: str) -> int | float:
    is_whole = text.isdecimal() or (text[0] == "-" and text[1:].isdecimal())
    return _within_range(int(text)) if is_whole else float(text)


def _check_counts(row: Mapping[str, float], logged_names: Collection[str]) -> None:
    for name in logged_names:
        if name not in row:
            raise ValueError(f"a row has no {name}")
    for name in COUNTS:
        value = row.get(name, 0)
        if not (0 <= value <= MOST_COUNT and value == int(value)):
            raise ValueError(f"{name}: expected a whole number from 0 to 2^53, got {value}")
