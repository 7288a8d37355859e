"""Jobs that share a step: each ends with the numbers it has alone, whatever becomes of the others."""

from __future__ import annotations

import dataclasses
import json
import math
import time

import pytest
import torch

from madbench.errors import StoreError
from madbench.jobs import Report, StopTraining
from madbench.mixers.named import recurrent_layer
from madbench.models import token_loss
from madbench.suites import token_trial
from madbench.suites.mad.suite import ModelConfig
from madbench.tasks import IGNORE
from madbench.training import loop, measured
from madbench.training.checkpoints import NAME
from madbench.training.member import GroupMember
from madbench.training.stack import Stack, groups_of, shape_of
from madbench.training.step import PlainStep
from sample_jobs import mad_job, train_job

LOSS = dict(rel=1e-4, abs=1e-5)
AT_KINKS = dict(rel=3e-3, abs=1e-4)
"""Tolerance of the losses of a curve, and of one of a label with ReLU, at whose kink a rounding error grows."""

SETTING = dict(vocab_size=8, seq_len=16, num_train_examples=16, num_validation_examples=8, num_test_examples=8)


@pytest.fixture
def folders(tmp_path):
    """``folders(jobs)``: a work folder for each, the same ones for the same jobs."""

    def make(jobs):
        works = [tmp_path / job.id for job in jobs]
        for work in works:
            work.mkdir(exist_ok=True)
        return works

    return make


@pytest.fixture
def together(folders):
    """``together(jobs, report)``: their records, trained as one step."""

    def train(jobs, report=lambda job, progress: None, stacking="always", **how):
        return loop.train(jobs, folders(jobs), report, stacking=stacking, **how)

    return train


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """``alone(job)``: its record, trained by itself in a folder of its own, once."""
    records = {}

    def train(job, **how):
        key = (job.id, *how.items())
        if key not in records:
            work = tmp_path_factory.mktemp("alone")
            records[key] = train_job(job, work, lambda progress: None, **how)
        return records[key]

    return train


@pytest.fixture
def three(make_job):
    """Three jobs that differ in all that jobs of a group may differ in, of a label with parameters of both kinds."""
    different = [(0, 1e-3, 0.0), (1, 3e-3, 0.1), (2, 3e-4, 0.5)]
    return [
        make_job("in_context_recall", "S-q-1", seed, learning_rate=rate, weight_decay=decay, epochs=2)
        for seed, rate, decay in different
    ]


def assert_same_numbers(record, expected, tolerance=LOSS):
    assert record.status == expected.status and len(record.curve) == len(expected.curve)
    for row, wanted in zip(record.curve, expected.curve):
        losses = {name: value for name, value in wanted.items() if name.endswith("loss")}
        assert {name: row[name] for name in losses} == pytest.approx(losses, **tolerance)
        assert (row["step"], row["epoch"]) == (wanted["step"], wanted["epoch"])
    assert record.metrics.get("test_loss") == pytest.approx(expected.metrics.get("test_loss"), **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-cg-q-12o", "S", "R-cg-q-12o", "G-12!", "D-ka!"])
def test_each_member_has_the_numbers_it_has_alone(label, three, together, alone):
    jobs = [dataclasses.replace(job, label=label) for job in three]
    for job, record in zip(jobs, together(jobs)):
        assert_same_numbers(record, alone(job), LOSS if label[0] in "SD" else AT_KINKS)
        assert (record.details["group"], record.details["path"]) == (3, alone(job).details["path"])


@pytest.mark.slow
@pytest.mark.parametrize("label", ["KDA", "RWKV-7"])
def test_recurrent_layers_of_a_group_work_in_blocks(label, three, together, alone, monkeypatch):
    monkeypatch.setattr(recurrent_layer, "CHUNK", 4)
    jobs = [dataclasses.replace(job, label=label, mixer={}) for job in three]
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
def test_members_share_the_seconds_of_their_steps(three, together):
    began = time.monotonic()
    seconds = [record.details["seconds"] for record in together(three)]
    assert 0 < sum(seconds) <= time.monotonic() - began


@pytest.mark.slow
def test_gradients_are_accumulated_over_parts_of_a_batch(three, together, alone):
    for job, record in zip(three, together(three, micro_batch=6)):
        assert_same_numbers(record, alone(job, micro_batch=6))


def test_a_part_of_a_batch_weighs_by_the_targets_that_each_member_has_in_it(make_job, folders):
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


def test_the_loss_of_a_group_makes_logits_of_targets_that_count_alone(make_job, folders, monkeypatch):
    jobs = [make_job("memorization", "S-q-1", seed) for seed in range(2)]
    stack = Stack([GroupMember(job, work, print) for job, work in zip(jobs, folders(jobs))])
    [([_, targets], _)] = stack.batches()
    counted, rows, plain = (targets != IGNORE).sum((1, 2)).tolist(), [], token_loss.logits_of
    monkeypatch.setattr(token_loss, "logits_of", lambda *of: rows.append(len(of[1])) or plain(*of))
    stack([1e-3, 1e-3])
    assert rows == counted and sum(counted) < targets.numel()


@pytest.mark.slow
def test_language_models_train_in_groups(tiny, corpus, folders, untimed):
    jobs = [tiny.make_job(corpus, seed=seed, learning_rate=rate) for seed, rate in ((0, 1e-2), (1, 3e-3))]
    how = {"corpora": {corpus.digest: corpus}, "micro_batch": 3}  # parts of unequal size; gradients are clipped
    stacked = loop.train(jobs, folders(jobs), lambda *_: None, stacking="always", **how)
    for work in folders(jobs):
        (work / NAME).unlink()
    separate = loop.train(jobs, folders(jobs), lambda *_: None, **how)
    for record, expected in zip(stacked, separate):
        assert record.details["group"] == 2 and "group" not in expected.details
        for row, wanted in zip(untimed(record.curve), untimed(expected.curve), strict=True):
            assert row == pytest.approx(wanted, rel=2e-3)


@pytest.mark.slow
def test_one_step_is_adamw_of_each_member_to_rounding(three, folders):
    """Weights and moments after two steps, where rounding has not grown yet."""
    stacked, separate = ([GroupMember(job, work, print) for job, work in zip(three, folders(three))] for _ in range(2))
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
def test_members_see_the_data_they_see_alone(three, together, folders, monkeypatch):
    seen, micro_batches = {}, token_trial.TokenTrial.micro_batches

    def spy(trial, step):
        for batch, share in micro_batches(trial, step):
            seen.setdefault(trial.job.id, []).append(batch)
            yield batch, share

    monkeypatch.setattr(token_trial.TokenTrial, "micro_batches", spy)
    together(three)
    stacked, seen = seen, {}
    for work in folders(three):
        (work / NAME).unlink()
    loop.train(three, folders(three), lambda *_: None)
    for job in three:
        assert len(seen[job.id]) == 8
        for batch, expected in zip(stacked[job.id][-8:], seen[job.id], strict=True):
            assert all(map(torch.equal, batch, expected))


@pytest.mark.slow
def test_a_member_that_stops_early_leaves_and_the_others_are_not_disturbed(three, together, alone, monkeypatch):
    expected, is_done = [alone(job) for job in three], token_trial.TokenTrial.is_done
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))
    records = together(three)
    assert [len(record.curve) for record in records] == [2, 1, 2]
    assert records[1].curve[0] == pytest.approx(expected[1].curve[0], **LOSS)
    for record, wanted in zip(records[::2], expected[::2]):
        assert_same_numbers(record, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("stacking", ["always", "never"])
def test_a_record_is_told_when_its_job_ends_and_not_when_the_group_does(stacking, three, together, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    is_done = token_trial.TokenTrial.is_done
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))
    told = []
    report = Report(
        lambda job, progress: told.append((job.seed, progress["step"])),
        lambda job, record: told.append((job.seed, record)),
    )
    records = together(three, report, stacking=stacking)
    ends = [(seed, what) for seed, what in told if not isinstance(what, int)]
    order = [1, 0, 2] if stacking == "always" else [0, 1, 2]
    assert ends == [(seed, records[seed]) for seed in order]
    assert told.index(ends[0]) < len(told) - 4


def test_a_job_alone_tells_its_record_by_its_return(make_job, together):
    assert together([make_job()], Report(lambda *_: None, lambda *_: pytest.fail("told early")))


@pytest.mark.slow
def test_a_member_that_ended_before_another_failed_comes_from_its_checkpoint(three, together, folders, monkeypatch):
    is_done, finish = token_trial.TokenTrial.is_done, token_trial.TokenTrial.finish
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))

    def broken(self, curve):
        if self.job.seed == 0:
            raise ValueError("no such data")
        return finish(self, curve)

    monkeypatch.setattr(token_trial.TokenTrial, "finish", broken)
    records, steps = [], []
    with pytest.raises(ValueError, match="no such data"):
        together(three, Report(lambda *_: None, lambda job, record: records.append(record)))
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    again = together(three[1:], lambda job, progress: steps.append(progress["step"]))
    assert steps == [] and [(one.metrics, one.curve) for one in again] == [(one.metrics, one.curve) for one in records]


def test_a_member_that_ends_on_a_disk_without_room_for_its_checkpoint_has_its_record(three, together, monkeypatch):
    is_done, records = token_trial.TokenTrial.is_done, []
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))

    def full(*arguments, **how):
        raise StoreError("no space left")

    monkeypatch.setattr("madbench.training.member.save_checkpoint", full)
    with pytest.raises(StoreError, match="no space left"):
        together(three, Report(lambda *_: None, lambda job, record: records.append((job.seed, record.status))))
    assert records == [(1, "finished")]


@pytest.mark.slow
def test_a_member_that_diverges_leaves_and_the_others_are_not_disturbed(make_job, together, alone):
    jobs = [
        make_job(label="S-12o!", seed=seed, learning_rate=rate, epochs=2)
        for seed, rate in ((0, 1e-3), (1, 1e30), (2, 1e-3))
    ]
    records = together(jobs)
    assert [record.status for record in records] == ["finished", "diverged", "finished"]
    assert len(records[1].curve) == 1 and records[1].metrics == {}
    for job, record in zip(jobs, records):
        if record.status == "finished":
            assert_same_numbers(record, alone(job))


@pytest.mark.slow
@pytest.mark.parametrize("resume", ["together", "apart"])
def test_interrupted_members_resume_together_and_alone(resume, three, together, alone, folders, monkeypatch):
    """All are saved when one report asks to stop; a checkpoint is one job's, however it was trained."""
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    expected = {job.id: alone(job) for job in three}

    def stop(job, progress):
        if job is three[1] and progress["step"] == 5:
            raise StopTraining

    with pytest.raises(StopTraining):
        together(three, stop)
    first, count = {}, 3 if resume == "together" else 1

    def note(job, progress):
        first.setdefault(job.id, progress["step"])

    records = together(three[:count], note)
    records += together(three[count:], note, stacking="never")
    assert set(first.values()) == {6}
    for job, record in zip(three, records):
        assert_same_numbers(record, expected[job.id])


@pytest.mark.slow
def test_of_jobs_that_train_one_after_another_those_that_are_done_are_not_trained_again(three, together, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)

    def stop(job, progress):
        if job is three[1] and progress["step"] == 5:
            raise StopTraining

    with pytest.raises(StopTraining):
        together(three, stop, stacking="never")
    steps = []
    together(three[:2], lambda job, progress: steps.append((job.seed, progress["step"])), stacking="never")
    assert steps == [(1, 6), (1, 7), (1, 8)]


def test_a_checkpoint_of_a_member_is_as_large_as_that_of_a_job_alone(three, together, folders, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    sizes = []
    for jobs in (three, three[:1]):
        with pytest.raises(StopTraining):
            together(jobs, lambda job, progress: (_ for _ in ()).throw(StopTraining()))
        sizes.append((folders(jobs)[0] / NAME).stat().st_size)
        (folders(jobs)[0] / NAME).unlink()
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


@pytest.mark.slow
def test_members_at_different_steps_resume_and_a_finished_one_is_not_trained_again(
    three, together, alone, folders, monkeypatch
):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    expected = [alone(job) for job in three]

    def stop_at(step):
        def stop(job, progress):
            if progress["step"] == step:
                raise StopTraining

        return stop

    with pytest.raises(StopTraining):
        loop.train(three[:1], folders(three[:1]), stop_at(6))
    with pytest.raises(StopTraining):
        loop.train(three[1:2], folders(three[1:2]), stop_at(8))
    steps = {job.id: [] for job in three}
    records = together(three, lambda job, progress: steps[job.id].append(progress["step"]))
    assert [steps[job.id] for job in three] == [[7, 8], [], list(range(1, 9))]
    for record, wanted in zip(records, expected):
        assert_same_numbers(record, wanted)


@pytest.mark.slow
def test_a_group_of_one_is_the_plain_step_bit_for_bit(make_job, together, alone):
    job = make_job()
    [record], expected = together([job]), alone(job)
    assert (record.metrics, record.curve) == (expected.metrics, expected.curve)


@pytest.mark.slow
def test_kept_weights_are_those_of_each_member(three, together, folders):
    from madbench.training.checkpoints import load_model

    together(three, keep_weights=True)
    for job, work in zip(three, folders(three)):
        model, saved = load_model(work / "keep" / "weights.safetensors")
        assert saved == job
        scores = token_trial.evaluate(
            model, *token_trial.load_data(job, "cpu")["test"], token_trial.TokenTrial(job, "cpu", loop.world).autocast
        )
        assert scores["loss"] == pytest.approx(together([job])[0].metrics["test_loss"], **LOSS)


@pytest.mark.slow
def test_jobs_that_cannot_share_a_step_train_one_after_another_and_say_why(three, together, alone, monkeypatch):
    monkeypatch.setattr("madbench.training.stack.STACKABLE_BYTES", 0)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    warnings = set()
    records = together(three, lambda job, progress: warnings.add(progress.get("warning")))
    assert warnings == {None, "3 jobs cannot train as one: TrainingError: 15 tokens are too many for a dense path"}
    assert [record.curve for record in records] == [alone(job).curve for job in three]


def test_groups_are_consecutive_jobs_of_equal_shapes_of_like_size(make_job):
    first, second = ([make_job(label=label, seed=seed) for seed in range(5)] for label in ("S", "R-q-12o"))
    assert [len(group) for group in groups_of(first + second, 8)] == [5, 5]
    assert [len(group) for group in groups_of(first + second, 4)] == [2, 3, 2, 3]
    assert groups_of(first, 1) == [[job] for job in first]
    assert [job for group in groups_of(first + second, 3) for job in group] == first + second


def test_only_seed_rate_and_decay_differ_within_a_shape(make_job):
    job = make_job()
    same = [make_job(seed=1), make_job(learning_rate=1.0), make_job(weight_decay=0.5), make_job(min_learning_rate=1e-9)]
    assert {shape_of(other) for other in same} == {shape_of(job)}
    others = [make_job(label="S"), make_job(epochs=9), make_job(batch_size=8), make_job(task="compression")]
    others += [make_job(beta2=0.5), make_job(warmup_steps=2), make_job(fidelity="published")]
    assert len({shape_of(other) for other in [job, *others]}) == 1 + len(others)


class FakeStep:
    """A step of N members that takes as long as it says on a clock of its own."""

    warm_up = 1

    def __init__(self, members, clock, seconds):
        self.members, self.clock, self.seconds = members, clock, seconds

    def __call__(self, rates):
        self.clock[0] += self.seconds
        return [torch.zeros(()) for _ in self.members], [None] * len(self.members)


@pytest.fixture
def measure(three, folders, monkeypatch, tmp_path):
    """``measure(seconds by number of members)`` gives whether three are faster together, and what was measured."""
    clock, made = [0.0], []
    monkeypatch.setattr(measured.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(measured, "OVERHEAD_SECONDS", 2.0)
    members = [GroupMember(job, work, print) for job, work in zip(three, folders(three))]

    def call(seconds, folder=tmp_path / "measured"):
        made.clear()

        def make_step(some):
            made.append(len(some))
            if seconds[len(some)] is None:
                raise RuntimeError("too little memory")
            return FakeStep(some, clock, seconds[len(some)])

        return measured.is_faster(members, make_step, folder), list(made)

    return call


def test_a_common_step_is_taken_where_it_is_measured_faster(measure, tmp_path):
    for i, (seconds, expected) in enumerate([(1.0, True), (2.9, False), (None, False)]):
        assert measure({1: 1.0, 3: seconds}, tmp_path / str(i)) == (expected, [1, 3])


def test_what_trains_for_less_than_a_measurement_repays_is_not_measured(measure):
    assert measure({1: 0.01, 3: 0.001}) == (False, [1])  # 3 x 8 steps are 0.24 s


def test_on_the_cpu_a_long_step_is_not_measured_with_others_and_that_is_remembered(measure):
    assert measure({1: 2.5, 3: 0.1}) == (False, [1])
    assert measure({1: 2.5, 3: 0.1}) == (False, [])


def test_a_measurement_is_remembered_and_a_damaged_one_is_made_again(measure, tmp_path):
    assert measure({1: 1.0, 3: 1.0}) == (True, [1, 3])
    assert measure({1: 1.0, 3: 9.0}) == (True, [])
    [path] = (tmp_path / "measured").iterdir()
    content = path.read_text()
    damages = ["", "[]", content[:-9], content.replace("true", "false"), json.dumps({"is_faster": True})]
    for damaged in damages:
        path.write_text(damaged)
        assert measure({1: 1.0, 3: 9.0}) == (False, [1, 3])
        path.write_text(content)
    assert measure({1: 1.0, 3: 9.0}) == (True, [])


def test_a_measurement_that_cannot_be_kept_still_decides(measure, tmp_path):
    (tmp_path / "file").touch()
    assert measure({1: 1.0, 3: 1.0}, tmp_path / "file") == (True, [1, 3])


@pytest.mark.slow
def test_measuring_changes_nothing_of_the_jobs(three, folders, alone, monkeypatch):
    monkeypatch.setattr(measured, "WORTHWHILE_SECONDS", 0)
    monkeypatch.setattr(measured, "OVERHEAD_SECONDS", math.inf)
    for share in (0, math.inf):  # never faster, always faster
        monkeypatch.setattr(measured, "FASTER", share)
        records = loop.train(three, folders(three), lambda *_: None, stacking="measured")
        for job, record in zip(three, records):
            assert ("group" in record.details) == (share > 0)
            assert_same_numbers(record, alone(job))
        for work in folders(three):
            (work / NAME).unlink(missing_ok=True)


LEAVES = {1: 3, 3: 5}
"""Steps after which two of four jobs leave their group, by seed."""


@pytest.fixture
def four(make_job, monkeypatch):
    """Four jobs of 12 steps with a row each; that with seed 1 is over early, that with seed 3 fails."""
    is_done, row = token_trial.TokenTrial.is_done, token_trial.TokenTrial.row

    def failing(self, interval):
        if self.job.seed == 3 and interval.step >= LEAVES[3]:
            raise ValueError("no such data")
        return row(self, interval)

    def over(self, curve_row):
        return (self.job.seed == 1 and curve_row["step"] >= LEAVES[1]) or is_done(self, curve_row)

    monkeypatch.setattr(token_trial.TokenTrial, "row", failing)
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", over)
    monkeypatch.setattr(token_trial.TokenTrial, "has_row", lambda self, step: True)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    return [make_job(label="S-q-1", seed=seed) for seed in range(4)]


def bits_of(record):
    rows = [{name: value for name, value in row.items() if "seconds" not in name} for row in record.curve]
    return record.status, record.metrics, rows, record.details["group"], record.details["group_jobs"]


def train_with_interruptions(jobs, folders, saved_at):
    """The bits of jobs of a group, by seed. ``saved_at`` are the steps of interruptions, each with how many are saved.

    Every interruption ends as where a process is killed while it saves: the others keep their earlier checkpoints.
    """
    records = {}
    for step, count in [*saved_at, (None, None)]:
        left = [job for job in jobs if job.seed not in records]
        of_ended = Report(_interruption(step), lambda job, record: records.setdefault(job.seed, bits_of(record)))
        with pytest.MonkeyPatch.context() as patch, pytest.raises((StopTraining, ValueError)) as ended:
            patch.setattr(GroupMember, "save", _killed_save(step, count))
            loop.train(left, folders(left), of_ended, stacking="always")
        assert ended.type is (ValueError if step is None else StopTraining)
    return records


def _interruption(step):
    def report(job, progress):
        if progress["step"] == step:
            raise StopTraining

    return report


def _killed_save(step, count):
    """``GroupMember.save`` of a process that is killed once ``count`` members are saved at ``step``."""
    saved, save = [], GroupMember.save

    def killed(self, seconds):
        if self.state.step == step:
            if len(saved) == count:
                raise StopTraining
            saved.append(self)
        save(self, seconds)

    return killed


@pytest.mark.slow
@pytest.mark.parametrize(
    "saved_at",
    [
        [(2, 4)],  # all are saved while all train
        [(2, 4), (4, 3), (7, 2)],  # while all train, one is over, one has failed too
        [(2, 1)],  # the process is killed when one is saved
        [(2, 4), (4, 1)],
        [(1, 4), (2, 2), (4, 2), (6, 1), (8, 1)],
    ],
)
def test_a_group_that_is_interrupted_has_the_bits_of_one_that_is_not(saved_at, four, folders):
    expected = train_with_interruptions(four, folders, [])
    assert expected.keys() == {0, 1, 2}
    for work in folders(four):
        (work / NAME).unlink()
    assert train_with_interruptions(four, folders, saved_at) == expected
    ids = [job.id for job in four]
    histories = {seed: [(each["from_step"], each["ids"]) for each in bits[-1]] for seed, bits in expected.items()}
    assert histories[1] == [(0, ids)]
    assert histories[0] == histories[2] == [(0, ids), (3, [ids[0], *ids[2:]]), (5, ids[:3:2])]
    assert {bits[-2] for bits in expected.values()} == {4}
