"""Comparisons of jobs trained in a group with the same jobs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from madbench.jobs import Record

LOSS = {"rel": 1e-4, "abs": 1e-5}


def assert_same_numbers(record: Record, expected: Record, tolerance: Mapping[str, Any] = LOSS) -> None:
    assert record.status == expected.status and len(record.curve) == len(expected.curve)
    for row, wanted in zip(record.curve, expected.curve):
        losses = {name: value for name, value in wanted.items() if name.endswith("loss")}
        assert {name: row[name] for name in losses} == pytest.approx(losses, **tolerance)
        assert (row["step"], row["epoch"]) == (wanted["step"], wanted["epoch"])
    assert record.metrics.get("test_loss") == pytest.approx(expected.metrics.get("test_loss"), **tolerance)
