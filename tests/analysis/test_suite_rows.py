"""Rows read from stored runs equal the rows that their profile plans, and reading them makes no plan."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from madbench.analysis.selection import Selection
from madbench.analysis.tables import TableOptions, result_table
from madbench.jobs import Job, Record
from madbench.store import columns
from madbench.store.columns import IndexEntry, entry_of
from madbench.store.runs import Store
from madbench.suites import find_suite
from madbench.suites.addressing import parse_overrides
from madbench.suites.protocol import Protocol

METRICS = {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}
PROFILES = [
    ("mad", "quick", "S", ("compression", "memorization"), ()),
    ("mad", "full", "R-c", ("selective_copying",), ()),
    ("mad", "quick", "R-q-12", ("compression",), ("training.epochs=7", "model.d_model=32")),
    ("signals", "quick", "S-p", ("digits", "forecasting"), ("training.epochs=7",)),
    ("interactions", "quick", "hfa:C1", ("colliding",), ()),
]


@pytest.fixture
def no_plan(monkeypatch):
    """A context in which making a plan or solving a budget fails."""

    @contextmanager
    def block():
        def refuse(*_, **__):
            raise AssertionError("planned in order to read")

        with monkeypatch.context() as patch:
            patch.setattr(Protocol, "plan", refuse)
            patch.setattr("madbench.suites.planning.solve_blocks", refuse)
            patch.setattr("madbench.suites.overrides.solve_blocks", refuse)
            yield

    return block


def empty_entry_of(job: Job, record: Record) -> IndexEntry:
    """An index entry without columns, so that readers fall back to the code."""
    empty = dict.fromkeys(("profile", "changes", "in_profiles", "untrained", "published", "code"), "")
    return replace(entry_of(job, record), is_known=0, is_present=0, is_over_budget=0, **empty)


def fill(folder, jobs) -> Store:
    store = Store.open(folder)
    for job in jobs:
        store.finish(job, Record("finished", METRICS, [], {"budget_ratio": 1.0}))
    return store


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "profile", "label", "tasks", "overrides"), PROFILES)
def test_a_row_has_the_jobs_planned_by_its_profile(tmp_path, no_plan, suite, profile, label, tasks, overrides):
    """Tested for seeds with stored runs, with most runs missing, and with overrides if all runs are stored."""
    suite = find_suite(suite)
    planned = suite.jobs([label], suite.Profile.load(profile, overrides), tasks=tasks, seeds=(0, 2))
    store = fill(tmp_path / "results", planned if overrides else [planned[0], planned[-1]])
    with no_plan():
        selection = Selection(profile=profile, tasks=tasks, overrides=parse_overrides(overrides), results=store.root)
        assert [job.id for job in selection.select().jobs] == [job.id for job in planned]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "profile", "label", "tasks", "overrides"), PROFILES)
def test_rows_read_from_the_index_equal_those_planned_by_code(
    tmp_path, monkeypatch, suite, profile, label, tasks, overrides
):
    """Tested for a complete row, for one with missing runs, and for one whose seeds have different runs."""
    suite = find_suite(suite)
    planned = suite.jobs([label], suite.Profile.load(profile, overrides), tasks=tasks, seeds=(0, 2))
    monkeypatch.setattr("madbench.store.index.present_tick", lambda folder: folder.mkdir(exist_ok=True) or "")
    for name, stored in {"whole": planned, "ends": [planned[0], planned[-1]], "most": planned[1:]}.items():
        store, answers = fill(tmp_path / name, stored), []
        for make in (empty_entry_of, entry_of, entry_of):
            monkeypatch.setattr(columns, "entry_of", make)
            monkeypatch.setattr(columns, "stamp", lambda make=make: make.__name__)
            changes = parse_overrides(overrides)
            results = Selection(profile=profile, tasks=tasks, overrides=changes, results=store.root).select()
            table = result_table(results, TableOptions(shows_published=True, shows_baselines=True))
            answers.append((results.jobs, results.scores.to_csv(), table.text_rows(), table.describe(), table.origin))
        assert answers[0] == answers[1] == answers[2]
        entries = [results.store.index_entries[job.id] for job in results.jobs if job.id in results.store.jobs()]
        assert entries and all(entry.is_known for entry in entries)


def test_reading_stored_rows_makes_no_plan(tmp_path, no_plan):
    suite = find_suite("mad")
    usual, changed = (suite.Profile.load("quick", words) for words in ((), ("training.epochs=7",)))
    tasks = ("compression", "memorization")
    jobs = [*suite.jobs(["S", "R-c"], usual, tasks=tasks), *suite.jobs(["S"], changed, tasks=tasks)]
    store = fill(tmp_path / "results", jobs)
    with no_plan():
        for overrides, labels in (((), ["S", "R-c"]), (("training.epochs=7",), ["S"])):
            for asked in ((), labels):
                results = Selection(asked, parse_overrides(overrides), "quick", tasks, results=store.root).select()
                assert results.labels == labels and set(results.job_frame(suite).status) == {"finished"}


@pytest.mark.slow
def test_runs_of_an_installed_family_are_read_without_its_budget(tmp_path, no_plan, install_example):
    install_example("plugin")
    suite = find_suite("mad")
    jobs = suite.jobs(["lin:elu"], suite.Profile.load("quick"), tasks=["compression", "memorization"], seeds=(0, 1))
    store = fill(tmp_path / "results", jobs[:-1])
    with no_plan():
        results = Selection(tasks=["compression", "memorization"], profile="quick", results=store.root).select()
    assert sorted(job.id for job in results.jobs) == sorted(job.id for job in jobs)


@pytest.mark.slow
def test_runs_of_a_label_that_an_override_does_not_affect_are_shown(tmp_path):
    """On the longer task the budget gives R-cg-q-12o a smaller rank than the overridden one, so the override has no
    effect there."""
    suite, tasks = find_suite("mad"), ["compression", "selective_copying"]
    changes = parse_overrides(["model.mix_rank=4"])
    profile = suite.Profile.load("evening", changes)
    jobs = suite.jobs(["R-cg-q-12o"], profile, tasks=tasks)
    assert len({str(job.mixer) for job in jobs}) == 2
    store = fill(tmp_path / "results", jobs)
    results = Selection((), changes, "evening", tasks, results=store.root).select()
    assert set(results.job_frame(suite).status) == {"finished"}
