"""The jobs of a plan: their number, order and fields, and labels or tasks that are refused."""

from __future__ import annotations

import dataclasses
import math

import pytest

from madbench.errors import BudgetError, ConfigError, LabelError
from madbench.labels import expand, family_of
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS, MadProfile
from madbench.suites.signals.suite import SIGNALS
from madbench.text.corpus import imagined_corpus

plan = MAD.jobs
FULL, QUICK = MadProfile.load("full"), MadProfile.load("quick")
LENGTHS = ("tasks.in_context_recall.setting.seq_len=64", "tasks.memorization.setting.seq_len=8")


def steps(job) -> int:
    return job.training.epochs * math.ceil(job.setting["num_train_examples"] / job.training.batch_size)


def test_a_label_has_6_jobs_in_profile_quick_and_396_in_full():
    assert [job.task for job in plan(["S"], QUICK)] == list(MAD_TASKS)
    jobs = plan(["S"], FULL)
    assert len(jobs) == 396
    assert len({str(job.setting) + job.task for job in jobs}) == 66
    assert sum(map(steps, jobs)) == 5_384_400
    tokens = sum(job.training.epochs * job.setting["num_train_examples"] * job.setting["seq_len"] for job in jobs)
    assert f"{tokens:.1e}" == "1.8e+11"


@pytest.mark.parametrize("suite", [MAD, SIGNALS, LANGUAGE], ids=lambda suite: suite.name)
def test_runs_per_label_counts_the_jobs_of_one_label_and_seed(suite):
    profile = suite.Profile.load(suite.default)
    corpus = {"corpus": imagined_corpus(profile.vocab_size or 256)} if suite is LANGUAGE else {}
    assert suite.runs_per_label(profile) == len(suite.plan(["R-q-12o"], profile, seeds=(0,), **corpus).jobs)


def test_jobs_are_ordered_by_label_task_setting_rate_decay_and_seed():
    jobs = plan(["S", "R", "S"], FULL, tasks=["memorization", "compression"], seeds=[3, 1])
    vocabularies = [256, 512, 1024, 2048, 4096, 8192]
    expected = [
        (label, vocabulary, rate, decay, seed)
        for label in ("S", "R")
        for vocabulary in vocabularies
        for rate in (1e-4, 5e-4, 1e-3)
        for decay in (0.0, 0.1)
        for seed in (3, 1)
    ]
    found = [
        (job.label, job.setting["vocab_size"], job.training.learning_rate, job.training.weight_decay, job.seed)
        for job in jobs
        if job.task == "memorization"
    ]
    assert found == expected
    assert [job.task for job in jobs] == 2 * (["memorization"] * 72 + ["compression"] * 132)
    assert len({job.id for job in jobs}) == len(jobs)


def test_the_seed_changes_fastest():
    jobs = plan(["S"], QUICK, seeds=(0, 1))
    assert [job.seed for job in jobs] == [0, 1] * 6


def test_every_option_of_a_plan_reaches_the_job():
    profile = MadProfile.load("quick", ["training.epochs=3", "model.d_model=32", "tasks.compression.setting.seq_len=8"])
    (job,) = plan(
        ["HyperGLU"], profile, tasks=["compression"], seeds=[7], fidelity="published", budget="paper",
        precision="bfloat16",
    )  # fmt: skip
    assert (job.label, job.seed, job.fidelity, job.budget) == ("G-cg-q-12o", 7, "published", "paper")
    assert (job.training.precision, job.training.epochs, job.model.d_model) == ("bfloat16", 3, 32)
    assert job.setting["seq_len"] == 8 and job.setting["vocab_size"] == 16


def test_a_task_may_have_its_own_training():
    overrides = ["training.batch_size=7", "tasks.memorization.training.batch_size=5"]
    by_task = {job.task: job.training.batch_size for job in plan(["S"], MadProfile.load("quick", overrides))}
    assert by_task == dict.fromkeys(MAD_TASKS, 7) | {"memorization": 5}


def test_a_setting_lists_every_field_so_that_a_changed_default_is_another_job():
    for task in MAD_TASKS:
        (quick,) = QUICK.settings(task)
        assert {"vocab_size", "seq_len", "num_train_examples", "num_test_examples"} <= quick.keys()
        assert {frozenset(setting) for setting in FULL.settings(task)} == {frozenset(quick)}


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["strict", "paper"])
def test_every_label_of_table_1_fits_every_setting_of_the_whole_protocol(budget):
    profile = dataclasses.replace(FULL, learning_rates=(1e-3,), weight_decays=(0.0,))
    assert len(plan(expand(["@table1"]), profile, budget=budget)) == 33 * 66


def test_unknown_tasks_and_labels_are_refused():
    with pytest.raises(ConfigError, match="unknown task 'memorisation'; did you mean 'memorization'?"):
        plan(["S"], QUICK, tasks=["memorisation"])
    with pytest.raises(LabelError, match="G-cg-q-12o"):
        plan(["G-cx-q-12o"], QUICK)


def test_a_label_that_does_not_fit_is_refused_with_its_task_and_length():
    narrow = MadProfile.load("quick", ["model.d_model=16", *LENGTHS])
    assert len(plan(["G-q-12"], narrow, tasks=["memorization"])) == 1
    with pytest.raises(BudgetError, match=r"^in_context_recall at seq_len 64: G-q-12 does not fit .* at d_model 16"):
        plan(["S", "G-q-12"], narrow, tasks=["memorization", "in_context_recall"])
    assert plan(["G-q-12"], narrow, tasks=["in_context_recall"], budget="paper")


def test_settings_that_a_task_cannot_have_are_refused_before_training():
    for override, says in {
        "tasks.compression.setting.seq_len=many": "compression: setting: seq_len: expected a whole number, got 'many'",
        "tasks.compression.setting.seqlen=8": "compression: setting: unknown key 'seqlen'; did you mean 'seq_len'?",
        "tasks.compression.setting.num_test_examples=0": "compression: setting: num_test_examples must be at least 1",
    }.items():
        with pytest.raises(ConfigError) as caught:
            plan(["S"], MadProfile.load("quick", [override]), tasks=["compression"])
        assert says in str(caught.value)


def test_the_shipped_profiles_are_all_planned():
    for name in MadProfile.names():
        labels = ["S", "cd:gla-cg" if name.startswith("coefficients") else "G-cg-q-12o"]
        jobs = plan(labels, MadProfile.load(name))
        assert {job.task for job in jobs} == set(MAD_TASKS)


def test_a_plan_parses_each_label_once(monkeypatch):
    family, parsed = family_of("S"), []
    sound = type(family).parse
    monkeypatch.setattr(type(family), "parse", lambda self, text: parsed.append(text) or sound(self, text))
    plan(["S", "G-cg-q-12o"], QUICK)
    assert parsed == ["S", "G-cg-q-12o"]
