"""Estimates against what they estimate: torch's counter, a counted step and a timed run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from madbench.errors import TrainingError
from madbench.language_jobs import GPTConfig, LanguageJob, LanguageTraining
from madbench.models.gpt import GPT
from madbench.training import language_cost
from madbench.training.language_cost import (
    all_pairs_flops_per_token,
    counted_flops_per_token,
    estimate_seconds,
    forward_flops_per_token,
    peak_memory_bytes,
)
from madbench.training.language_model import build_gpt
from madbench.training.peak_memory import PeakMemory

MODEL = GPTConfig(d_model=32, n_layer=2, seq_len=24, mix_rank=3)
TRAINING = LanguageTraining(steps=20, tokens_per_step=24 * 4, eval_every=5, eval_sequences=6, warmup_steps=2)
JOB = LanguageJob("S", "0" * 16, 64, MODEL, TRAINING, counting="published")
LABELS = (
    "S",
    "S-p",
    "R",
    "G",
    "R-c",
    "R-g-q",
    "R-q-1",
    "R-q-2",
    "R-q-12",
    "R-q-12o",
    "S-q-12o",
    "G-q-1o",
    "G-cg-q-12o",
)


@pytest.mark.parametrize("label", LABELS)
def test_the_formula_in_the_counters_convention_equals_the_counter(label):
    job = replace(JOB, label=label)
    assert 3 * all_pairs_flops_per_token(build_gpt(job), 24) == pytest.approx(counted_flops_per_token(job), rel=1e-12)


@pytest.mark.parametrize("label", LABELS)
def test_the_two_formulas_differ_by_masked_pairs_zero_columns_and_elementwise_work(label):
    model = build_gpt(replace(JOB, label=label))
    a = model.blocks[0].mixer.allocation
    heads = a.query_heads * a.variant.mix1 + a.n_head * a.variant.mix2
    products = 2 * (a.ranks.qk + a.ranks.vo) + 4 * heads * a.ranks.mix
    masked = products * 23 / 2 + 2 * (a.ranks.qk + a.ranks.vo) * a.variant.lag
    elementwise = 16 * 32 * a.variant.conv + 2 * heads * 25 / 2
    difference = all_pairs_flops_per_token(model, 24) - forward_flops_per_token(model, 24)
    assert difference == pytest.approx(2 * (masked - elementwise), rel=1e-9)


def test_the_flops_of_softmax_attention_by_hand():
    """d 32, two blocks, T 24: 8 d^2 of projections, 16 d^2 of MLP, 4 d for each of 12.5 pairs; 2 d V at the end."""
    by_hand = 2 * (24 * 32**2 + 4 * 32 * 12.5) + 2 * 32 * 64
    assert forward_flops_per_token(build_gpt(JOB), 24) == by_hand


def test_a_mixer_without_a_formula_is_counted():
    model = GPT(64, MODEL, lambda: nn.Linear(32, 32, bias=False))
    assert all_pairs_flops_per_token(model, 24) is None
    assert forward_flops_per_token(model, 24) == 2 * (2 * 32**2 + 16 * 32**2) + 2 * 32 * 64


def test_the_whole_cost_is_steps_and_both_evaluations():
    cost = language_cost.language_cost(JOB, micro_batch=3)
    forward = forward_flops_per_token(build_gpt(JOB), 24)
    assert cost.flops_per_token == 3 * forward
    assert cost.flops == forward * (3 * 20 * 96 + 4 * 2 * 6 * 24)
    assert cost.parameters == sum(p.numel() for p in build_gpt(JOB).parameters())
    assert cost.counted_flops_per_token == pytest.approx(cost.all_pairs_flops_per_token)
    assert (cost.micro_batch, language_cost.language_cost(JOB).micro_batch) == (3, 4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("label", "micro_batch"), [("S", 4), ("G-cg-q-12o", 2)])
def test_peak_memory_without_data_is_that_of_a_real_deeper_model(label, micro_batch, precision):
    training = replace(TRAINING, precision=precision)
    job = replace(JOB, label=label, model=replace(MODEL, n_layer=5), training=training)
    model, tokens = build_gpt(job), torch.zeros(micro_batch, 24, dtype=torch.long)
    with PeakMemory() as memory:
        for _ in range(4 // micro_batch):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = model.loss(tokens, tokens)
            loss.backward()
    parameters = 4 * sum(p.numel() for p in model.parameters())
    assert peak_memory_bytes(job, micro_batch) == pytest.approx(3 * parameters + memory.peak, rel=0.01)


def test_peak_memory_grows_with_the_micro_batch_and_not_with_the_steps():
    job = replace(JOB, training=replace(TRAINING, tokens_per_step=24 * 64))
    assert peak_memory_bytes(job, 32) > 1.5 * peak_memory_bytes(job, 16)
    assert peak_memory_bytes(job, 8) == peak_memory_bytes(replace(job, training=replace(job.training, steps=500)), 8)


def test_seconds_are_windows_passes_and_optimiser_steps(monkeypatch):
    """Every timed call takes 0.01 s, whether it is of one window, of all four or of the optimiser."""
    monkeypatch.setattr(language_cost, "_best_seconds", lambda run, device: (run(), 0.01)[1])
    training, evaluation = estimate_seconds(JOB, "cpu")
    assert training == pytest.approx(20 * (4 * 0.01 / 4 + 0.01))
    assert evaluation == pytest.approx(4 * 2 * 6 * 0.01 / 4)


def test_calibration_ends_early_where_passes_are_slow(monkeypatch):
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(language_cost.time, "perf_counter", lambda: next(clock))
    calls = []
    assert language_cost._best_seconds(lambda: calls.append(1), "cpu") == 3
    assert len(calls) == 1


def test_a_model_too_large_to_describe_is_an_error():
    huge = replace(JOB, model=replace(MODEL, d_model=2**31))
    with pytest.raises(TrainingError, match="too large to build"):
        language_cost.language_cost(huge)
