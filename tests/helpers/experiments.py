"""Experiments of small models, planned without training."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.grid import load_grid

TINY = {"model.d_model": 16}


def plan_experiment(
    tmp_path: Path, labels: Iterable[str] = ("S", "R"), *, device: str = "cpu", **keys: Any
) -> Experiment:
    """Plan an experiment of small models without training. ``keys`` are keys of a grid, such as ``seeds``.

    The task is ``compression`` by default. The results are in the folder ``results`` of ``tmp_path``.
    """
    keys = {"tasks": ["compression"], "set": TINY} | keys
    return prepare(load_grid(list(labels), keys), ExperimentOptions(device=device, results=tmp_path / "results"))
