from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import TrainingError
from madbench.jobs import Job
from madbench.suites.plan import plan
from madbench.suites.profile import load_profile
from madbench.tasks import TASK_NAMES, make_setting
from madbench.training import cost
from madbench.training.cost import estimate_seconds, forward_flops_per_token, job_cost
from madbench.training.loop import build_model

EXAMPLES = [
    f"tasks.compression.setting.num_{split}_examples={count}"
    for split, count in {"train": 1600, "validation": 256, "test": 512}.items()
]


def quick_job(label: str, task: str, *overrides: str, **choices) -> Job:
    return plan([label], load_profile("quick", overrides), tasks=[task], **choices)[0]


@pytest.mark.parametrize("label", ["R", "S-g-q", "R-c-v", "R-12!", "G-g-q"])
@pytest.mark.parametrize("task", ["compression", "in_context_recall", "memorization"])
def test_forward_flops_are_the_matrix_products_of_the_model_without_masked_pairs(label, task):
    """The dense path multiplies all T x T pairs; a causal model needs T (T + 1) / 2 of them."""
    job = quick_job(label, task)
    setting = make_setting(task, job.setting, task)
    model, length, batch = build_model(job), setting.input_len, 2
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.randint(setting.vocab_size, (batch, length)))
    mixer = model.backbone.layers[0]
    ranks, variant = mixer.allocation.ranks, mixer.variant
    mixing_heads = mixer.query_heads * variant.mix1 + mixer.n_head * variant.mix2
    products_a_pair = 2 * ranks.qk + 2 * ranks.vo + 4 * ranks.mix * mixing_heads
    masked_pairs = length * (length - 1) / 2
    conv_taps = 2 * 2 * 4 * job.model.d_model * variant.conv
    diagonal_of_mixing = 2 * mixing_heads * (length + 1) / 2
    a_mixer = conv_taps + diagonal_of_mixing - products_a_pair * masked_pairs / length
    expected = counter.get_total_flops() / (batch * length) + job.model.n_layer * a_mixer
    assert forward_flops_per_token(job, setting) == pytest.approx(expected, rel=1e-12)


def test_steps_include_the_short_last_batch():
    small = ("tasks.memorization.setting.num_train_examples=65", "training.batch_size=32")
    job = quick_job("S", "memorization", *small, "tasks.memorization.training.epochs=4")
    assert job_cost(job).steps == 4 * 3


def test_a_backward_pass_counts_twice_a_forward_pass_and_evaluations_once():
    job = quick_job("S", "compression", "training.epochs=10", *EXAMPLES)
    setting = make_setting("compression", job.setting, "")
    forward = forward_flops_per_token(job, setting) * setting.input_len
    examples = 10 * 1600 * 3 + 10 * 256 + 512
    assert job_cost(job).flops == pytest.approx(forward * examples)
    judged_on_test = 10 * 1600 * 3 + 11 * 512
    assert job_cost(replace(job, fidelity="published")).flops == pytest.approx(forward * judged_on_test)


@pytest.mark.parametrize("label", ["S", "R-c-12!", "G-cg-q-12o", "S-pg-v-1"])
def test_parameters_are_those_of_the_built_model(label):
    for task in ("compression", "memorization"):
        job = quick_job(label, task, "model.d_model=48", "model.n_layer=3")
        assert job_cost(job).model_parameters == sum(p.numel() for p in build_model(job).parameters())


def test_seeds_rates_and_decays_cost_the_same_and_are_counted_once(monkeypatch):
    for name in ("_OF_JOB", "_OF_SIZES"):
        monkeypatch.setattr(cost, name, {})
    job = quick_job("S", "compression", "training.batch_size=32", *EXAMPLES)
    variations = [
        job,
        replace(job, seed=5),
        replace(job, training=replace(job.training, learning_rate=0.5, weight_decay=0.1)),
    ]
    assert len({id(job_cost(variation)) for variation in variations}) == 1
    assert job_cost(replace(job, training=replace(job.training, epochs=1))).steps == 50


def test_the_estimate_scales_with_the_jobs_and_leaves_the_threads_alone(monkeypatch):
    threads, timed = torch.get_num_threads(), []

    def one_second_a_step(job, device):
        timed.append((job.task, torch.get_num_threads()))
        return 1.0

    monkeypatch.setattr(cost, "seconds_per_step", one_second_a_step)
    lengths = ["training.batch_size=32", "training.epochs=10", "tasks.memorization.training.epochs=60"]
    profile = load_profile("quick", [*lengths, *EXAMPLES, "tasks.memorization.setting.num_train_examples=256"])
    jobs = plan(["S"], profile, tasks=["compression", "memorization"], seeds=[0, 1])
    assert estimate_seconds(jobs, "cpu") == pytest.approx(2 * (10 * 50 + 60 * 8))
    assert timed == [("compression", 1), ("memorization", 1)]
    assert torch.get_num_threads() == threads
    assert estimate_seconds([], "cpu") == 0


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_time_of_a_real_step_is_positive_and_finite(precision):
    small = [f"tasks.{task}.setting.num_train_examples=8" for task in TASK_NAMES]
    profile = load_profile("quick", ["model.d_model=16", *small])
    seconds = estimate_seconds(plan(["R-q"], profile, precision=precision), "cpu")
    assert 0 < seconds < math.inf


def test_a_model_past_what_a_tensor_can_hold_is_a_users_error():
    with pytest.raises(TrainingError, match="S compression at d_model 100000000000: too large to build"):
        job_cost(quick_job("S", "compression", "model.d_model=100000000000"))
