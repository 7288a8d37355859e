"""Budgets of items: the paper's ranks at the paper's size, the strict budget at quick sizes, and both as rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from madbench.analysis.scores import Results
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import Record
from madbench.mixers import solve
from madbench.papers import load_paper
from madbench.papers.making import Request, jobs_of, measure_of
from madbench.store.runs import Store

PAPER = load_paper("hypermlp")


def test_profiles_of_the_papers_size_use_the_paper_budget_by_default():
    def budget(item, profile, asked=None):
        return Request(PAPER, PAPER.item(item), profile, budget=asked).effective_budget

    assert budget("table1", "quick") == budget("table1", "evening") == "strict"
    assert budget("table1", "full") == budget("quick", "full") == budget("table2", "full") == "paper"
    assert budget("table2", "fineweb-1.3b") == "paper" and budget("table2", "quick") == "strict"
    assert budget("table1", "full", "strict") == "strict" and budget("table1", "quick", "paper") == "paper"


@pytest.mark.parametrize("length", [32, 64, 128, 256, 512, 1024])
def test_the_rank_of_mixing_is_the_published_one_at_every_length(length):
    request = Request(PAPER, PAPER.item("table1"), "full")
    assert solve("R-cg-q-12o", 128, 2, length, request.effective_budget).r == 16


@pytest.mark.slow
def test_jobs_of_the_full_profile_have_the_paper_budget():
    request = Request(PAPER, PAPER.item("table1"), "full", seeds="0", labels=("R-cg-q-12o",))
    assert {job.budget for job in jobs_of(request)} == {"paper"}
    assert {job.budget for job in jobs_of(replace(request, budget="strict"))} == {"strict"}


@pytest.mark.slow
def test_an_item_shows_runs_of_both_budgets_and_judges_claims_under_one(tmp_path):
    item = replace(PAPER.item("quick"), labels=("S", "R-cg-q-12o"), tasks=("compression",), claims=())
    request = Request(PAPER, item, results=tmp_path)
    store, accuracy = Store.open(tmp_path), {"strict": 0.4, "paper": 0.6}

    def table(asked):
        planned = prepare(measure_of(item).plan(asked), ExperimentOptions(device="cpu", results=tmp_path))
        for job in planned.jobs:
            value = accuracy[job.budget]
            metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
            store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
        (made,) = measure_of(item).decide(asked, Results.from_rows(planned, store)).tables
        return made

    assert "R-cg-q-12o" in [line[0] for line in table(request).lines]
    both = table(replace(request, budget="paper"))
    names = [line[0] for line in both.lines]
    assert names[:2] == ["S, paper", "S, strict"] and "R-cg-q-12o, strict" in names
    cells = {
        (cell["label"], cell["budget"]): cell["mean"] for cell in both.json_rows() if cell["column"] == "compression"
    }
    assert cells["R-cg-q-12o", "paper"] == pytest.approx(60) and cells["R-cg-q-12o", "strict"] == pytest.approx(40)
    assert "under paper alone" in both.caption


def test_a_budget_has_no_effect_on_items_that_train_no_ranks(main):
    for words in (("hypermlp", "theorem2.3"), ("hypermlp", "table3"), ("coefficients", "principle1")):
        refused = main("paper", *words, "--budget", "paper")
        assert refused.code == 2 and "--budget" in refused.stderr and "no effect" in refused.stderr
