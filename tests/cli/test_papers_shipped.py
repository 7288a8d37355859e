"""Shipped evidence: ``madbench paper`` shows its verdicts, decides by its runs, and trains only on request."""

from __future__ import annotations

import json
import shlex
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from madbench.papers import built_in, load_paper, shipped
from madbench.papers.making import Request, jobs_of, stored_verdicts
from madbench.papers.shipped import (
    archive_names,
    complete_seeds,
    has_archives,
    shipped_ids,
    shipped_state,
    shipped_store,
)
from madbench.store.archive import SUFFIX
from madbench.store.runs import Store


@pytest.fixture
def fresh(monkeypatch, tmp_path) -> Path:
    """The current folder, without results."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def without_archives(monkeypatch, fresh) -> Path:
    """The same fixture with an installed wheel in place of a clone."""
    monkeypatch.setattr(shipped, "MEASURED", fresh / "nowhere")
    return fresh


@pytest.fixture
def ship(monkeypatch, fresh):
    """``ship(item, jobs)``: ship only these runs in the item's archives, with the files that ``keeps`` accepts."""

    def call(item, jobs, keeps=lambda path: True):
        whole, ids = shipped.MEASURED, {job.id for job in jobs}
        monkeypatch.setattr(shipped, "MEASURED", fresh / "measured")
        for name in item.runs:
            part = shipped.MEASURED / f"{name}{SUFFIX}"
            part.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(whole / part.relative_to(shipped.MEASURED)) as source:
                with tarfile.open(part, "w:xz", preset=0) as target:
                    for member in source:
                        path = PurePosixPath(member.name)
                        if path.parts[2] in ids and keeps(path):
                            target.addfile(member, source.extractfile(member))

    return call


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(built_in()))
def test_every_item_has_a_shipped_verdict_and_the_archives_of_its_runs(name):
    paper = load_paper(name)
    made_here = [item for item in paper.items if item.is_made_here]
    assert [item.id for item in made_here if not shipped_state(paper, item)] == []
    for item in made_here:
        assert has_archives(item) or not item.runs
        if item.runs:
            jobs = jobs_of(request := Request(paper, item))
            assert not jobs or complete_seeds(request, jobs, shipped_ids(item)), item.id


@pytest.mark.slow
def test_the_list_of_a_fresh_clone_has_the_shipped_verdicts(main, fresh):
    lines = {line["paper"]: line for line in json.loads(main("paper", "-f", "json").stdout)["papers"]}
    for name in built_in():
        line = lines[name]
        missing = sum(line["states"].get("not run", {}).values())
        assert line["made"] == 0 and missing == 0 and line["shipped"] > 15
        not_made = sum(line["states"].get("not made here", {}).values())
        assert line["shipped"] + missing + not_made == line["items"]
    listed = json.loads(main("paper", "hypermlp", "-f", "json").stdout)["items"]
    (table1,) = [row for row in listed if row["item"] == "table1"]
    assert table1["is_shipped"] and table1["runs"][0] == "results/measured/evening.tar.xz"
    assert "not decided (quick), shipped, by results/measured/evening.tar.xz" in main("paper", "hypermlp").stdout


@pytest.mark.slow
def test_an_item_is_decided_by_the_shipped_runs_and_trains_nothing(main, fresh, executor):
    ended = main("paper", "interactions", "plane", "-f", "json")
    assert ended.code == 0 and set(json.loads(ended.stdout)["verdicts"].values()) == {"reproduced"}
    assert "interactions.tar.xz" in ended.stderr and "--yes trains" in ended.stderr
    assert not (fresh / "results" / "runs").exists()
    listed = json.loads(main("paper", "interactions", "-f", "json").stdout)["items"]
    (plane,) = [row for row in listed if row["item"] == "plane"]
    assert plane["runs"] == ["results/measured/papers/interactions.tar.xz"] and not plane["is_shipped"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--seeds", "7"), ("--yes",), ("--force",)])
def test_options_for_runs_that_are_not_shipped_start_training(main, fresh, executor, words):
    assert main("paper", "talk", "design_study", *words).code == 7


@pytest.mark.slow
def test_an_item_that_needs_weights_uses_shipped_measurements(main, ship):
    item = load_paper("coefficients").item("figure9")
    ship(item, jobs_of(Request(load_paper("coefficients"), item)))
    ended = main("paper", "coefficients", "figure9")
    assert ended.code == 0 and "coefficients figure9: not at this size" in ended.stdout
    assert "weights" not in ended.stderr and "coefficients.tar.xz" in ended.stderr


@pytest.mark.slow
def test_an_item_that_needs_weights_falls_back_to_the_shipped_verdict(main, ship):
    item = load_paper("coefficients").item("figure9")
    jobs = jobs_of(Request(load_paper("coefficients"), item))
    ship(item, jobs, lambda path: "measurements" not in path.parts)
    ended = main("paper", "coefficients", "figure9")
    assert ended.code == 0 and "not at this size (quick): the shipped verdict" in ended.stdout
    assert "weights" in ended.stderr and "coefficients.tar.xz" in ended.stderr


@pytest.mark.slow
def test_an_item_with_fewer_shipped_seeds_is_decided_by_those(main, ship):
    paper = load_paper("coefficients")
    item = paper.item("principle6")
    jobs = jobs_of(Request(paper, item))
    ship(item, [job for job in jobs if job.seed < 3])
    assert len({job.seed for job in jobs}) > 3 == len(complete_seeds(Request(paper, item), jobs, shipped_ids(item)))
    ended = main("paper", "coefficients", "principle6", "-f", "json")
    assert ended.code == 0 and json.loads(ended.stdout)["verdicts"] and "seeds 0-2. Nothing" in ended.stderr
    assert stored_verdicts(Request(paper, item))["quick"]["seeds"] == "0-2"
    asked = Request(paper, item, seeds="0-4")
    assert complete_seeds(asked, jobs_of(asked), shipped_ids(item)) == []


@pytest.mark.slow
def test_an_installed_wheel_shows_shipped_verdicts_without_runs(main, without_archives, executor):
    shown = json.loads(main("paper", "hypermlp", "quick", "-f", "json").stdout)
    assert shown["state"] == "not decided (quick)" and shown["runs"][0] == "results/measured/evening.tar.xz"
    assert main("paper", "hypermlp", "quick", "--seeds", "0").code == 7


def test_an_item_run_by_findings_reads_the_given_results_folder(main, without_archives):
    ended = main("paper", "hypermlp", "claims", "--results", "none")
    assert "findings --results none" in " ".join(ended.stderr.split())


@pytest.mark.slow
def test_claims_are_judged_by_the_shipped_runs_unless_the_folder_has_them_all(main, fresh, ship, monkeypatch):
    paper = load_paper("hypermlp")
    ship(paper.item("claims"), jobs_of(Request(paper, paper.item("quick"), seeds="2-4")))
    shown = main("paper", "hypermlp", "claims")
    assert shown.code == 0 and "Sequence mixing is a large gain" in shown.stdout
    assert "evening.tar.xz" in shown.stderr and not (fresh / "results" / "runs").exists()
    (fresh / "results/measured").symlink_to(shipped.MEASURED)  # as in a clone
    commands = [line for line in shown.stderr.splitlines() if line.startswith("madbench ")]
    *imports, findings = [main(*shlex.split(command)[1:]) for command in commands]
    assert [ended.code for ended in imports] == [0, 0] and findings.stdout == shown.stdout
    (record,) = stored_verdicts(Request(paper, paper.item("claims"))).values()
    assert record["runs"] == archive_names(paper.item("claims"))
    own = fresh / "own"
    ended = main("paper", "hypermlp", "claims", "--results", "own")
    assert ended.code == 0 and "Not all runs of claims are in own" in " ".join(ended.stderr.split())
    with shipped_store([paper.item("claims")]) as folder:
        runs = list(Store(folder).runs())
    store = Store.open(own)
    for run in runs[1:]:
        store.finish(run.job, run.record)
    seeds_of_first = {run.job.seed for run in runs if run.job.label == runs[0].job.label}
    assert len(seeds_of_first) > 1, "another seed stands for the run that is left out"
    monkeypatch.setattr("madbench.papers.shipped.unpack", None)  # own runs need no unpacking
    ended = main("paper", "hypermlp", "claims", "--results", "own")
    assert ended.code == 0 and "madbench findings --results own" in " ".join(ended.stderr.split())
    assert "evening.tar.xz" not in ended.stderr
