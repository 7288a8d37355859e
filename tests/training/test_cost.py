"""Estimated costs, compared with built models, torch's counter and allocator, and timed runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import TrainingError
from madbench.jobs import Job
from madbench.mixers.srg import tiled
from madbench.models import token_loss
from madbench.models.token_loss import TokenLoss
from madbench.suites import size_of
from madbench.suites.language.suite import LANGUAGE, GPTConfig, LanguageTraining
from madbench.suites.mad.suite import MAD, MAD_TASKS, MadProfile
from madbench.suites.tokens import setting_of
from madbench.training import cost
from madbench.training.cost import PeakMemory, counted_flops_per_token, peak_memory_bytes, seconds_per_flop
from sample_jobs import language_job

EXAMPLES = [
    f"tasks.compression.setting.num_{split}_examples={count}"
    for split, count in {"train": 1600, "validation": 256, "test": 512}.items()
]
MODEL = GPTConfig(d_model=32, n_layer=2, seq_len=24)
TRAINING = LanguageTraining(steps=20, tokens_per_step=24 * 4, eval_every=5, eval_sequences=6, warmup_steps=2)
LABELS = ("S-p", "G", "R-c", "R-q-1", "R-q-2", "S-q-12o", "G-cg-q-12o")


def quick_job(label: str, task: str, *overrides: str, **choices) -> Job:
    return MAD.jobs([label], MadProfile.load("quick", overrides), tasks=[task], **choices)[0]


def text_job(label: str = "S", model: GPTConfig = MODEL, training: LanguageTraining = TRAINING) -> Job:
    how = {"model": model, "mixer": {"mix_rank": 3}, "training": training, "budget": "paper"}
    return language_job(label, "0" * 16, 64, **how)


@pytest.mark.parametrize("label", ["R", "S-g-q", "R-c-v", "R-12!", "G-g-q"])
@pytest.mark.parametrize("task", ["compression", "in_context_recall", "memorization"])
def test_forward_flops_are_the_matrix_products_of_the_model_without_masked_pairs(label, task):
    """The dense path multiplies all T x T pairs; a causal model needs T (T + 1) / 2 of them."""
    job = quick_job(label, task)
    setting = setting_of(job)
    model, length, batch = MAD.Trial.build(job), setting.input_len, 2
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.randint(setting.vocab_size, (batch, length)))
    mixer = model.backbone.layers[0]
    ranks, parsed = mixer.allocation.ranks, mixer.label
    mixing_heads = mixer.query_heads * parsed.mix1 + mixer.n_head * parsed.mix2
    products_a_pair = 2 * ranks["qk"] + 2 * ranks["vo"] + 4 * ranks["mix"] * mixing_heads
    masked_pairs = length * (length - 1) / 2
    conv_taps = 2 * 2 * 4 * job.model.d_model * parsed.conv
    diagonal_of_mixing = 2 * mixing_heads * (length + 1) / 2
    a_mixer = conv_taps + diagonal_of_mixing - products_a_pair * masked_pairs / length
    expected = counter.get_total_flops() / (batch * length) + job.model.n_layer * a_mixer
    assert size_of(job).flops_per_token == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_the_counter_sees_masked_pairs_and_zero_columns_and_no_elementwise_work(label):
    job = text_job(label)
    a = LANGUAGE.Trial.build(job).blocks[0].mixer.allocation
    parsed, ranks, heads = a.label, a.ranks, a.query_heads
    mixing_heads = heads * parsed.mix1 + a.size.n_head * parsed.mix2
    widths = 2 * (ranks["qk"] + ranks["vo"])
    masked = (widths + 4 * mixing_heads * ranks["mix"]) * 23 / 2 + widths * (parsed.layout == "lag")
    elementwise = 16 * 32 * parsed.conv + 2 * mixing_heads * 25 / 2
    expected = size_of(job).flops_per_token + 2 * (masked - elementwise)
    assert counted_flops_per_token(job) == pytest.approx(3 * expected, rel=1e-12)


def test_the_flops_of_softmax_attention_by_hand():
    """d 32, two blocks, T 24: 8 d^2 of projections, 16 d^2 of MLP, 4 d for each of 12.5 pairs; 2 d V at the end."""
    assert size_of(text_job()).flops_per_token == 2 * (24 * 32**2 + 4 * 32 * 12.5) + 2 * 32 * 64


def test_steps_include_the_short_last_batch():
    small = ("tasks.memorization.setting.num_train_examples=65", "training.batch_size=32")
    job = quick_job("S", "memorization", *small, "tasks.memorization.training.epochs=4")
    assert size_of(job).steps == 4 * 3


def test_a_backward_pass_counts_twice_a_forward_pass_and_evaluations_once():
    job = quick_job("S", "compression", "training.epochs=10", *EXAMPLES)
    forward = size_of(job).flops_per_token * setting_of(job).input_len
    assert size_of(job).flops == pytest.approx(forward * (10 * 1600 * 3 + 10 * 256 + 512))
    judged_on_test = 10 * 1600 * 3 + 11 * 512
    assert size_of(replace(job, fidelity="published")).flops == pytest.approx(forward * judged_on_test)
    text = size_of(text_job())
    assert text.flops == text.flops_per_token * (3 * 20 * 96 + 4 * 2 * 6 * 24)


@pytest.mark.parametrize("label", ["S", "R-c-12!", "G-cg-q-12o", "S-pg-v-1"])
def test_estimated_parameters_equal_the_built_models(label):
    jobs = [quick_job(label, task, "model.d_model=48", "model.n_layer=3") for task in ("compression", "memorization")]
    jobs += [text_job(label), text_job(label, replace(MODEL, positions="learned"))]
    for job in jobs:
        suite = {"mad": MAD, "language": LANGUAGE}[job.suite]
        assert size_of(job).parameters == sum(p.numel() for p in suite.Trial.build(job).parameters())


@pytest.mark.slow
@pytest.mark.parametrize(("label", "micro_batch", "precision"), [("S", 4, "bfloat16"), ("G-cg-q-12o", 2, "float32")])
def test_estimated_peak_memory_equals_that_of_a_real_deeper_model(label, micro_batch, precision):
    job = text_job(label, replace(MODEL, n_layer=6), replace(TRAINING, precision=precision))
    model, tokens = LANGUAGE.Trial.build(job), torch.zeros(micro_batch, 24, dtype=torch.long)
    with PeakMemory() as memory:
        for _ in range(4 // micro_batch):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = TokenLoss(model)(tokens, tokens)
            loss.backward()
    parameters = 4 * sum(p.numel() for p in model.parameters())
    assert peak_memory_bytes(job, micro_batch) == pytest.approx(3 * parameters + memory.peak, rel=0.01)


def allocated_peak(compute: Callable[[], object], trace: Path) -> int:
    """The peak of bytes that torch's allocator gives out during a computation, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        compute()
    profiler.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    events = sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"])
    return max(accumulate(event["args"]["Bytes"] for event in events))


@pytest.mark.slow
@pytest.mark.parametrize("label, length", [("G-cg-q-12o", 256), ("S-12!", 512)])
def test_the_estimated_memory_of_one_sequence_equals_what_torch_allocates(label, length, tmp_path, monkeypatch):
    """Tested with tiles that keep their values for the backward pass, which take most of the memory, and with tiles
    that do not."""
    job = text_job(label, replace(MODEL, n_head=4, seq_len=length), replace(TRAINING, tokens_per_step=length))
    ids, stated = torch.zeros(1, length, dtype=torch.long), []
    for number, kept in enumerate((tiled.KEPT_NUMBERS, 0)):
        monkeypatch.setattr(tiled, "KEPT_NUMBERS", kept)
        job = replace(job, training=replace(job.training, steps=20 + 5 * number))  # peaks of equal jobs are found once
        stated.append(peak_memory_bytes(job, 1))
        model = LANGUAGE.Trial.build(job)
        peak = allocated_peak(lambda model=model: TokenLoss(model)(ids, ids).backward(), tmp_path / f"{number}.json")
        parameters = 4 * sum(p.numel() for p in model.parameters())
        assert stated[-1] == pytest.approx(3 * parameters + peak, rel=1e-4)
    assert stated[0] > 1.5 * stated[1]


def test_peak_memory_is_computed_once_per_shape(monkeypatch):
    made = []
    random_batch = LANGUAGE.Trial.random_batch

    def counted(*inputs):
        made.append(inputs)
        return random_batch(*inputs)

    monkeypatch.setattr(LANGUAGE.Trial, "random_batch", counted)
    job = text_job(model=replace(MODEL, d_model=16, n_layer=1))
    others = [replace(job, seed=seed, training=replace(job.training, learning_rate=seed / 1e4)) for seed in (1, 2)]
    assert len({peak_memory_bytes(each, 3) for each in (job, *others)}) == 1 == len(made)
    assert peak_memory_bytes(job, 2) < peak_memory_bytes(job, 3)
    deeper = replace(job, model=replace(job.model, n_layer=2))
    assert peak_memory_bytes(deeper, 3) > peak_memory_bytes(job, 3)
    assert len(made) == 3


@pytest.mark.slow
def test_peak_memory_grows_with_the_micro_batch_and_not_with_the_steps():
    job = text_job(training=replace(TRAINING, tokens_per_step=24 * 64))
    assert peak_memory_bytes(job, 32) > 1.5 * peak_memory_bytes(job, 16)
    assert peak_memory_bytes(job, 8) == peak_memory_bytes(replace(job, training=replace(job.training, steps=500)), 8)


def test_the_smallest_job_of_each_task_is_timed():
    """The other jobs have more parameters than any machine has memory for."""
    few = [f"tasks.{task}.setting.num_train_examples=8" for task in ("compression", "memorization")]
    jobs = MAD.jobs(["S"], MadProfile.load("quick", ["model.d_model=16", *few]), tasks=["compression", "memorization"])
    huge = [replace(job, model=replace(job.model, d_model=65_536, n_layer=400)) for job in jobs]
    with pytest.raises(TrainingError, match="this machine has"):
        seconds_per_flop(huge, "cpu", 1)
    found = seconds_per_flop([huge[0], *jobs, huge[1]], "cpu", 1)
    assert list(found) == ["compression", "memorization"] and all(seconds > 0 for seconds in found.values())
    assert seconds_per_flop([], "cpu", 1) == {}


def test_a_large_model_is_timed_by_one_block_of_it_on_fewer_tokens(monkeypatch):
    """A small model is timed as a whole. An error names the parameters of what would be timed."""
    small = replace(MODEL, positions="learned")
    large = replace(small, n_layer=1000, seq_len=100_000)
    with monkeypatch.context() as patch:
        patch.setattr("os.sysconf", lambda name: 100)
        for model, timed in ((large, replace(small, n_layer=1, seq_len=cost.LARGE_TOKENS)), (small, small)):
            parameters = size_of(text_job(model=timed)).parameters
            with pytest.raises(TrainingError, match=f" {parameters:,} parameters and their gradients"):
                seconds_per_flop([text_job(model=model)], "cpu", 1)
    job = text_job(model=large, training=replace(TRAINING, tokens_per_step=100_000))
    assert seconds_per_flop([job], "cpu", 1)["language_model"] > 0


@pytest.mark.slow
def test_counted_flops_are_equal_if_logits_are_computed_in_parts(monkeypatch):
    whole = counted_flops_per_token(text_job())
    monkeypatch.setattr(token_loss, "MOST_LOGITS", 64 * 5)
    assert counted_flops_per_token(text_job()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_time_of_real_passes_is_positive_and_finite_and_leaves_the_threads_alone(precision):
    threads = torch.get_num_threads()
    small = [f"tasks.{task}.setting.num_train_examples=8" for task in MAD_TASKS]
    jobs = MAD.jobs(["R-q"], MadProfile.load("quick", ["model.d_model=16", *small]), precision=precision)
    found = seconds_per_flop([*jobs, text_job()], "cpu", 1)
    assert set(found) == {*MAD_TASKS, "language_model"} and all(0 < seconds < math.inf for seconds in found.values())
    assert torch.get_num_threads() == threads


def test_a_model_beyond_the_memory_of_this_machine_is_a_users_error(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    with pytest.raises(TrainingError, match="parameters and their gradients take .* GB; this machine has"):
        seconds_per_flop([text_job()], "cpu", 1)
