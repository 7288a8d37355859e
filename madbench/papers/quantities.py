"""Numbers measured on trained models, by which items of papers are decided.

They are stored with the run. Only the first measurement needs weights, so an archive without weights decides the same
items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.jobs import WEIGHTS, Job
from madbench.store.format import Measurement
from madbench.store.runs import Store

Values = tuple[Mapping[str, float], Mapping[str, Any]]
"""The result of a measurement: its numbers by name, and details that can be written as JSON."""


@dataclass(frozen=True)
class MeasuredQuantity:
    """A kind of measurement of trained models: its name, and the settings under which it is made.

    A stored measurement is used only if it has the same name and settings.
    """

    name: str
    settings: Mapping[str, Any]

    def stored(self, store: Store, job_id: str) -> Measurement | None:
        """The measurement of this kind that is stored with a run. None if there is none."""
        matching = [measurement for measurement in store.measurements(job_id) if measurement.name == self.name]
        return next((measurement for measurement in matching if measurement.settings == dict(self.settings)), None)

    def of_run(self, store: Store, job: Job, measure: Callable[[Path], Values]) -> Measurement:
        """The stored measurement of a run. If there is none, ``measure`` the weights of the run, and store the result.

        ``measure`` takes the path of the weights. Raises ``StoreError`` if the run has neither the measurement nor
        weights.
        """
        if (measurement := self.stored(store, job.id)) is not None:
            return measurement
        if not store.has_weights(job.id):
            raise StoreError(f"run {job.id} of {job.label} has no weights, nor {self.name}: --force trains it again")
        from madbench.training.devices import git_state, versions

        values, details = measure(store.kept_file(job.id, WEIGHTS))
        store.measure(job.id, self.name, values, {**details, "versions": versions(), "git": git_state()}, self.settings)
        return Measurement(self.name, dict(values), dict(details), dict(self.settings))

    def note_on_runs(self, store: Store, job_ids: Iterable[str]) -> str:
        """A message to the user if finished runs among ``job_ids`` have neither weights nor this measurement.

        Empty if there are no such runs.
        """
        finished = [job_id for job_id, record in store.records(job_ids).items() if record.status == "finished"]
        without_weights = [job_id for job_id in finished if not store.has_weights(job_id)]
        if not (count := sum(self.stored(store, job_id) is None for job_id in without_weights)):
            return ""
        runs_text = "1 stored run has" if count == 1 else f"{count} stored runs have"
        return f"{runs_text} no weights, nor {self.name} measured, and will not be trained again; with --force they are"
