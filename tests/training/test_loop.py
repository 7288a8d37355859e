"""A MAD run: learning, reports, records, randomness, and the evaluation of each fidelity."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from madbench import mixers
from madbench.mixers import solve
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.ops import softmax
from madbench.mixers.srg import path_choice
from madbench.suites import epoch_trial, token_trial
from madbench.suites.mad.suite import MAD
from madbench.suites.tokens import LARGEST_COEFFICIENT, TrainingConfig
from madbench.training import loop
from madbench.training.optimizer import make_optimizer

COUNTS = {"train": 56, "validation": 24, "test": 24}


@pytest.fixture
def evaluated_splits(monkeypatch, make_job):
    """The splits of all evaluations, in order."""
    seen, evaluate = [], token_trial.evaluate

    def spy(model, inputs, targets, autocast, batch_size):
        for split, (split_inputs, split_targets) in token_trial.load_data(spy.job, "cpu").items():
            if torch.equal(inputs, split_inputs) and torch.equal(targets, split_targets):
                seen.append(split)
        return evaluate(model, inputs, targets, autocast, batch_size)

    monkeypatch.setattr(token_trial, "evaluate", spy)
    return spy, seen


def script_scores(monkeypatch, losses, accuracies, perplexities=None):
    """Replace the scores of the evaluations, in order. Returns the weights at each evaluation."""
    weights, evaluate = [], token_trial.evaluate

    def fake(model, inputs, targets, autocast, batch_size):
        scores = evaluate(model, inputs, targets, autocast, batch_size)
        index = len(weights)
        weights.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        if index >= len(losses):
            return scores
        changes = dict.fromkeys(("token_accuracy", "batch_macro_accuracy"), accuracies[index])
        if perplexities is not None:
            changes["batch_perplexity"] = perplexities[index]
        return scores | {"loss": losses[index], "macro_accuracy": 0.0} | changes

    monkeypatch.setattr(token_trial, "evaluate", fake)
    return weights


@pytest.mark.slow
def test_curves_of_mixers_that_may_grow_have_the_largest_coefficient(make_job, train):
    def largest(label):
        return [row.get(LARGEST_COEFFICIENT) for row in train(make_job(label=label, epochs=2)).curve]

    assert largest("S") == largest("cd:exp-0.95-sum") == [None, None]
    assert all(0 < value <= 1 for value in largest("cd:exp-1.05-sum"))  # of a sum no coefficient is above 1
    job = make_job(label="cd:softplus-1.3-b1", epochs=2, learning_rate=0.0)
    model, data = token_trial.TokenTrial.build(job), token_trial.load_data(job, "cpu")
    x, expected = model.backbone.embedding(data["validation"][0][: token_trial.WATCHED_EXAMPLES]), 0.0
    with torch.no_grad():
        for norm, layer in zip(model.backbone.norms, model.backbone.layers):
            if isinstance(layer, CoefficientMixer):
                expected = max(expected, float(layer.coefficients(norm(x)).a.abs().max()))
            x = x + layer(norm(x))
    assert train(job).curve[0][LARGEST_COEFFICIENT] == pytest.approx(expected, rel=1e-4)  # the least rate is 1e-6


@pytest.mark.slow
def test_a_run_learns_and_its_curve_has_one_row_an_epoch(make_job, train):
    record = train(make_job(task="memorization", label="S", learning_rate=1e-2, epochs=15))
    assert record.status == "finished" and record.error == ""
    assert [row["epoch"] for row in record.curve] == list(range(1, 16))
    assert [row["step"] for row in record.curve] == list(range(4, 61, 4))  # ceil(56 / 16) = 4 steps an epoch
    assert record.curve[-1]["train_loss"] < 0.7 * record.curve[0]["train_loss"]
    assert record.metrics["accuracy"] > 0.5 > record.curve[0]["validation_token_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("label, task", [("S", "in_context_recall"), ("G-cg-q-12o", "compression")])
def test_every_model_trains_in_both_precisions(label, task, make_job, train):
    for precision in ("float32", "bfloat16"):
        record = train(make_job(task=task, label=label, precision=precision, epochs=1))
        assert record.status == "finished"
        assert all(math.isfinite(value) for row in record.curve for value in row.values())


@pytest.mark.slow
def test_the_record_states_parameters_path_device_seeds_and_versions(make_job, train):
    job = make_job()
    details = train(job).details
    model = token_trial.TokenTrial.build(job)
    assert details["model_parameters"] == sum(p.numel() for p in model.parameters())
    assert details["mixer_parameters"] == sum(p.numel() for p in model.backbone.layers[0].parameters())
    assert details["path"] == "dense" and details["device"]
    assert details["steps"] == 12 and details["steps_per_second"] == pytest.approx(12 / details["seconds"])
    assert details["seeds"] == {stream: job.derived_seed(stream) for stream in ("init", "data", "order")}
    assert torch.__version__.partition("+")[0] == details["versions"]["torch"].partition("+")[0]
    assert set(details["ranks"]) == {"qk", "vo", "mix"} and details["budget_ratio"] <= 1


def test_the_recorded_path_follows_the_actual_batch_size(make_job, train, monkeypatch):
    job, mixer = make_job(batch_size=1000, epochs=1), mixers.build("R-q-12o", 16, 15, n_head=2, mix_rank=2)
    monkeypatch.setattr(path_choice, "MIXED_TILED_FROM_BYTES", 4 * 2 * 15 * 15 * (COUNTS["train"] + 1))
    assert mixer.resolve_path(job.training.batch_size, 15) == "tiled"
    assert train(job).details["path"] == "dense"  # of the 56 examples that there are


@pytest.mark.slow
def test_a_run_is_reproducible_from_its_job(make_job, train):
    job = make_job()
    first, second, other = train(job), train(job), train(dataclasses.replace(job, seed=1))
    assert first.metrics == second.metrics and first.curve == second.curve
    assert other.curve != first.curve


@pytest.mark.slow
def test_jobs_of_a_group_have_the_numbers_of_single_jobs(make_job, train, tmp_path):
    jobs, works = [make_job(seed=seed) for seed in range(2)], [tmp_path / "a", tmp_path / "b"]
    for work in works:
        work.mkdir()
    records = loop.train(jobs, works, lambda job, progress: None)
    assert [record.metrics for record in records] == [train(job).metrics for job in jobs]


def test_data_have_three_splits_and_depend_only_on_the_seed(make_job):
    data = token_trial.load_data(make_job(), "cpu")
    assert {split: len(inputs) for split, (inputs, _) in data.items()} == COUNTS
    same, other = (token_trial.load_data(job, "cpu") for job in (make_job(label="S", epochs=9), make_job(seed=1)))
    for split in COUNTS:
        assert torch.equal(data[split][0], same[split][0])
        assert not torch.equal(data[split][0], other[split][0])


def test_the_order_of_samples_depends_only_on_epoch_and_seed(make_job):
    order = epoch_trial.epoch_order(make_job(), 0, 56)
    assert sorted(order.tolist()) == list(range(56)) != order.tolist()
    assert not np.array_equal(order, epoch_trial.epoch_order(make_job(), 1, 56))
    assert not np.array_equal(order, epoch_trial.epoch_order(make_job(seed=1), 0, 56))
    for job in (make_job(label="S"), make_job(task="compression"), make_job(learning_rate=1e-4)):
        assert np.array_equal(order, epoch_trial.epoch_order(job, 0, 56))


def test_initial_weights_change_with_the_seed_alone_and_leave_the_global_state_alone(make_job):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    weights = token_trial.TokenTrial.build(make_job()).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    same = token_trial.TokenTrial.build(make_job(learning_rate=1e-4, weight_decay=0.1)).state_dict()
    other = token_trial.TokenTrial.build(make_job(seed=1)).state_dict()
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert not torch.equal(weights["head.weight"], other["head.weight"])


def test_the_cosine_starts_at_the_learning_rate_and_ends_at_the_minimum():
    config = TrainingConfig(learning_rate=1e-3, min_learning_rate=1e-5)
    rates = [config.schedule(100).rate(step) for step in range(101)]
    assert rates[0] == 1e-3 and rates[100] == pytest.approx(1e-5)
    assert rates[50] == pytest.approx((1e-3 + 1e-5) / 2)
    assert all(later < earlier for earlier, later in zip(rates, rates[1:]))


def test_a_warm_up_rises_to_the_learning_rate_and_the_cosine_follows_it():
    config = TrainingConfig(learning_rate=1e-3, min_learning_rate=1e-5, warmup_steps=20)
    rates = [config.schedule(100).rate(step) for step in range(101)]
    assert rates[:20] == pytest.approx([1e-3 * (step + 1) / 21 for step in range(20)])
    plain = TrainingConfig(learning_rate=1e-3, min_learning_rate=1e-5)
    assert rates[20:] == [plain.schedule(80).rate(step) for step in range(81)]


def test_the_published_rate_is_constant(make_job):
    rates = {"learning_rate": 1e-3, "min_learning_rate": 1e-5, "warmup_steps": 20, "lr_decay_steps": 5}
    schedule = MAD.schedule(make_job(fidelity="published", **rates))
    assert {schedule.rate(step) for step in range(100)} == {1e-3} and not schedule.warning


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", ["corrected", "published"])
def test_the_optimizer_gets_the_scheduled_rate_of_every_step(fidelity, make_job, train):
    job, rates = make_job(fidelity=fidelity), []
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    try:
        train(job)
    finally:
        hook.remove()
    assert rates == [MAD.schedule(job).rate(step) for step in range(12)]


def test_a_huge_learning_rate_ends_diverged_with_a_curve_and_no_metrics(make_job, train):
    record = train(make_job(label="S", learning_rate=1e30, epochs=5))
    assert record.status == "diverged" and record.metrics == {}
    assert not math.isfinite(record.curve[-1]["train_loss"]) and len(record.curve) < 5
    assert record.error == f"loss was not finite at step {record.details['steps']}"


def test_a_validation_loss_that_is_not_finite_ends_diverged(make_job, train):
    """The only step of the first epoch has a finite loss, but makes the weights too large."""
    record = train(make_job(label="S", learning_rate=1e38, batch_size=COUNTS["train"], epochs=5))
    assert record.status == "diverged" and len(record.curve) == 1
    assert math.isfinite(record.curve[0]["train_loss"]) and not math.isfinite(record.curve[0]["validation_loss"])


@pytest.mark.slow
def test_fidelity_corrected_selects_on_validation_and_uses_the_test_set_once(make_job, train, evaluated_splits):
    spy, seen = evaluated_splits
    spy.job = make_job()
    record = train(spy.job)
    assert seen == ["validation"] * 3 + ["test"]
    assert record.metrics["accuracy"] == record.metrics["test_token_accuracy"]
    assert record.metrics["selection_accuracy"] == record.curve[-1]["validation_token_accuracy"]
    best = max(row["validation_token_accuracy"] for row in record.curve)
    assert record.metrics["best_validation_accuracy"] == best
    assert not any(name.startswith("test_") for row in record.curve for name in row)


@pytest.mark.slow
def test_fidelity_published_selects_on_the_test_set(make_job, train, evaluated_splits):
    spy, seen = evaluated_splits
    spy.job = make_job(fidelity="published")
    record = train(spy.job)
    assert seen == ["test"] * 4
    assert record.metrics["accuracy"] == record.metrics["test_batch_macro_accuracy"]
    assert record.metrics["selection_accuracy"] == record.metrics["accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("perplexities", "best"), [([9.0, 8.0, 7.0], 2), ([8.0, 7.0, 7.0], 1), ([math.inf, math.inf, math.inf], 0)]
)
def test_fidelity_published_evaluates_the_first_epoch_of_lowest_perplexity(
    perplexities, best, make_job, train, monkeypatch
):
    weights = script_scores(monkeypatch, losses=[3.0, 1.0, 2.0], accuracies=[0.1] * 3, perplexities=perplexities)
    train(make_job(fidelity="published"))
    assert len(weights) == 4
    assert all(torch.equal(weights[3][name], weights[best][name]) for name in weights[3])


def test_fidelity_corrected_evaluates_the_last_epoch(make_job, train, monkeypatch):
    weights = script_scores(monkeypatch, losses=[3.0, 1.0, 2.0], accuracies=[0.1, 0.9, 0.2])
    record = train(make_job())
    assert all(torch.equal(weights[3][name], weights[2][name]) for name in weights[3])
    assert (record.metrics["selection_accuracy"], record.metrics["best_validation_accuracy"]) == (0.2, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", ["corrected", "published"])
def test_a_run_stops_at_the_first_evaluation_that_is_good_enough(fidelity, make_job, train, monkeypatch):
    script_scores(monkeypatch, losses=[1.0] * 9, accuracies=[0.5, 0.998, 0.999, 1.0])
    record = train(make_job(fidelity=fidelity, epochs=9, stop_accuracy=0.999))
    assert record.status == "finished"
    assert len(record.curve) == 3 and record.details["steps"] == 12


@pytest.mark.slow
def test_reports_count_steps_up_to_the_last_and_carry_the_last_accuracy(make_job, train, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    reports = []
    record = train(make_job(), reports.append)
    assert [report["step"] for report in reports] == list(range(1, 13))
    assert {report["total_steps"] for report in reports} == {12}
    assert "accuracy" not in reports[2]
    assert reports[3]["accuracy"] == record.curve[0]["validation_token_accuracy"]


def test_linear_maps_decay_and_biases_gains_and_diagonals_do_not(make_job):
    model = token_trial.TokenTrial.build(make_job(label="R-cg-q-12o"))
    decaying, kept = make_optimizer(model, TrainingConfig(weight_decay=0.1)).param_groups
    assert (decaying["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decaying, kept = ({names[parameter] for parameter in group["params"]} for group in (decaying, kept))
    assert len(decaying) + len(kept) == len(names)
    mixer = "backbone.layers.0."
    assert {mixer + name for name in ("q.weight", "k_conv.weight", "mix1.A", "mix2.B", "vo_gate.weight")} <= decaying
    assert {"backbone.embedding.weight", "head.weight"} <= decaying
    assert {mixer + name for name in ("mix1.p", "mix2.p", "qk_gate.bias", "mix1.gate.bias")} <= kept
    assert {"backbone.norms.0.weight", "norm.weight", "head.bias"} <= kept


@pytest.mark.slow
@pytest.mark.parametrize("label, task", [("R-cg-q-12o", "in_context_recall"), ("S", "compression")])
def test_micro_batches_change_the_result_by_rounding_only(label, task, make_job, train):
    job = make_job(task=task, label=label, epochs=1)
    whole = train(job)
    for micro_batch in (1, 5):
        record = train(job, micro_batch=micro_batch)
        assert record.details["micro_batch"] == micro_batch
        assert record.curve[0] == pytest.approx(whole.curve[0], rel=1e-4)


@pytest.mark.slow
def test_the_recorded_path_is_that_under_the_arithmetic_of_the_run(make_job, train, monkeypatch):
    monkeypatch.setattr(path_choice, "SOFTMAX_TILED_FROM_BYTES", 0)  # tiles compute in float32 alone
    monkeypatch.setattr(softmax, "BLOCK_ROWS", 5)
    for precision, path in (("bfloat16", "sdpa"), ("float32", "tiled")):
        assert train(make_job(label="S", precision=precision, epochs=1)).details["path"] == path


@pytest.mark.slow
def test_parameters_and_budget_of_a_record_are_means_over_the_blocks(make_job, train):
    details = train(make_job(epochs=1)).details
    mixed = train(make_job(epochs=1, label="S/R-12!")).details
    one, other = (solve(label, 16, 2, 16, mix_rank=2) for label in ("S", "R-12!"))
    assert one.total != other.total and mixed["mixer_parameters"] == (one.total + other.total) / 2
    assert mixed["budget_ratio"] == pytest.approx((one.ratio + other.ratio) / 2, abs=1e-15)
    assert mixed["budget"] == (one.target + other.target) / 2
    assert mixed["ranks"] == [dict(one.ranks), dict(other.ranks)]
    assert type(details["mixer_parameters"]) is int and "mix" in details["ranks"]
