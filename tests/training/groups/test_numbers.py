"""Jobs trained in a group have the numbers of single jobs."""

from __future__ import annotations

import dataclasses
import time

import pytest
import torch

from group_numbers import LOSS, assert_same_numbers
from madbench.mixers.named import recurrent_layer
from madbench.models import token_loss
from madbench.models.shapes import ModelConfig
from madbench.suites import token_trial
from madbench.tasks import IGNORE
from madbench.training import loop
from madbench.training.checkpoints import NAME
from madbench.training.member import GroupMember
from madbench.training.stack import Stack
from madbench.training.step import PlainStep
from sample_jobs import loop_arguments, mad_job

KINK_TOLERANCE = {"rel": 3e-3, "abs": 1e-4}
"""The tolerance of losses for labels with ReLU, at whose kink rounding errors grow."""
SETTING = {
    "vocab_size": 8,
    "seq_len": 16,
    "num_train_examples": 16,
    "num_validation_examples": 8,
    "num_test_examples": 8,
}


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-cg-q-12o", "S", "R-cg-q-12o", "G-12!", "D-ka!"])
def test_each_member_of_a_group_has_the_numbers_of_a_single_job(label, three_jobs, together, alone):
    jobs = [dataclasses.replace(job, label=label) for job in three_jobs]
    for job, record in zip(jobs, together(jobs)):
        assert_same_numbers(record, alone(job), LOSS if label[0] in "SD" else KINK_TOLERANCE)
        assert (record.details["group"], record.details["path"]) == (3, alone(job).details["path"])


@pytest.mark.slow
@pytest.mark.parametrize("label", ["KDA", "RWKV-7"])
def test_recurrent_layers_of_a_group_work_in_blocks(label, three_jobs, together, alone, monkeypatch):
    monkeypatch.setattr(recurrent_layer, "CHUNK", 4)
    jobs = [dataclasses.replace(job, label=label, mixer={}) for job in three_jobs]
    for job, record in zip(jobs, together(jobs)):
        assert_same_numbers(record, alone(job))
        assert (record.details["group"], record.details["path"]) == (3, "chunked")


@pytest.mark.slow
@pytest.mark.parametrize("task, fidelity", [("compression", "published"), ("memorization", "corrected")])
def test_every_task_and_fidelity_trains_in_groups(task, fidelity, make_job, together, alone):
    jobs = [make_job(task, "S-cg-q-12o", seed, fidelity, learning_rate=1e-3, epochs=2) for seed in range(2)]
    for job, record in zip(jobs, together(jobs)):
        assert_same_numbers(record, alone(job))
        assert record.details["group"] == 2


@pytest.mark.slow
def test_members_share_the_seconds_of_their_steps(three_jobs, together):
    began = time.monotonic()
    seconds = [record.details["seconds"] for record in together(three_jobs)]
    assert 0 < sum(seconds) <= time.monotonic() - began


@pytest.mark.slow
def test_gradients_are_accumulated_over_parts_of_a_batch(three_jobs, together, alone):
    for job, record in zip(three_jobs, together(three_jobs, micro_batch=6)):
        assert_same_numbers(record, alone(job, micro_batch=6))


def test_micro_batches_are_weighted_by_the_targets_of_each_member(make_job, folders):
    jobs = [make_job(label="S-q-1", seed=seed) for seed in range(2)]
    stacked, separate = (
        [GroupMember(job, work, print, micro_batch=6) for job, work in zip(jobs, folders(jobs))] for _ in range(2)
    )
    for member in (*stacked, *separate):
        _, targets = member.trial.data["train"]
        targets[:: 2 + member.job.seed, 1:] = IGNORE
    stack = Stack(stacked)
    ours, others = zip(*(shares.tolist() for _, shares in stack.batches()))
    assert ours != others
    losses, _ = stack([member.rate for member in stacked])
    for member, other, loss in zip(stacked, separate, losses):
        [expected], _ = PlainStep(other)([other.rate])
        assert float(loss) == pytest.approx(float(expected), rel=1e-5)
        for one, wanted in zip(member.trial.model.parameters(), other.trial.model.parameters()):
            torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)


def test_the_loss_of_a_group_computes_logits_only_for_counted_targets(make_job, folders, monkeypatch):
    jobs = [make_job("memorization", "S-q-1", seed) for seed in range(2)]
    stack = Stack([GroupMember(job, work, print) for job, work in zip(jobs, folders(jobs))])
    [([_, targets], _)] = stack.batches()
    counted, rows, plain = (targets != IGNORE).sum((1, 2)).tolist(), [], token_loss.logits_of
    monkeypatch.setattr(token_loss, "logits_of", lambda *of: rows.append(len(of[1])) or plain(*of))
    stack([1e-3, 1e-3])
    assert rows == counted and sum(counted) < targets.numel()


@pytest.mark.slow
def test_language_models_train_in_groups(tiny, corpus, folders, without_times):
    jobs = [tiny.make_job(corpus, seed=seed, learning_rate=rate) for seed, rate in ((0, 1e-2), (1, 3e-3))]
    how = {"corpora": {corpus.digest: corpus}, "micro_batch": 3}  # parts of unequal size; gradients are clipped
    stacked = loop.train(jobs, folders(jobs), lambda *_: None, **loop_arguments(stacking="always", **how))
    for work in folders(jobs):
        (work / NAME).unlink()
    separate = loop.train(jobs, folders(jobs), lambda *_: None, **loop_arguments(**how))
    for record, expected in zip(stacked, separate):
        assert record.details["group"] == 2 and "group" not in expected.details
        for row, wanted in zip(without_times(record.curve), without_times(expected.curve), strict=True):
            assert row == pytest.approx(wanted, rel=2e-3)


@pytest.mark.slow
def test_a_step_of_a_group_equals_adamw_of_each_member_to_rounding(three_jobs, folders):
    """Weights and moments are compared after two steps, before rounding errors grow."""
    stacked, separate = (
        [GroupMember(job, work, print) for job, work in zip(three_jobs, folders(three_jobs))] for _ in range(2)
    )
    stack, plain = Stack(stacked), [PlainStep(member) for member in separate]
    for _ in range(2):
        losses, _ = stack([member.rate for member in stacked])
        for member, other, step, loss in zip(stacked, separate, plain, losses):
            [expected], _ = step([other.rate])
            assert float(loss) == pytest.approx(float(expected), rel=1e-5)
            member.count_step(loss)
            other.count_step(expected)
    for member, other in zip(stacked, separate):
        for one, expected in zip(member.trial.model.parameters(), other.trial.model.parameters()):
            torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)
            state, wanted = member.optimizer.state[one], other.optimizer.state[expected]
            torch.testing.assert_close(state["exp_avg"], wanted["exp_avg"], rtol=1e-3, atol=1e-6)
            torch.testing.assert_close(state["exp_avg_sq"], wanted["exp_avg_sq"], rtol=1e-3, atol=1e-8)
            assert state["step"] == wanted["step"] == 2


@pytest.mark.parametrize("label", ["hfa:2w-p-q", "ha:3us-q", "cd:mamba2-cg"])
def test_other_families_train_in_groups(label, make_job, folders):
    jobs = [
        mad_job(label, "in_context_recall", seed, setting=SETTING, model=ModelConfig(16, 2, 1)) for seed in range(2)
    ]
    stacked, separate = ([GroupMember(job, work, print) for job, work in zip(jobs, folders(jobs))] for _ in range(2))
    losses, _ = Stack(stacked)([1e-3, 1e-3])
    expected = [PlainStep(member)([1e-3])[0][0] for member in separate]
    torch.testing.assert_close(torch.stack(losses), torch.stack(expected))
    for member, other in zip(stacked, separate):
        for one, wanted in zip(member.trial.model.parameters(), other.trial.model.parameters()):
            moment, wanted_moment = member.optimizer.state[one]["exp_avg"], other.optimizer.state[wanted]["exp_avg"]
            torch.testing.assert_close(moment, wanted_moment, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_members_of_a_group_see_the_batches_of_single_jobs(three_jobs, together, folders, monkeypatch):
    seen, micro_batches = {}, token_trial.TokenTrial.micro_batches

    def spy(trial, step):
        for batch, share in micro_batches(trial, step):
            seen.setdefault(trial.job.id, []).append(batch)
            yield batch, share

    monkeypatch.setattr(token_trial.TokenTrial, "micro_batches", spy)
    together(three_jobs)
    stacked, seen = seen, {}
    for work in folders(three_jobs):
        (work / NAME).unlink()
    loop.train(three_jobs, folders(three_jobs), lambda *_: None)
    for job in three_jobs:
        assert len(seen[job.id]) == 8
        for batch, expected in zip(stacked[job.id][-8:], seen[job.id], strict=True):
            assert all(map(torch.equal, batch, expected))


@pytest.mark.slow
def test_a_group_of_one_is_the_plain_step_bit_for_bit(make_job, together, alone):
    job = make_job()
    [record], expected = together([job]), alone(job)
    assert (record.metrics, record.curve) == (expected.metrics, expected.curve)


@pytest.mark.slow
def test_saved_weights_equal_each_members_own(three_jobs, together, folders):
    from madbench.training.checkpoints import load_model

    together(three_jobs, keep_weights=True)
    for job, work in zip(three_jobs, folders(three_jobs)):
        model, saved = load_model(work / "keep" / "weights.safetensors")
        assert saved == job
        scores = token_trial.evaluate(
            model, *token_trial.load_data(job, "cpu")["test"], token_trial.TokenTrial(job, "cpu", loop.world).autocast
        )
        assert scores["loss"] == pytest.approx(together([job])[0].metrics["test_loss"], **LOSS)
