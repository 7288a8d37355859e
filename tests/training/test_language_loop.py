"""A language-model run equals the recipe written out by hand; divergence, records and refusals."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
import torch

from madbench.errors import ConfigError, TrainingError
from madbench.store.runs import Store
from madbench.suites.language import trial as language_trial
from madbench.suites.language.suite import LANGUAGE, LanguageTraining
from madbench.suites.language.trial import LanguageTrial, evaluation_starts, training_starts
from madbench.training import distributed, loop, member
from madbench.training.checkpoints import load_model
from sample_jobs import train_job

WEIGHTS = "keep/weights.safetensors"


@pytest.fixture
def job(tiny, corpus):
    return tiny.make_job(corpus)


@pytest.fixture
def train(train_language):
    return train_language


def window_rows(corpus, split, starts, seq_len):
    """Inputs and targets of the windows, extracted one by one."""
    ids = corpus.tokens(split).tolist()
    rows = torch.tensor([ids[start : start + seq_len + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def mean_nats(model, inputs, targets):
    """The mean of -log p over all targets, computed explicitly in float64."""
    logits = model(inputs).double()
    chosen = logits.gather(-1, targets[..., None])[..., 0]
    return (torch.logsumexp(logits, -1) - chosen).mean()


@pytest.mark.slow
def test_a_language_run_learns_and_evaluates_on_schedule(job, train):
    record = train(job)
    assert record.status == "finished" and record.error == ""
    evaluations = [row for row in record.curve if "evaluation" in row]
    assert [(row["step"], row["evaluation"]) for row in evaluations] == [(5, 1), (10, 2), (15, 3), (20, 4)]
    assert evaluations[-1]["train_loss"] < 0.75 * evaluations[0]["train_loss"]
    assert evaluations[-1]["validation_loss"] < 4 < math.log(257)


@pytest.mark.slow
def test_the_curve_has_a_fixed_number_of_rows_per_evaluation(tiny, corpus, train, monkeypatch):
    monkeypatch.setattr(language_trial, "ROWS_PER_EVALUATION", 3)
    record = train(tiny.make_job(corpus, steps=20, eval_every=10))
    assert [row["step"] for row in record.curve] == [3, 6, 9, 10, 12, 15, 18, 20]
    assert [row["tokens"] for row in record.curve] == [128 * row["step"] for row in record.curve]


@pytest.mark.parametrize("label, positions", [("S", "learned"), ("G-cg-q-12o", "none")])
def test_two_steps_are_the_recipe_written_out_by_hand(label, positions, tiny, corpus, train):
    job = tiny.make_job(
        corpus, label, positions=positions, steps=2, eval_every=1, warmup_steps=1, learning_rate=4e-3,
        min_learning_rate=1e-3, weight_decay=0.3, grad_clip=0.5, beta1=0.8, beta2=0.9,
    )  # fmt: skip
    record = train(job)

    model = LanguageTrial.build(job)
    parameters = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for step, rate in enumerate([4e-3 * 1 / 2, 4e-3]):
        starts = training_starts(job.derived_seed("order"), step, 8, len(corpus.tokens("train")), 16)
        loss = mean_nats(model, *window_rows(corpus, "train", starts, 16))
        gradients = dict(zip(parameters, torch.autograd.grad(loss, parameters.values())))
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients.values()))
        assert record.curve[step]["step_loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert record.curve[step]["grad_norm"] == pytest.approx(norm, rel=1e-4)
        assert record.curve[step]["learning_rate"] == pytest.approx(rate)
        with torch.no_grad():
            for name, p in parameters.items():
                g = gradients[name] * min(1.0, 0.5 / norm)
                first[name] = 0.8 * first[name] + 0.2 * g
                second[name] = 0.9 * second[name] + 0.1 * g * g
                mean, square = first[name] / (1 - 0.8 ** (step + 1)), second[name] / (1 - 0.9 ** (step + 1))
                if p.ndim >= 2 and not name.endswith(".p"):
                    p.mul_(1 - rate * 0.3)
                p.sub_(rate * mean / (square.sqrt() + 1e-8))
    torch.testing.assert_close(train.weights(), model.state_dict(), rtol=1e-3, atol=1e-5)


def test_the_rate_warms_up_and_then_follows_a_cosine():
    config = LanguageTraining(steps=100, eval_every=10, warmup_steps=20, learning_rate=2.0, min_learning_rate=0.5)
    rates = [config.schedule(100).rate(step) for step in range(101)]
    assert rates[:20] == pytest.approx([2.0 * (step + 1) / 21 for step in range(20)])
    assert (rates[20], rates[60], rates[100]) == pytest.approx((2.0, 1.25, 0.5))
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[20:]))
    only_warmup = dataclasses.replace(config, warmup_steps=100)
    assert only_warmup.schedule(100).rate(99) == pytest.approx(2.0 * 100 / 101)


def test_a_cosine_ends_at_its_own_step_before_the_run_or_after_it():
    config = LanguageTraining(steps=100, eval_every=10, warmup_steps=20, learning_rate=2.0, min_learning_rate=0.5)
    early = dataclasses.replace(config, lr_decay_steps=60)
    rates = [early.schedule(100).rate(step) for step in range(100)]
    assert (rates[20], rates[40]) == pytest.approx((2.0, 1.25)) and set(rates[60:]) == {0.5}
    late = dataclasses.replace(config, lr_decay_steps=180)
    assert late.schedule(100).rate(100) == pytest.approx(1.25)


def test_the_two_readings_of_the_papers_schedule_differ_tenfold_at_the_end():
    config = LANGUAGE.Profile.load("gpt2").training_config("float32")
    assert config.schedule(40_000).rate(40_000) == pytest.approx(6e-5)
    as_released = dataclasses.replace(config, lr_decay_steps=600_000)
    assert as_released.schedule(40_000).rate(40_000) == pytest.approx(5.946e-4, rel=1e-3)


@pytest.mark.slow
def test_the_losses_are_those_of_the_evaluated_windows_counted_one_by_one(job, corpus, train):
    record = train(job)
    model = load_model(train.work / WEIGHTS)[0]
    tokens = {split: len(corpus.tokens(split)) for split in ("train", "val")}
    sampled = window_rows(corpus, "train", evaluation_starts("train", 4, 10, tokens["train"], 16), 16)
    inputs, targets = window_rows(corpus, "val", evaluation_starts("val", 4, 10, tokens["val"], 16), 16)
    with torch.no_grad():
        nats, train_loss = float(mean_nats(model, inputs, targets)), float(mean_nats(model, *sampled))
    last = record.curve[-1]
    assert last["train_loss"] == pytest.approx(train_loss, rel=1e-5)
    assert last["validation_loss"] == pytest.approx(nats, rel=1e-5)
    text_bytes = int((targets < 256).sum())
    assert text_bytes < targets.numel()  # ends of text have no bytes
    assert last["validation_bits_per_byte"] == pytest.approx(nats * 160 / math.log(2) / text_bytes, rel=1e-5)


@pytest.mark.slow
def test_metrics_are_computed_from_the_curve(tiny, corpus, train):
    record = train(tiny.make_job(corpus, steps=12, eval_every=2))
    rows = [row for row in record.curve if "evaluation" in row]
    assert len(rows) == 6
    assert record.metrics == {
        "loss_l5": pytest.approx(sum(row["train_loss"] for row in rows[1:]) / 5),
        "train_loss": rows[-1]["train_loss"],
        "validation_loss": rows[-1]["validation_loss"],
        "validation_bits_per_byte": rows[-1]["validation_bits_per_byte"],
        "best_validation_loss": min(row["validation_loss"] for row in rows),
    }


def test_fewer_than_five_evaluations_are_all_averaged(tiny, corpus, train):
    record = train(tiny.make_job(corpus, steps=2, eval_every=1))
    assert record.metrics["loss_l5"] == pytest.approx(sum(row["train_loss"] for row in record.curve) / 2)


def test_ids_without_text_have_no_bits_per_byte(tiny, train, tmp_path):
    corpus = tiny.make_corpus(tmp_path / "ids", "none:257")
    record = train(tiny.make_job(corpus, steps=1, eval_every=1), corpus=corpus)
    assert "validation_loss" in record.metrics
    assert not any("bits_per_byte" in name for name in [*record.metrics, *record.curve[-1]])


@pytest.mark.slow
def test_micro_batches_change_the_result_by_rounding_only(tiny, corpus, train, without_times):
    job = tiny.make_job(corpus, steps=5)
    whole = train(job)
    expected = train.weights()
    for micro_batch in (1, 3):
        record = train(job, micro_batch=micro_batch)
        assert record.details["micro_batch"] == micro_batch
        for row, other in zip(without_times(record.curve), without_times(whole.curve), strict=True):
            assert row == pytest.approx(other, rel=1e-5)
        torch.testing.assert_close(train.weights(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_run_is_reproducible_from_its_job(job, train, without_times):
    first, second, other = train(job), train(job), train(dataclasses.replace(job, seed=1))
    assert first.metrics == second.metrics and without_times(first.curve) == without_times(second.curve)
    assert without_times(other.curve) != without_times(first.curve)


def test_a_run_trains_in_bfloat16_and_keeps_float32_weights(tiny, corpus, train):
    record = train(tiny.make_job(corpus, steps=2, eval_every=2, precision="bfloat16"))
    assert record.status == "finished"
    assert {tensor.dtype for tensor in train.weights().values()} == {torch.float32}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of the compiler's modules
def test_a_compiled_run_gives_the_same_losses(tiny, corpus, train):
    job = tiny.make_job(corpus, "S", steps=5)
    plain, compiled = train(job), train(job, compile="always")
    assert compiled.details["compiled"] and not plain.details["compiled"]
    assert compiled.metrics == pytest.approx(plain.metrics, rel=1e-3)


def test_a_huge_learning_rate_ends_diverged_with_a_curve_and_no_metrics_or_weights(tiny, corpus, train):
    record = train(tiny.make_job(corpus, learning_rate=1e30, warmup_steps=0, grad_clip=0.0))
    assert record.status == "diverged" and record.metrics == {} and len(record.curve) < 20
    assert not math.isfinite(record.curve[-1]["step_loss"])
    assert record.error == f"loss was not finite at step {record.curve[-1]['step']}"
    assert not (train.work / WEIGHTS).exists()


def test_a_validation_loss_that_is_not_finite_ends_diverged(tiny, corpus, train):
    """The first step has a finite loss, but makes the weights too large."""
    record = train(tiny.make_job(corpus, learning_rate=1e30, warmup_steps=0, grad_clip=0.0, eval_every=1))
    assert record.status == "diverged" and record.curve[-1]["step"] == 1
    assert math.isfinite(record.curve[-1]["step_loss"]) and not math.isfinite(record.curve[-1]["validation_loss"])


@pytest.mark.slow
def test_reports_carry_the_last_known_loss_and_speed(job, train, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    monkeypatch.setattr(language_trial, "ROWS_PER_EVALUATION", 2)
    reports = []
    record = train(job, reports.append)
    assert [report["step"] for report in reports] == list(range(1, 21))
    assert {report["total_steps"] for report in reports} == {20}
    assert "loss" not in reports[0] and "tokens_per_second" not in reports[0]
    rows = {row["step"]: row for row in record.curve}
    assert (reports[2]["loss"], reports[2]["tokens_per_second"]) == (rows[2]["step_loss"], rows[2]["tokens_per_second"])


@pytest.mark.slow
def test_the_record_states_parameters_seeds_corpus_and_evaluation(job, corpus, train):
    details = train(job).details
    model = LanguageTrial.build(job)
    assert details["model_parameters"] == sum(p.numel() for p in model.parameters())
    assert details["seeds"] == {stream: job.derived_seed(stream) for stream in ("init", "order")}
    assert details["corpus"] == corpus.description() and details["corpus"]["digest"] == job.setting["corpus"]
    assert details["evaluation"]["windows"] == 10 and details["evaluation"]["seq_len"] == 16
    assert details["path"] == "dense" and details["steps"] == 20 and details["flops_per_token"] > 0
    assert (details["world_size"], details["micro_batch"], details["compiled"]) == (1, 8, False)


def test_utilization_is_recorded_only_where_the_peak_is_known(tiny, corpus, train, monkeypatch):
    job = tiny.make_job(corpus, steps=1, eval_every=1)
    assert "mfu" not in train(job).curve[0]
    monkeypatch.setattr(member, "peak_flops", lambda name, precision: 1e12)
    record = train(job)
    row = record.curve[0]
    assert row["mfu"] == pytest.approx(row["tokens_per_second"] * record.details["flops_per_token"] / 1e12)


@pytest.mark.slow
def test_the_weights_are_stored_in_the_folder_of_the_run(job, corpus, tmp_path):
    store = Store.open(tmp_path / "results")
    with store.lock(job) as work:
        record = train_job(job, work, lambda progress: None, corpora={corpus.digest: corpus})
        store.finish(job, record)
    run = store.read(job.id)
    assert run.record.curve == record.curve and run.job == job
    model, loaded_job = load_model(run.folder / "weights.safetensors")
    assert loaded_job == job
    assert model.state_dict().keys() == LanguageTrial.build(job).state_dict().keys()


def test_a_corpus_that_is_not_given_is_named(job, corpus, tmp_path):
    with pytest.raises(TrainingError, match=f"the corpus {corpus.digest} of the job is not given"):
        train_job(job, tmp_path, lambda progress: None)


def test_a_token_beyond_the_vocabulary_is_refused_and_named(job, corpus, train):
    np.full(3880, 300, "<u2").tofile(corpus.folder / "train.bin")  # damaged after it was opened
    with pytest.raises(ConfigError, match="train.bin.*: token id 300 is beyond the vocabulary of 257"):
        train(job)


@pytest.mark.parametrize("micro_batch", [0, -1])
def test_micro_batches_without_windows_are_refused(micro_batch, job, train):
    with pytest.raises(ConfigError, match=f"micro_batch must be at least 1, got {micro_batch}"):
        train(job, micro_batch=micro_batch)


def test_processes_that_do_not_divide_a_step_are_refused(job, train, monkeypatch):
    monkeypatch.setattr(distributed, "size", lambda: 3)
    with pytest.raises(ConfigError, match="3 processes cannot share the 8 windows of a step"):
        train(job)


def test_a_picklable_train_function_can_be_bound_for_worker_processes(corpus):
    import pickle

    bound = functools.partial(loop.train, corpora={corpus.digest: corpus})
    assert pickle.loads(pickle.dumps(bound)).keywords["corpora"][corpus.digest].digest == corpus.digest
