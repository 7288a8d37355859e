"""Tables with many labels that have no runs."""

from __future__ import annotations

from unittest.mock import patch

from madbench.analysis.selection import Selection
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD, MadProfile


def test_the_settings_of_a_profile_are_not_read_again_for_labels_without_runs(tmp_path):
    store = Store.open(tmp_path / "results")
    metrics = {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}
    for job in MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"]):
        store.finish(job, Record("finished", metrics, [], {}))

    def calls(labels: list[str]) -> int:
        with patch.object(MadProfile, "settings", autospec=True, side_effect=MadProfile.settings) as settings:
            table = Selection(labels=labels, results=store.root, profile="quick").table()
        assert [*table.rows] == labels
        return settings.call_count

    few = ["R-c", "S", "G-c", "G"]
    calls(few)  # fills the caches of the process
    assert calls([*few, "R", "R-p", "G-p"]) == calls(few) > 0
