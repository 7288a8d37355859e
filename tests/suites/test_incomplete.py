"""An incomplete suite, profile or trial is refused with the missing method before any training."""

from __future__ import annotations

import pytest

from madbench.errors import ConfigError
from madbench.suites import Profile, Suite
from madbench.suites.epoch_trial import EpochTrial
from madbench.suites.mad.suite import MAD, MadSuite
from madbench.suites.trial import Trial


class HalfTrial(EpochTrial):
    def finish(self, curve):
        return {}


class HalfSuite(MadSuite):
    trial = f"{__name__}:HalfTrial"


@pytest.mark.parametrize(
    ("base", "methods"),
    [
        (Suite, {"tasks", "plan", "canonical", "size"}),
        (Profile, {"training_changes"}),
        (Trial, {"open", "mixers", "build", "micro_batches", "has_row", "row", "progress", "finish"}),
    ],
)
def test_a_subclass_has_to_define_every_method_without_a_default(base, methods):
    assert base.__abstractmethods__ == methods
    for name in methods:
        complete = dict.fromkeys(methods - {name}, staticmethod(lambda *arguments: None))
        with pytest.raises(TypeError, match=f"abstract method '?{name}"):
            type("Half", (base,), complete)()


def test_a_trial_without_some_methods_is_refused_by_its_suite():
    with pytest.raises(ConfigError, match="its trial .*HalfTrial lacks build, open, progress, row$"):
        HalfSuite().Trial  # noqa: B018
    assert not MAD.Trial.__abstractmethods__


def test_asking_for_examples_of_a_suite_without_them_is_an_error():
    (job,) = MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"])
    with pytest.raises(ConfigError, match="compression.*suite mad gives no examples"):
        HalfTrial.examples(job, 1, {})
