"""Images and series: data, best possible answers, jobs, and that a mixer learns them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from madbench.errors import ConfigError, LabelError
from madbench.models.signals import SignalModel
from madbench.suites import job_from_dict, size_of
from madbench.suites.epoch_trial import EpochTrial
from madbench.suites.signals.suite import SIGNALS, TASKS, SignalProfile, SignalSuite
from madbench.suites.signals.trial import SignalTrial
from madbench.suites.token_trial import TokenTrial
from madbench.tasks.base import SPLITS
from madbench.tasks.signals import Digits, Series
from madbench.tasks.signals.digits import images
from sample_jobs import train_job

SMALL = ("num_train_examples=64", "num_validation_examples=8", "num_test_examples=16")
SHORT_TRAINING = [
    f"tasks.{task}.{change}" for task in TASKS for change in (*(f"setting.{c}" for c in SMALL), "training.epochs=2")
]


def jobs(*labels: str, tasks=TASKS, more=(), **options):
    return SIGNALS.jobs(labels, SignalProfile.load("quick", [*SHORT_TRAINING, *more]), tasks=tasks, **options)


def test_patches_are_the_images_and_no_image_is_in_two_splits():
    setting, whole = Digits(), Digits(patch=8)
    pixels, digits = images()
    assert pixels.shape == (1797, 8, 8) and pixels.max() == 16 and np.bincount(digits).min() > 170
    splits = [whole.data(split, seed=3) for split in SPLITS]
    together = np.concatenate([x for x, _ in splits]).reshape(-1, 64)
    assert sorted(map(tuple, together * 16)) == sorted(map(tuple, pixels.reshape(-1, 64)))
    (patches, named), (images_of_test, same) = setting.data("test", 3), splits[2]
    first = images_of_test[0].reshape(8, 8)
    np.testing.assert_array_equal(patches[0, 5], first[2:4, 2:4].reshape(-1))
    np.testing.assert_array_equal(named, same)
    assert not np.array_equal(named, setting.data("test", 4)[1])


@pytest.mark.slow
def test_the_best_forecast_of_a_series_leaves_its_noise_and_nothing_beats_it():
    setting = Series(num_train_examples=4000, num_test_examples=4000)
    x, y = setting.data("train", 0)
    assert x.shape == (4000, 36, 5) and y.shape == (4000, 4, 4)
    assert not x[:, 32:, :4].any() and (x[:, 32:, 4] == 1).all() and not x[:, :32, 4].any()
    np.testing.assert_allclose(y.var((0, 1)), 1, atol=0.05)
    known = np.concatenate((x[:, :32, :4].reshape(len(x), -1), np.ones((len(x), 1))), 1)
    weights = np.linalg.lstsq(known[:2000], y[:2000].reshape(2000, -1), rcond=None)[0]
    fitted = 1 - np.square(y[2000:].reshape(2000, -1) - known[2000:] @ weights).mean()
    assert (
        setting.ceiling(0) == pytest.approx(0.95**2, abs=0.01)
        and setting.ceiling(0) - 0.02 < fitted < setting.ceiling(0) + 0.01
    )
    followed, lags, coupling = setting.couplings()
    for c in range(4):  # the fit finds one number of the window a channel, at its lag
        largest = np.abs(weights[:-1, c]).argmax()
        assert divmod(largest, 4) == (32 - lags[c], followed[c])
        assert weights[largest, c] == pytest.approx(coupling[c], abs=0.05)


@pytest.mark.parametrize(
    ("task", "change", "says"),
    [
        ("digits", "patch=3", "patch must divide 8, got 3"),
        ("digits", "num_train_examples=1400", "1,900 images in three splits; there are 1,797"),
        ("forecasting", "longest_lag=33", "longest_lag 33 exceeds the window of 32"),
        ("forecasting", "num_channels=22", "22 channels need as many lags"),
        ("forecasting", "coupling=1", "coupling must be above 0 and below 1"),
        ("forecasting", "lag=3", "unknown key 'lag'"),
    ],
)
def test_invalid_settings_of_signals_are_refused(task, change, says):
    with pytest.raises(ConfigError, match=says):
        SignalProfile.load("quick", [f"tasks.{task}.setting.{change}"])


def test_jobs_have_different_ids_exactly_if_their_training_differs():
    (digits, series) = jobs("S-p")
    assert (digits.task, series.task) == TASKS and job_from_dict(digits.to_dict()).id == digits.id
    assert jobs("S-p", tasks=["digits"], more=["model.causal=true"])[0].id != digits.id
    with pytest.raises(ConfigError, match=r"training\.batch_size has no effect"):  # all 64 examples are one batch
        jobs("S-p", tasks=["digits"], more=["training.batch_size=99"])


def test_two_batches_that_hold_all_examples_are_not_two_jobs():
    def jobs_of(size: int):
        more = ["tasks.digits.setting.num_train_examples=200", f"training.batch_size={size}"]
        return SIGNALS.jobs(["S-p"], SignalProfile.load("quick", more), tasks=["digits"])

    assert [job.training.batch_size for job in jobs_of(200)] == [200]
    with pytest.raises(ConfigError, match=r"batch_size=999 trains the same as training\.batch_size=200"):
        jobs_of(999)


def test_a_causal_label_is_refused_unless_the_model_is_causal():
    with pytest.raises(
        LabelError,
        match="cd:id-dg sees only earlier tokens, .*; labels of S/R/G and .* can see all .*model.causal=true",
    ):
        jobs("cd:gla", tasks=["digits"])
    assert jobs("cd:gla", tasks=["digits"], more=["model.causal=true"])[0].model.causal


@pytest.mark.parametrize("label", ["S-p", "G-cg-q-12o", "hfa:2"])
@pytest.mark.parametrize("task", TASKS)
def test_the_model_has_the_stated_parameters_and_causality(label, task):
    for causal in ("false", "true"):
        (job,) = jobs(label, tasks=[task], more=["model.causal=" + causal])
        model = SignalTrial.build(job)
        assert sum(p.numel() for p in model.parameters()) == size_of(job).parameters
        x = SignalTrial.examples(job, 2, {})
        hidden = model.backbone(x)
        x[:, -1] += 1
        assert torch.equal(hidden[:, 0], model.backbone(x)[:, 0]) == (causal == "true")


@pytest.mark.slow
def test_a_non_causal_mixer_learns_a_series(tmp_path):
    setting = {"window": 6, "longest_lag": 2, "horizon": 1, "num_channels": 2, "num_train_examples": 512}
    few = [f"tasks.forecasting.setting.{name}={value}" for name, value in setting.items()]
    profile = SignalProfile.load("quick", [*few, "tasks.forecasting.training.epochs=8"])
    (job,) = SIGNALS.jobs(["R-cg-q-12o"], profile, tasks=["forecasting"])
    record = train_job(job, tmp_path, lambda progress: None)
    assert record.status == "finished" and record.metrics["ceiling"] > 0.85
    assert record.metrics["score"] > 0.6 and record.metrics["score"] < record.metrics["ceiling"] + 0.02
    assert len(record.curve) == 8


def test_the_readout_gives_one_output_or_one_per_forecast_step():
    class Sum(torch.nn.Module):
        def forward(self, x):
            return x.cumsum(1)

    model = SignalModel(3, 2, 0, 8, 1, Sum)
    assert model(torch.randn(4, 5, 3)).shape == (4, 2)
    assert SignalModel(3, 2, 2, 8, 1, Sum)(torch.randn(4, 5, 3)).shape == (4, 2, 2)


def test_suites_with_epochs_share_the_code_that_draws_batches():
    for trial in (SignalTrial, TokenTrial):
        assert issubclass(trial, EpochTrial)
        assert not {"micro_batches", "has_row", "mixers", "_examples"} & vars(trial).keys()


def test_a_suite_may_describe_a_profile_without_its_number_of_runs():
    class DescribedSuite(SignalSuite):
        def check_profile(self, profile):
            return "images and series", {64}

    profile = SIGNALS.Profile.load(SIGNALS.default)
    assert DescribedSuite().about_profile(profile) == SIGNALS.about_profile(profile) == {"runs": len(SIGNALS.tasks())}
