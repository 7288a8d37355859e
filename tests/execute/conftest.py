from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from madbench.store.runs import Store

collect_ignore = ["fake_slurm.py"]  # a script of its own, which submitit starts as Slurm's programs


@pytest.fixture
def fake(monkeypatch):
    """The module of the fake training run, importable by worker processes too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("fake_sweep")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")
