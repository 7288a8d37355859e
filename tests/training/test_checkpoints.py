"""A resumed run ends with the numbers of an uninterrupted one. Foreign and damaged checkpoints are never used."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace
from random import Random

import pytest
import torch

from madbench.errors import TrainingError
from madbench.jobs import StopTraining
from madbench.suites.mad.suite import MAD
from madbench.training import distributed, loop, member
from madbench.training.checkpoints import NAME, TrainingState, load_checkpoint, load_model, save_weights
from madbench.training.optimizer import make_optimizer


@pytest.fixture(autouse=True)
def report_every_step(monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)


def until_done(job, train, report):
    while True:
        try:
            return train(job, report)
        except StopTraining:
            continue


@pytest.mark.slow
@pytest.mark.parametrize(
    "label, task, fidelity", [("R-cg-q-12o", "in_context_recall", "corrected"), ("S", "compression", "published")]
)
def test_a_resumed_run_ends_with_the_same_numbers_bit_for_bit(
    label, task, fidelity, make_job, train, tmp_path, stop_at
):
    job = make_job(label=label, task=task, fidelity=fidelity, weight_decay=0.1)
    expected = train(job)
    assert not (tmp_path / NAME).exists()
    # the first step, mid-epoch, an epoch's last step and the next, two in a row, the run's last step
    report = stop_at(1, 4, 5, 6, 10, 12)
    record = until_done(job, train, report)
    assert report.steps == [] and report.seen == list(range(1, 13))
    assert record.metrics == expected.metrics and record.curve == expected.curve
    assert record.status == expected.status


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_from_its_last_checkpoint(make_job, train, monkeypatch, stop_at):
    """Not every step is saved: steps after the last checkpoint are repeated."""
    job = make_job()
    expected = train(job)
    saved, save = [], member.save_checkpoint

    def save_now_and_then(work, job, trial, optimizer, state, seconds):
        if state.step % 5 == 0:
            saved.append(state.step)
            save(work, job, trial, optimizer, state, seconds)

    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", float("inf"))  # a slow disk would leave out a checkpoint
    monkeypatch.setattr(member, "save_checkpoint", save_now_and_then)
    killed, resumed = stop_at(9), stop_at()
    with pytest.raises(StopTraining):
        train(job, killed)
    record = train(job, resumed)
    assert saved == [5, 10] and resumed.seen == list(range(6, 13))
    assert record.metrics == expected.metrics and record.curve == expected.curve


@pytest.mark.slow
def test_an_early_stop_is_remembered(make_job, train, monkeypatch, stop_at):
    job = make_job(stop_accuracy=0.0)
    expected = train(job)
    report = stop_at(4)
    record = until_done(job, train, report)
    assert report.seen == [1, 2, 3, 4] and len(record.curve) == 1
    assert record.metrics == expected.metrics


def test_the_checkpoint_of_another_job_is_refused(make_job, train, tmp_path, stop_at):
    job, other = make_job(), make_job(seed=1)
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    with pytest.raises(TrainingError, match=f"belongs to job {job.id}, not to {other.id}") as caught:
        train(other)
    assert str(tmp_path / NAME) in str(caught.value)


@pytest.mark.slow
def test_a_run_with_a_truncated_checkpoint_starts_again_with_a_warning(make_job, train, tmp_path, stop_at):
    job = make_job(label="S", epochs=1)
    expected = train(job)
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    content = (tmp_path / NAME).read_bytes()
    for kept in (0, 20, 100, len(content) // 2, -1):
        (tmp_path / NAME).write_bytes(content[:kept])
        report, progress = stop_at(), []
        record = train(job, lambda line: (report(line), progress.append(line)))  # noqa: B023
        assert report.seen[0] == 1 and (record.metrics, record.curve) == (expected.metrics, expected.curve)
        assert {line["warning"] for line in progress} == {
            (
                f"{tmp_path / NAME}: damaged, or not a checkpoint that this madbench saved; the run starts from the"
                " beginning"
            )
        }


@pytest.mark.slow
def test_no_flipped_bit_of_a_checkpoint_is_resumed_from(make_job, train, tmp_path, stop_at):
    job = make_job()
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    path, random = tmp_path / NAME, Random(0)
    content = path.read_bytes()
    trial = MAD.Trial(job, "cpu", distributed)
    optimizer, state = make_optimizer(trial.model, job.training), TrainingState("cpu")
    initial = {name: tensor.clone() for name, tensor in trial.model.state_dict().items()}
    for _ in range(200):
        place, bit = random.randrange(len(content)), 1 << random.randrange(8)
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        assert "starts from the beginning" in load_checkpoint(tmp_path, job, trial, optimizer, state, "cpu")
        with pytest.raises(TrainingError, match="damaged, or not a checkpoint that this madbench saved$"):
            load_model(path)
    assert state.step == 0 and not optimizer.state
    torch.testing.assert_close(trial.model.state_dict(), initial, rtol=0, atol=0)
    path.write_bytes(content)
    assert load_checkpoint(tmp_path, job, trial, optimizer, state, "cpu") == "" and state.step == 2


@pytest.mark.slow
def test_a_folder_in_place_of_a_checkpoint_is_not_fatal(make_job, train, tmp_path):
    (tmp_path / NAME).mkdir()
    assert train(make_job()).status == "finished"
    with pytest.raises(TrainingError, match="cannot be read: not a file"):
        load_model(tmp_path / NAME)


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", ["corrected", "published"])
def test_a_checkpoint_of_wrong_types_with_a_right_digest_is_refused(make_job, train, tmp_path, stop_at, fidelity):
    job = make_job(label="S", fidelity=fidelity)
    with pytest.raises(StopTraining):
        train(job, stop_at(5))
    whole = torch.load(tmp_path / NAME, weights_only=True)
    odd = [None, "x", [], [1], {}, {"a": 1}, -5, 10**12, torch.zeros(3)]
    trial = MAD.Trial(job, "cpu", distributed)

    def load(content) -> None:
        torch.save(content, tmp_path / NAME)
        saved = (tmp_path / NAME).read_bytes()
        (tmp_path / NAME).write_bytes(saved + hashlib.sha256(saved).digest())
        optimizer = make_optimizer(trial.model, job.training, job.fidelity)
        assert not load_checkpoint(tmp_path, job, trial, optimizer, TrainingState("cpu"), "cpu")

    def refuse(content) -> None:
        with pytest.raises(TrainingError, match="does not fit|belongs to job"):
            load(content)

    load(whole)
    load({**whole, "state": {name: value for name, value in whole["state"].items() if name != "places"}})  # an old one
    for name in whole.keys() - {"config"}:
        for value in odd:
            if not (name == "trial" and fidelity == "corrected" and isinstance(value, dict)):
                refuse({**whole, name: value})
    for name, own in whole["state"].items():
        for value in odd:
            is_number = type(value) is int and value in (-5, 10**12)
            if type(value) is not type(own) or (name == "step" and is_number) or name == "loss_sum":
                refuse({**whole, "state": {**whole["state"], name: value}})
    for row in ({"step": 1}, {"step": "x"}, {**whole["state"]["curve"][-1], "step": 100}, {}):
        refuse({**whole, "state": {**whole["state"], "curve": [row]}})
    optimizer = whole["optimizer"]
    first = {**optimizer["state"][0], "exp_avg": torch.zeros(7)}
    refuse({**whole, "optimizer": {**optimizer, "state": {**optimizer["state"], 0: first}}})
    refuse({**whole, "optimizer": {**optimizer, "state": {**optimizer["state"], 999: first}}})
    group = {**optimizer["param_groups"][0], "lr": "x", "betas": None}
    # the job has the rate and the betas
    load({**whole, "optimizer": {**optimizer, "param_groups": [group, *optimizer["param_groups"][1:]]}})
    torch.save([1], tmp_path / NAME)
    saved = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(saved + hashlib.sha256(saved).digest())
    assert "not a checkpoint" in load_checkpoint(tmp_path, job, trial, None, TrainingState("cpu"), "cpu")
    (tmp_path / NAME).write_bytes(b"x" * 99 + hashlib.sha256(b"x" * 99).digest())
    with pytest.raises(TrainingError, match="cannot be read"):
        load_checkpoint(tmp_path, job, trial, None, TrainingState("cpu"), "cpu")


def test_the_error_on_an_untrusted_module_quotes_the_label_for_a_shell(make_job, tmp_path):
    label = "my:mine.Mixer(decay=0.5)"
    save_weights(tmp_path / "w.safetensors", torch.nn.Linear(1, 1), replace(make_job(), label=label))
    with pytest.raises(TrainingError) as caught:
        load_model(tmp_path / "w.safetensors")
    assert f"--trust {shlex.quote(label)}, or" in str(caught.value)
