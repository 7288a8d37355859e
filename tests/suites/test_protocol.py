"""Runs of one protocol share a table, also with several learning rates to choose from."""

from __future__ import annotations

from madbench.suites.mad.suite import MAD
from madbench.suites.protocol import by_protocol, protocol_id, recognize_protocol


def jobs(labels, *overrides, tasks=("compression", "memorization")):
    return MAD.jobs(labels, MAD.Profile.load("quick", overrides), tasks=tasks)


def grouped(stored):
    """For each protocol: its overrides, its labels and its number of runs."""
    groups = by_protocol(MAD, stored, lambda job: job).values()
    return {
        (
            " ".join(map(str, recognize_protocol(MAD, [(job, {}) for job in group]).overrides)),
            *sorted({job.label for job in group}),
        ): len(group)
        for group in groups
    }


def test_runs_at_several_rates_follow_one_protocol_and_labels_at_other_rates_another():
    several = jobs(["S", "R"], "learning_rates=[1e-3,2e-3]", "training.epochs=7")
    assert grouped(several) == {("training.epochs=7 learning_rates=[0.001,0.002]", "R", "S"): 8}
    one = jobs(["S-p"], "learning_rates=1e-3", "training.epochs=7")
    other = jobs(["S-c"], "learning_rates=[4e-3]", "training.epochs=7")
    found = grouped([*several, *one, *other])
    assert len(found) == 3 and found["training.epochs=7 learning_rates=[0.001,0.002]", "R", "S"] == 8
    (at_one,) = (labels for _, *labels in found if "S-p" in labels)
    assert at_one == ["R", "S", "S-p"], "labels that were tried at more rates have runs at this one, too"


def test_task_specific_rates_and_a_missing_task_do_not_split_a_protocol():
    words = ["tasks.compression.learning_rates=[1e-3,2e-3]", "weight_decays=[0.0,0.3]"]
    stored = [*jobs(["S"], *words), *jobs(["R"], *words, tasks=["compression"])]
    assert list(grouped(stored).values()) == [len(stored)]


def test_a_protocol_of_one_rate_keeps_its_id():
    stored = jobs(["S", "R"], "learning_rates=[4e-3]")
    assert list(by_protocol(MAD, stored, lambda job: job)) == [protocol_id(MAD, stored[0])]


def test_labels_of_two_families_share_one_protocol():
    stored = MAD.jobs(["cd:gdn", "S-p"], MAD.Profile.load("evening"), tasks=["compression"])
    ids = [protocol_id(MAD, job) for job in stored]
    for order in (stored, stored[::-1]):
        groups = by_protocol(MAD, order, lambda job: job)
        assert [*groups] == ids[1:] != ids[:1], "S-p has the changed setting of the profile"
        assert list(groups.values()) == [order]
