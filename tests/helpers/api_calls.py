"""A small model for calls of the Python interface, and stored scores that they show."""

from __future__ import annotations

from typing import Any

from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD

TINY = ("model.d_model=16", "precision=float32")
ACCURACIES = {"R-g-q": [0.4, 0.41, 0.43], "R-cg-q": [0.5, 0.52, 0.51], "R-cg-q-12o": [0.65, 0.66, 0.68]}
"""The accuracies of three seeds, by label, as shares from 0 to 1."""
CHOSEN: dict[str, Any] = {
    "profile": "quick",
    "overrides": ["model.d_model=48", "precision=float32"],
    "tasks": "compression",
}


def fill(store: Store, profile: str) -> None:
    """Store finished runs of ``compression`` with the accuracies of ``ACCURACIES``, without training.

    ``profile`` is the name of a profile, which is changed by the overrides of ``CHOSEN``.
    """
    changed = MAD.Profile.load(profile, CHOSEN["overrides"])
    for label, accuracies in ACCURACIES.items():
        jobs = MAD.jobs([label], changed, tasks=[CHOSEN["tasks"]], seeds=range(3), precision="float32")
        for job, accuracy in zip(jobs, accuracies, strict=True):
            metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
            store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
