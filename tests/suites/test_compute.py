"""Budget compute: each label trains as many steps as match the training FLOPs of softmax attention, on its own
schedule."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from madbench.errors import ConfigError
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import StopTraining, content_id
from madbench.labels.budgets import BUDGETS
from madbench.rows import Grid, Row
from madbench.suites import job_from_dict, size_of, suite_of, suites
from madbench.suites.compute import with_steps
from madbench.suites.mad.suite import MAD
from madbench.suites.planning import StoredCode, plan_as_stored, run_key
from madbench.suites.protocol import Protocol, by_protocol
from madbench.training import loop
from sample_jobs import language_job, mad_job, train_job
from small_profiles import counts, profile_text, with_setting

PROFILE = profile_text(
    model={"d_model": 16},
    training={"batch_size": 16, "epochs": 5, "warmup_steps": 2, "min_learning_rate": 1e-5, "stop_accuracy": 2},
    tasks=with_setting(["compression"], **{"seq_len": 8, **counts(40, 32)})
    | with_setting(["memorization"], seq_len=8, num_validation_examples=32, num_test_examples=32),
)
"""A profile with a few steps of two tasks, and a last batch of 8 examples."""
LABELS = ("S-p", "R-c-q", "G-cg-q-12o", "GDN", "R-12o!", "3xKDA/S-p/...")


@pytest.fixture
def profile(tmp_path):
    (tmp_path / "tiny.yaml").write_text(PROFILE)
    return MAD.Profile.load(str(tmp_path / "tiny.yaml"))


def token_flops(job, steps):
    """Forward FLOPs of ``steps`` steps of a MAD job, batch by batch."""
    size, examples, batch = size_of(job), job.setting.get("num_train_examples"), job.training.batch_size
    tokens = 0
    for step in range(steps):
        within = step % -(-examples // batch)
        tokens += min(batch, examples - within * batch) * size.seq_len
    return tokens * size.flops_per_token


def test_the_compute_budget_chooses_the_steps_nearest_to_attentions_flops(profile):
    jobs = MAD.jobs(LABELS, profile, tasks=("compression",), budget="compute")
    (usual,) = MAD.jobs(["S"], profile, tasks=("compression",))
    target = token_flops(usual, 15)
    for job in jobs:
        distances = [abs(token_flops(job, steps) - target) for steps in range(1, 40)]
        assert job.steps == 1 + distances.index(min(distances)), job.label
        assert min(distances) <= 0.5 * 16 * 8 * size_of(job).flops_per_token
        assert size_of(job).trained_tokens * size_of(job).flops_per_token == token_flops(job, job.steps)
        assert MAD.schedule(job).steps == size_of(job).steps == job.steps
    assert [job.steps for job in jobs if job.label == "S-p"] == [15] and len({job.steps for job in jobs}) > 2


def test_steps_of_other_suites_have_the_flops_of_attention():
    base = language_job("S", "0" * 16, 64)
    jobs = with_steps([replace(base, label=label, mixer={}, budget="compute") for label in LABELS[:4]], size_of)
    target = 60 * 64 * size_of(base).flops_per_token
    for job in jobs:
        assert abs(job.steps * 64 * size_of(job).flops_per_token - target) <= 32 * size_of(job).flops_per_token
        assert suite_of(job).schedule(job).steps == job.steps == size_of(job).steps
    experiment = prepare(Grid((Row("S"), Row("R-c-q")), ("digits",), budget="compute"), ExperimentOptions(device="cpu"))
    for job in experiment.jobs:
        size, usual = size_of(job), size_of(replace(job, label="S", mixer={}, steps=0))
        left = abs(size.trained_tokens * size.flops_per_token - usual.trained_tokens * usual.flops_per_token)
        assert left <= 0.5 * size.sequences_per_step * size.seq_len * size.flops_per_token


def test_the_schedule_under_a_compute_budget_ends_with_its_last_step():
    job = replace(mad_job("S"), steps=1000, budget="compute")
    training = replace(job.training, learning_rate=1e-3, min_learning_rate=1e-5, warmup_steps=10)
    own = MAD.schedule(replace(job, training=training))
    assert own == training.schedule(1000, divides_last=True) and own.rate(999) < 1.1e-5 and not own.warning
    cut = training.__class__(lr_decay_steps=500).schedule(2000, matched=1000)
    assert (cut.steps, cut.decay_end) == (1000, 250)
    assert training.schedule(2000).decay_end == 2000


def test_steps_are_in_the_id_and_the_record_only_if_the_budget_chose_them(profile):
    (job,) = MAD.jobs(["R-c-q"], profile, tasks=("compression",), budget="compute")
    (usual,) = MAD.jobs(["R-c-q"], profile, tasks=("compression",))
    assert usual.steps == 0 and "steps" not in usual.to_dict()
    assert len({job.id, replace(job, steps=job.steps + 1).id, usual.id}) == 3
    assert job_from_dict(json.loads(json.dumps(job.to_dict()))).id == job.id
    for changes in ({"steps": 0}, {"steps": -1}, {"budget": "strict"}):
        with pytest.raises(ConfigError, match="do not go with budget"):
            job_from_dict(job.to_dict() | changes)
    assert content_id(job.to_dict()) != content_id(usual.to_dict())


def test_labels_under_one_compute_budget_share_a_protocol(profile):
    jobs = [
        job
        for budget in ("strict", "compute")
        for job in MAD.jobs(["S-p", "R-c-q", "G-cg-q-12o"], profile, tasks=("compression",), budget=budget)
    ]
    groups = by_protocol(MAD, jobs, lambda job: job)
    assert sorted(len(group) for group in groups.values()) == [3, 3]
    for group in groups.values():
        (budget,) = {job.budget for job in group}
        protocol = Protocol(MAD, profile, "tiny", (), ["compression"], "corrected", budget, "float32")
        assert all(protocol.plans(job) for job in group)


def test_a_label_whose_code_is_missing_is_planned_with_its_stored_steps(profile):
    jobs = MAD.jobs(["R-c-q"], profile, tasks=("compression",), budget="compute", seeds=(0, 1))
    with plan_as_stored({"R-c-q": StoredCode.from_jobs(jobs)}):
        again = MAD.plan(["R-c-q"], profile, tasks=("compression",), budget="compute", seeds=(0, 1)).jobs
    assert [job.id for job in again] == [job.id for job in jobs]
    assert run_key(jobs[0]) == run_key(jobs[1])


def test_a_suite_that_does_not_choose_steps_is_refused():
    with pytest.raises(ConfigError, match="budget compute has no effect on interacting agents"):
        prepare(Grid((Row("ha:3-C"),), ("interactions/colliding",), budget="compute"), ExperimentOptions(device="cpu"))
    choosing = {name for name, suite in suites().items() if "compute" in suite.budgets}
    assert {"mad", "language", "signals"} <= choosing and BUDGETS["compute"].chooses_steps


def test_a_plan_says_how_many_steps_and_what_remains(profile):
    rows = (Row("S-p"), Row("R-c-q"), Row("G-cg-q-12o"))
    grid = Grid(rows, ("compression",), profile=profile.source, budget="compute")
    experiment = prepare(grid, ExperimentOptions(device="cpu"))
    assert "corrected, matched by compute, cpu" in experiment.title
    notes = [note for note in experiment.notes if "times the steps of softmax attention" in note]
    assert [note.split()[2] for note in notes] == ["R-c-q", "G-cg-q-12o"]
    assert all(note.startswith("mad tasks: ") and "training FLOPs differ by at most" in note for note in notes)


@pytest.mark.slow
def test_a_run_ends_within_an_epoch_evaluates_there_and_resumes_bit_for_bit(profile, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    (job,) = MAD.jobs(["R-12o!"], profile, tasks=("compression",), budget="compute")
    assert job.steps % 3, "the last epoch is whole"
    work = tmp_path / "work"
    work.mkdir()
    expected = train_job(job, work, lambda progress: None)
    last = expected.curve[-1]
    assert (last["step"], last["epoch"]) == (job.steps, -(-job.steps // 3))
    assert len(expected.curve) == last["epoch"] and expected.details["steps"] == job.steps
    found = expected.details["compute"]
    assert (found["steps"], found["steps_of_softmax"]) == (job.steps, 15)
    assert found["of_softmax"] == found["training_flops"] / (3 * token_flops(replace(job, label="S", mixer={}), 15))
    stops = [1, job.steps - 1]

    def stop(progress):
        if progress["step"] in stops:
            stops.remove(progress["step"])
            raise StopTraining

    record = None
    while record is None:
        try:
            record = train_job(job, work, stop)
        except StopTraining:
            continue
    assert not stops and record.metrics == expected.metrics and record.curve == expected.curve


@pytest.mark.slow
def test_a_language_model_is_evaluated_after_its_last_step(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("tests/training")
    import tiny_language

    corpus = tiny_language.make_corpus(tmp_path / "corpus")
    job = replace(tiny_language.make_job(corpus, "S"), budget="compute", steps=18, mixer={})
    work = tmp_path / "work"
    work.mkdir()
    record = train_job(job, work, lambda progress: None, corpora={corpus.digest: corpus})
    rows = [row for row in record.curve if "evaluation" in row]
    assert [(row["step"], row["evaluation"]) for row in rows] == [(5, 1), (10, 2), (15, 3), (18, 4)]
    assert record.metrics["validation_loss"] == rows[-1]["validation_loss"]
    assert rows[-1]["learning_rate"] == suite_of(job).schedule(job).rate(17)
    assert size_of(job).trained_tokens == rows[-1]["tokens"] == 18 * job.training.tokens_per_step
