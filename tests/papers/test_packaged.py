"""Papers of installed packages, tested with the example package."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

import madbench
from installed import forget_installed
from madbench.analysis.claims import load_claims
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import Record
from madbench.papers import built_in, load_paper, loaded_papers
from madbench.papers.making import Request, jobs_of, measure_of
from madbench.store.runs import Store

EXAMPLE = Path(madbench.__file__).parents[1] / "examples" / "paper"


@pytest.fixture
def packaged(monkeypatch, tmp_path_factory):
    """``packaged(name=value, ...)``: an installed package with entry points of papers. The example can be imported."""

    def call(**values: str):
        site = tmp_path_factory.mktemp("site")
        (site / "shelf-1.0.dist-info").mkdir()
        (site / "shelf-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
        lines = ["[madbench.papers]", *(f"{name} = {value}" for name, value in values.items())]
        (site / "shelf-1.0.dist-info" / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(site)
        forget_installed()

    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield call
    monkeypatch.undo()
    sys.modules.pop("madbench_positions", None)
    forget_installed()


@pytest.mark.slow
def test_an_installed_package_adds_a_paper_and_a_broken_one_fails_alone(packaged, main):
    packaged(positions="madbench_positions:PAPER", broken="madbench_nowhere:PAPER", other="json:dumps")
    papers, problems = loaded_papers()
    assert {*built_in(), "positions"} == set(papers) and set(problems) == {"broken", "other"}
    assert [claim.name for claim in load_claims("positions")] == ["rope", "conv"]
    listed = main("paper")
    assert listed.code == 0 and "positions" in listed.stdout and "madbench_nowhere" in listed.stderr
    assert "did you mean 'positions'?" in main("paper", "position").stderr
    assert "a drawing of the operator" in main("paper", "positions", "figure1").stderr


@pytest.mark.slow
def test_the_example_is_made_from_stored_runs_beside_its_published_numbers(packaged, main, tmp_path):
    packaged(positions="madbench_positions:PAPER")
    paper = load_paper("positions")
    item = paper.item("table1")
    request = Request(paper, item, results=tmp_path)
    chance, store = random.Random(0), Store.open(tmp_path)
    for job in prepare(measure_of(item).plan(request), ExperimentOptions(device="cpu", results=tmp_path)).jobs:
        value = {"S": 0.4, "S-p": 0.9, "S-c": 0.9}[job.label] + chance.gauss(0, 0.002)
        metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
    made = main("paper", "positions", "table1", "--results", tmp_path, "-f", "json")
    assert made.code == 0, made.stderr
    content = json.loads(made.stdout)
    assert set(content["verdicts"].values()) == {"supported"}
    (softmax,) = [cell for cell in content["cells"] if cell["label"] == "S"]
    assert softmax["published"] == 35.2 and softmax["mean"] == pytest.approx(40, abs=1) and softmax["n"] == 3
    listed = json.loads(main("paper", "positions", "--results", tmp_path, "-f", "json").stdout)["items"]
    note = "settings chosen by the published order of @choosing"
    states = {row["item"]: row["state"] for row in listed}
    assert (states["table1"], states["figure1"]) == (f"reproduced (quick, {note})", "nothing to measure")


def test_the_list_says_how_many_jobs_are_stored(packaged, main, tmp_path):
    packaged(positions="madbench_positions:PAPER")
    item = load_paper("positions").item("table1")
    jobs = jobs_of(Request(load_paper("positions"), item, results=tmp_path))
    Store.open(tmp_path).finish(jobs[0], Record("diverged"))
    assert f"1 of {len(jobs)} jobs stored" in main("paper", "positions", "--results", tmp_path).stdout
