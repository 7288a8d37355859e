"""Replayed steps equal plain steps bit for bit, and steps that may differ are not replayed."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from packaging.version import Version

from madbench.jobs import StopTraining
from madbench.mixers.ops import products
from madbench.training import loop, replay
from madbench.training.member import GroupMember
from madbench.training.replay import ReplayStack, ReplayStep, can_replay
from madbench.training.stack import Stack
from madbench.training.step import PlainStep


@pytest.fixture(autouse=True)
def records_short_runs(monkeypatch):
    monkeypatch.setattr(replay, "LEAST_STEPS", 1)
    monkeypatch.setattr(replay, "MOST_PROGRAMS", 0)  # no job takes the program of another
    monkeypatch.setattr(replay, "TIMED", 1)


@pytest.fixture
def member(make_job, tmp_path):
    """``member(micro_batch=None, **job)``."""

    def make(micro_batch=None, **job):
        return GroupMember(make_job(**job), tmp_path, lambda progress: None, micro_batch=micro_batch)

    return make


def take(step, count):
    """Take steps. Returns their losses and the weights after them."""
    losses = []
    for _ in range(count):
        (loss,), _ = step([1e-3])
        step.member.count_step(loss)
        losses.append(loss)
    return [*losses, *(parameter.detach().clone() for parameter in step.member.trial.model.parameters())]


def check_equal(first, second):
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def check_is_replayed(details):
    """Assert that steps are replayed. Programs of torch 2.6 have other last digits and are discarded."""
    assert "replayed" in details or Version(torch.__version__) < Version("2.13")


def take_together(step, count):
    """Take steps of a group. Returns their losses, and the weights and moments after them."""
    losses = []
    for _ in range(count):
        of_members, _ = step([1e-3] * len(step.members))
        for member, loss in zip(step.members, of_members):
            member.count_step(loss)
        losses += of_members
    return [*losses, step.weights, *step.moments]


def check_stack_is_replayed(make_member):
    plain, step = (kind([make_member(seed=seed) for seed in range(3)]) for kind in (Stack, ReplayStack))
    check_equal(take_together(step, 6), take_together(plain, 6))
    check_is_replayed(step.details)


def check_replayed(make_member):
    plain, step = PlainStep(make_member()), ReplayStep(make_member())
    check_equal(take(step, 6), take(plain, 6))
    check_is_replayed(step.details)


@pytest.mark.slow
def test_replayed_steps_have_the_bits_of_plain_ones(member):
    check_replayed(lambda: member(label="R-q-12o"))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["compression", "memorization"])  # an autoencoder, and targets that do not all count
@pytest.mark.parametrize("label", ["S-pc", "D-p", "G-cg-q-12o", "L-k-q", "cd:gdn-cg", "cd:exp-sum", "ha:3", "hfa:2"])
def test_replayed_steps_of_every_family_have_the_bits_of_plain_ones(member, label, task):
    check_replayed(lambda: member(label=label, task=task))


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("task", ["compression", "memorization"])
def test_replayed_steps_with_products_by_onednn_have_the_bits_of_plain_ones(member, task, monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "LEAST_ROWS", 1)
    monkeypatch.setattr(products, "LEAST_INPUTS", 16)
    monkeypatch.setattr(products, "LEAST_WEIGHTS", 16)
    check_replayed(lambda: member(label="G-cg-q-12o", task=task))


@pytest.mark.slow
def test_replayed_steps_of_a_group_have_the_bits_of_plain_ones(member):
    check_stack_is_replayed(functools.partial(member, label="S-q-1"))
    assert type(loop.step_of([member(seed=seed) for seed in range(2)])) is ReplayStack


@pytest.mark.slow
@pytest.mark.parametrize("task", ["compression", "memorization"])
@pytest.mark.parametrize("label", ["S-pc", "G-cg-q-12o", "L-k-q", "cd:gdn-cg", "ha:3", "hfa:2"])
def test_replayed_steps_of_a_group_of_every_family_have_the_bits_of_plain_ones(member, label, task):
    check_stack_is_replayed(functools.partial(member, label=label, task=task))


@pytest.mark.slow
def test_replayed_micro_batches_of_a_group_have_the_bits_of_plain_ones(member):
    check_stack_is_replayed(functools.partial(member, micro_batch=6))


@pytest.mark.slow
def test_replayed_micro_batches_have_the_bits_of_plain_ones(member):
    check_replayed(lambda: member(micro_batch=6))


@pytest.mark.slow
def test_replayed_steps_of_a_language_model_with_clipping_have_the_bits_of_plain_ones(tiny, corpus, tmp_path):
    job = tiny.make_job(corpus, grad_clip=0.05)
    check_replayed(lambda: GroupMember(job, tmp_path, lambda _: None, corpora={corpus.digest: corpus}))


@pytest.mark.slow
def test_an_interrupted_replayed_run_has_the_bits_of_a_plain_one(make_job, train, monkeypatch):
    job, left = make_job(epochs=4), [6]

    def stop(progress):
        left[0] -= 1
        if left[0] == 0:
            raise StopTraining

    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    with pytest.raises(StopTraining):
        train(job, stop)
    resumed = train(job)
    monkeypatch.setattr(replay, "LEAST_STEPS", 10**9)
    plain = train(dataclasses.replace(job))
    check_is_replayed(resumed.details)
    assert "replayed" not in plain.details
    assert (resumed.metrics, [row["train_loss"] for row in resumed.curve]) == (
        plain.metrics,
        [row["train_loss"] for row in plain.curve],
    )


def test_a_recorded_program_with_other_bits_is_discarded(member, monkeypatch):
    """The program is discarded for other jobs too: the next one with the same shapes records its own."""
    recorded = []
    monkeypatch.setattr(replay, "MOST_PROGRAMS", 12)

    def record(plain, inputs):
        recorded.append(1)
        return lambda *inputs: [plain(*inputs)[0], *(1.0001 * output for output in plain(*inputs)[1:])]

    monkeypatch.setattr(replay, "record", record)
    for count in (1, 2):
        plain, step = PlainStep(member()), ReplayStep(member())
        check_equal(take(step, 4), take(plain, 4))
        assert step.details == {} and len(recorded) == count


def test_a_recorded_program_that_is_right_only_for_its_first_batch_is_discarded(member, monkeypatch):
    def record(plain, inputs):
        outputs = plain(*inputs)
        return lambda *inputs: outputs

    monkeypatch.setattr(replay, "record", record)
    plain, step = PlainStep(member()), ReplayStep(member())
    check_equal(take(step, 4), take(plain, 4))
    assert step.details == {}


@pytest.mark.parametrize("error", [AttributeError("torch.jit has no attribute 'trace'"), RuntimeError("no rule")])
def test_steps_are_plain_if_recording_fails(member, monkeypatch, error):
    def record(plain, inputs):
        raise error

    monkeypatch.setattr(replay, "record", record)
    plain, step = PlainStep(member()), ReplayStep(member())
    check_equal(take(step, 3), take(plain, 3))


@pytest.mark.slow
def test_one_recorded_program_serves_all_seeds_of_a_job(member, monkeypatch):
    recorded, record = [], replay.record
    monkeypatch.setattr(replay, "record", lambda *of: recorded.append(1) or record(*of))
    monkeypatch.setattr(replay, "MOST_PROGRAMS", 12)
    for seed in (0, 1):
        plain, step = (kind(member(task="compression", seed=seed)) for kind in (PlainStep, ReplayStep))
        check_equal(take(step, 5), take(plain, 5))
        check_is_replayed(step.details)
    is_given_up = not step.details
    assert is_given_up or len(recorded) == 1  # the fourth batch is smaller and comes once


def test_mixers_without_the_trait_is_replayable_are_not_replayed(member, monkeypatch):
    each = member()
    assert can_replay(each)
    for mixer in each.trial.mixers:
        monkeypatch.setattr(mixer, "traits", dataclasses.replace(mixer.traits, is_replayable=False))
    assert not can_replay(each)
    assert type(loop.step_of([each])) is PlainStep


def test_a_loss_that_does_not_declare_its_branches_is_not_replayed(member):
    each = member()
    each.trial.loss = torch.nn.Sequential(each.trial.loss)
    assert not can_replay(each)


@pytest.mark.parametrize("module", [torch.nn.Dropout(0.1), type("Own", (torch.nn.Linear,), {})(4, 4)])
def test_a_model_with_modules_of_others_is_not_replayed(member, module):
    each = member()
    each.trial.model.more = module
    assert not can_replay(each)


def test_long_passes_are_not_recorded(member, monkeypatch):
    monkeypatch.setattr(replay, "LONGEST_PASS", 0.0)
    monkeypatch.setattr(replay, "record", None)  # not called
    assert take(ReplayStep(member()), 4)


def test_short_runs_are_not_recorded(member, monkeypatch):
    each = member()
    monkeypatch.setattr(replay, "LEAST_STEPS", each.trial.steps + 1)
    assert not can_replay(each)
