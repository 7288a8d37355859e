"""The id of a job depends on every field, and on nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.errors import ConfigError
from madbench.jobs import Job, StoredJob, content_id
from madbench.models.shapes import ModelConfig
from madbench.suites import job_from_dict
from madbench.suites.tokens import TrainingConfig

MIXER = {"mix_rank": 16, "rope": "rotation"}
SETTING = {"vocab_size": 16, "seq_len": 32, "frac_noise": 0.2}
JOB = Job("mad", "compression", "G-cg-q-12o", "1", SETTING, ModelConfig(), MIXER, TrainingConfig())

positive = st.integers(1, 1000)
rate = st.floats(0, 1, allow_nan=False)
models = st.builds(
    ModelConfig,
    **dict.fromkeys(("d_model", "n_head", "n_layer"), positive),
)
trainings = st.builds(
    TrainingConfig,
    **dict.fromkeys(("learning_rate", "weight_decay", "min_learning_rate", "stop_accuracy"), rate),
    **dict.fromkeys(("epochs", "batch_size"), positive),
    precision=st.sampled_from(["float32", "bfloat16"]),
)
jobs = st.builds(
    Job,
    suite=st.just("mad"),
    family=st.sampled_from(["1", "2"]),
    mixer=st.dictionaries(st.text("abc_", max_size=4), positive | st.text("xy", max_size=2)),
    label=st.text("GRS-cgq12o!", max_size=8),
    task=st.sampled_from(["compression", "memorization"]),
    setting=st.dictionaries(st.text("abc_", max_size=4), positive | rate | st.booleans() | st.text("xy", max_size=2)),
    model=models,
    training=trainings,
    seed=st.integers(0, 100),
    fidelity=st.sampled_from(["corrected", "published"]),
    budget=st.sampled_from(["strict", "paper"]),
)


def flat_leaves(mapping: dict, prefix: str = "") -> dict:
    """Every leaf of a nested mapping with its type, so that 1, 1.0 and True differ."""
    leaves = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            leaves |= {f"{prefix}{key}": dict} | flat_leaves(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = (type(value), value)
    return leaves


def variations() -> list[Job]:
    """Copies of ``JOB`` with exactly one changed field, for every field."""
    changed = []
    for name, value in dataclasses.asdict(JOB).items():
        if not isinstance(value, dict):
            changed.append(dataclasses.replace(JOB, **{name: other(value)}))
        elif name in ("setting", "mixer"):
            changed += [dataclasses.replace(JOB, **{name: {**value, key: other(item)}}) for key, item in value.items()]
            changed += [dataclasses.replace(JOB, **{name: changes}) for changes in ({**value, "extra": 1}, {})]
        else:
            part = getattr(JOB, name)
            for key, item in value.items():
                changed.append(dataclasses.replace(JOB, **{name: dataclasses.replace(part, **{key: other(item)})}))
    return changed


def other(value):
    named = {
        "corrected": "published",
        "strict": "paper",
        "rotation": "mispaired",
        "float32": "bfloat16",
        "adamw": "muon",
    }
    named |= {0.9: 0.8, 0.999: 0.98}  # a decay is below 1
    return named.get(value, value + "x" if isinstance(value, str) else value + 1)


def test_changing_any_one_field_changes_the_id():
    ids = [JOB.id, *(job.id for job in variations())]
    parts = sum(len(dataclasses.fields(cls)) for cls in (ModelConfig, TrainingConfig))
    n_fields = 9 + len(SETTING) + 2 + len(MIXER) + 2 + parts + 1
    assert len(ids) == n_fields
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
@given(jobs, jobs)
def test_two_jobs_share_an_id_exactly_if_their_contents_are_equal(one, two):
    assert (one.id == two.id) == (flat_leaves(one.to_dict()) == flat_leaves(two.to_dict()))


@pytest.mark.slow
@given(jobs)
def test_a_job_survives_json(job):
    again = job_from_dict(json.loads(json.dumps(job.to_dict())))
    assert again == job
    assert again.id == job.id


def test_an_id_is_16_hexadecimal_digits():
    assert re.fullmatch("[0-9a-f]{16}", JOB.id)


def test_a_field_added_later_changes_no_id_at_its_default():
    old = {key: value for key, value in vars(ModelConfig()).items() if key != "mlp_width"}
    assert "mlp_width" in vars(ModelConfig()) and "beta2" in vars(TrainingConfig())
    without = job_from_dict({**JOB.to_dict(), "model": old})
    assert JOB.id == without.id == "be2cd1a57d29f1d5"
    assert dataclasses.replace(JOB, model=ModelConfig(mlp_width=256)).id != JOB.id


def test_the_order_of_a_setting_does_not_matter():
    assert dataclasses.replace(JOB, setting=dict(reversed(JOB.setting.items()))).id == JOB.id


def test_an_integer_rate_is_the_same_job_as_the_float():
    one, two = (dataclasses.replace(JOB, training=TrainingConfig(weight_decay=value)) for value in (1, 1.0))
    assert one.id == two.id == job_from_dict(one.to_dict()).id


@pytest.mark.slow
def test_an_id_does_not_depend_on_the_process():
    code = f"from madbench.suites import *; print(job_from_dict({JOB.to_dict()!r}).id)"
    command = [sys.executable, "-c", code]
    ids = {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)}
    assert ids == {JOB.id}


def test_seeds_of_the_streams_differ_and_are_reproducible():
    seeds = {(seed, stream): dataclasses.replace(JOB, seed=seed).derived_seed(stream)
             for seed in range(20) for stream in ("init", "data", "order")}  # fmt: skip
    assert len(set(seeds.values())) == 60
    assert min(seeds.values()) >= 0 and 2**62 <= max(seeds.values()) < 2**63
    assert seeds[0, "init"] == JOB.derived_seed("init")


@pytest.mark.parametrize("name", ["d_model", "n_head", "n_layer"])
def test_a_model_needs_positive_sizes(name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        ModelConfig(**{name: 0})


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "min_learning_rate", "stop_accuracy"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_rate_must_be_a_finite_number_of_at_least_zero(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be a number of at least 0"):
        TrainingConfig(**{name: value})


def test_a_decay_of_the_optimizer_is_below_one():
    assert TrainingConfig(beta2=0.98).betas == (0.9, 0.98)
    with pytest.raises(ConfigError, match="beta2 must be a number from 0 to below 1"):
        TrainingConfig(beta2=1.0)


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
def test_a_training_needs_positive_counts(name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        TrainingConfig(**{name: 0})


def stored_job(make, **changes) -> StoredJob:
    """The job ``JOB`` with other plain values, as read from an index."""
    values = {name: value for name, value in JOB.to_dict().items() if name not in ("label", "seed")}
    return StoredJob.from_values(JOB.id, values | changes, JOB.label, JOB.seed, make)


def test_a_stored_job_makes_its_configurations_when_they_are_needed():
    made = []
    stored = stored_job(lambda: made.append("made") or JOB)
    assert (stored.label, stored.seed, stored.rates, stored.precision) == (JOB.label, JOB.seed, JOB.rates, "float32")
    assert not made
    assert stored.model == JOB.model and stored.training == JOB.training and made == ["made"]
    assert stored == JOB and dataclasses.replace(stored, seed=7) == dataclasses.replace(JOB, seed=7) != JOB
    for job in (stored, JOB):
        with pytest.raises(AttributeError, match="object has no attribute 'modle'"):
            job.modle  # noqa: B018


def make_equal_job() -> Job:
    return dataclasses.replace(JOB)


@pytest.mark.parametrize("is_used", [False, True])
def test_a_stored_job_is_pickled_before_and_after_its_first_use(is_used):
    stored = stored_job(make_equal_job)
    assert not is_used or stored.model
    copy = pickle.loads(pickle.dumps(stored))
    assert copy == stored and type(copy) is StoredJob
    assert copy.to_dict() == JOB.to_dict()


def test_a_changed_copy_of_a_stored_job_has_its_own_numbers():
    training = TrainingConfig(learning_rate=0.25, precision="bfloat16")
    changed = dataclasses.replace(stored_job(make_equal_job), training=training)
    assert (changed.training, changed.rates[0], changed.precision) == (training, 0.25, "bfloat16")
    assert changed == dataclasses.replace(JOB, training=training) != JOB


@pytest.mark.parametrize("name", ["model", "training", "seed"])
def test_a_stored_job_is_immutable(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(stored_job(make_equal_job), name, getattr(JOB, name))


@pytest.mark.parametrize("changes", [{"training": {}}, {"training": 1}, {"sead": 1}])
def test_stored_job_refuses_wrong_fields(changes):
    with pytest.raises(TypeError, match="not the"):
        stored_job(None, **changes)


def test_rates_missing_from_the_training_are_zero():
    assert dataclasses.replace(JOB, training=SimpleNamespace(learning_rate=0.5)).rates == (0.5, 0.0)
    made = dataclasses.replace(JOB, training=SimpleNamespace(weight_decay=0.1))
    assert stored_job(lambda: made, training={"precision": "float32"}).rates == (0.0, 0.1)


def test_a_job_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        JOB.seed = 1


def test_content_id_refuses_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        content_id({"rate": math.nan})


def test_a_foreign_key_in_a_job_is_an_error():
    with pytest.raises(ConfigError, match="job: unknown key 'sead'; did you mean 'seed'?"):
        job_from_dict({**JOB.to_dict(), "sead": 1})


@pytest.mark.slow
@given(job=jobs)
def test_a_dictionary_of_a_job_is_a_deep_copy(job):
    mapping = job.to_dict()
    mapping["setting"]["new"] = mapping["model"]["d_model"] = 0
    assert "new" not in job.setting and job.model.d_model


def test_a_job_of_an_unknown_suite_is_an_error():
    with pytest.raises(ConfigError, match="unknown suite 'madd'; did you mean 'mad'?"):
        job_from_dict({**JOB.to_dict(), "suite": "madd"})
