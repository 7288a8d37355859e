"""Items of the paper on interactions: runs, figures, verdicts and controls."""

from __future__ import annotations

import csv
import json

import pandas as pd
import pytest

from madbench.cli.ls import ls
from madbench.cli.paper import paper
from madbench.config import Override
from madbench.jobs import Record
from madbench.papers import load_paper
from madbench.papers.interactions import measure
from madbench.papers.interactions.profile import InteractionProfile
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.papers.making import Request, measure_of
from madbench.store.runs import Store
from madbench.suites import suites

SMALL = [f"tasks.colliding.setting.{one}" for one in ("positions=8", "length=4", "test_lengths=[2,4,8]", "samples=300")]
SMALL += ["training.steps=1000", "--device", "cpu"]
WORLDS = ("interactions", "worlds")


def errors(job, **by_length: float) -> Record:
    world_lengths = job.setting["test_lengths"]
    metrics = {f"variance_{n}": 5.0 for n in world_lengths} | {f"mse_{n}": 1e-9 for n in world_lengths}
    metrics |= {"effects_error": 1e-10, "diagonal_error": 0.0} | {f"mse_{n}": e for n, e in by_length.items()}
    return Record("finished", metrics, [], {"model_parameters": 600, "steps": 1, "seconds": 1.0})


@pytest.fixture
def fill(store):
    """Store runs of the quick profile with the theoretical errors, except those given by label and length."""

    def call(*tasks: str, seeds=(0, 1), **by_label):
        profile = InteractionProfile.load("quick", ["controls=[]"] if "colliding" in tasks else [])
        for job in INTERACTIONS.jobs((), profile, tasks=tasks, seeds=seeds):
            given = by_label.get(job.label.replace(":", "_"), {})
            store.finish(job, errors(job, **{str(n): e for n, e in given.items()}))

    return call


def words(*tasks: str, seeds: str = "0,1"):
    return (
        *WORLDS,
        "-t",
        ",".join(tasks),
        "--seeds",
        seeds,
        "--no-figures",
        *["controls=false"] * ("colliding" in tasks),
    )


@pytest.mark.slow
def test_a_run_is_tabulated_drawn_stored_and_not_repeated(main, tmp_path):
    command = ("paper", *WORLDS, "-t", "colliding", "embedding=one_hot", "--seeds", "0", "--slots", 1, *SMALL)
    first = main(*command, "controls=false", "-o", "drawn")
    assert first.code == 0, first.stderr
    assert "reproduced: hfa:C1 one-hot: no error at other lengths (Theorem 4.8)" in first.stdout
    names = {path.name for path in tmp_path.glob("drawn/*")}
    stems = ("errors", "devised", "colliding_hfa_C1_one_hot")
    assert names == {f"interactions_{stem}.{end}" for stem in stems for end in ("csv", "png", "pdf")}
    with open(tmp_path / "drawn" / "interactions_colliding_hfa_C1_one_hot.csv", encoding="utf-8") as file:
        entries = list(csv.DictReader(file))
    assert len(entries) == 64
    assert all(float(one["learned T"]) == pytest.approx(float(one["theoretical T"]), abs=1e-6) for one in entries)

    again = main(*command, "controls=false", "--no-figures", "-f", "json")
    assert "1 of 1 job already in the store" in again.stderr
    (row,) = json.loads(again.stdout)["rows"]
    assert row["verdict"] == "exact at every length" and row["lengths"]["8"]["mse"][0] < 1e-9
    listed = main("ls", "runs")
    assert "hfa:C1" in listed.stdout and "mse" in listed.stdout and "positions=8" in listed.stdout


@pytest.mark.slow
def test_figure_2_has_a_verdict_on_the_distance_of_learned_and_devised_c(main, monkeypatch):
    command = ("paper", "interactions", "figure2", "--slots", 1, *SMALL, "--no-figures")
    made = main(*command)
    assert made.code == 0, made.stderr
    assert "\nreproduced: sinusoidal: the learned C is not a multiple of the devised one (Figure 2)" in made.stdout
    monkeypatch.setattr(measure, "APART", 1.01)
    assert "not reproduced at this size: sinusoidal: the learned C is not" in main(*command).stdout


def test_the_distance_of_c_ignores_a_common_factor():
    c, other = pd.Series([1.0, 0.0, 2.0]), pd.Series([0.0, 3.0, 0.0])
    assert measure.distance_of_c(-2 * c, c) < 1e-7 and measure.distance_of_c(c, other) == 1
    assert measure.distance_of_c(c + other, c) == pytest.approx(3 / 14**0.5)


@pytest.mark.slow
def test_figure_2_of_a_run_without_weights_asks_for_them(main, fill):
    fill("colliding", seeds=(0,))
    refused = main("paper", "interactions", "figure2", "--no-figures", "--device", "cpu")
    assert refused.code == 2 and "has no weights, nor learned_c: --force trains it again" in refused.stderr


@pytest.mark.slow
def test_the_worlds_item_shows_floors_and_verdicts(invoke, fill):
    fill("hunters", "alliances", hfa_C1={5: 0.5, 10: 2.0, 20: 130.0}, hfa_C3={10: 0.02})
    shown = invoke(paper, *words("hunters", "alliances")).output
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "floor 0.093 0.37 0.84 1.77" in lines and "floor 0.053 0.32 1.89 9" in lines
    assert "hfa:C3 2 1e-9 1e-9 0.02 1e-9 1e-10" in lines
    assert "reproduced: hfa:C3 learns what hfa:C1 cannot" in shown and "ha:C3: no error at any length" in shown
    assert "not reproduced" not in shown


@pytest.mark.slow
def test_one_bad_seed_makes_a_claim_not_reproduced(invoke, fill, store):
    fill("alliances", hfa_C1={10: 2.0})
    (bad, *_) = INTERACTIONS.jobs(["ha:C3"], InteractionProfile.load("quick"), tasks=["alliances"], seeds=(1,))
    store.finish(bad, errors(bad, **{"10": 3.0, "20": 50.0}), replace=True)
    content = json.loads(invoke(paper, *words("alliances"), "-f", "json").stdout)
    verdicts = {claim["statement"]: claim["verdict"] for claim in content["claims"]}
    assert verdicts == {
        "ha:C3 learns what hfa:C1 cannot": "not reproduced",
        "ha:C3: no error at any length": "not reproduced",
    }
    assert content["rows"][0]["lengths"]["10"]["mse"] == [1e-9, 3.0]


@pytest.mark.slow
def test_a_diverged_seed_counts_as_an_infinite_error(invoke, fill, store):
    fill("colliding")
    bad = INTERACTIONS.jobs((), InteractionProfile.load("quick", ["controls=[]"]), tasks=["colliding"])
    details = {"model_parameters": 600, "steps": 1, "seconds": 1.0}
    for job in bad:
        store.finish(job, Record("diverged", {}, [], details, "loss was not finite at step 3"), replace=True)
    shown = " ".join(invoke(paper, *words("colliding")).output.split())
    assert shown.count("not reproduced") == 6 and "hfa:C1 one-hot 2 inf inf inf inf inf inf" in shown
    content = json.loads(invoke(paper, *words("colliding"), "-f", "json").stdout)
    assert content["rows"][0]["lengths"]["10"]["mse"] == [None, 1e-9]
    assert content["rows"][0]["verdict"] == "not exact"


@pytest.mark.slow
def test_an_error_at_another_length_affects_only_length_generalization(invoke, fill):
    fill("colliding", hfa_C1={40: 1e-3})
    content = json.loads(invoke(paper, *words("colliding"), "-f", "json").stdout)
    assert [claim["verdict"] for claim in content["claims"]] == ["reproduced", "not reproduced", "reproduced"] * 2


@pytest.mark.slow
def test_errors_of_control_tasks_are_compared_with_the_predicted_ones(invoke, store):
    found = INTERACTIONS.jobs((), InteractionProfile.load("quick", ["embeddings=one_hot"]), tasks=["colliding"])
    for job in found:
        world_errors = {"2": 0.64, "5": 0.25, "10": 1e-12, "20": 1.0, "40": 9.0}
        store.finish(job, errors(job, **(world_errors if job.setting["control"] == "without_itself" else {})))
    words = (*WORLDS, "-t", "colliding", "embedding=one_hot", "--seeds", "0", "--no-figures", "-f", "json")
    content = json.loads(invoke(paper, *words).stdout)
    verdicts = {row["setting"]["control"]: row["verdict"] for row in content["rows"]}
    assert verdicts["without_itself"] == "fits L* alone, and misses as predicted"
    assert content["rows"][1]["lengths"]["40"]["predicted"] == [9.0]


@pytest.mark.slow
def test_a_dry_run_of_worlds_counts_remaining_jobs(invoke, fill):
    fill("alliances", seeds=(0,))
    content = json.loads(invoke(paper, *WORLDS, "-t", "alliances", "--seeds", "0-2", "--dry-run", "-f", "json").stdout)
    assert [(line["jobs"], line["to do"], line["parameters"]) for line in content] == [(3, 2, 576), (3, 2, 576)]
    words = (*WORLDS, "-t", "alliances", "--seeds", "0-2", "--dry-run", "--force", "-f", "json")
    assert [line["to do"] for line in json.loads(invoke(paper, *words).stdout)] == [3, 3]


def test_runs_of_interactions_do_not_appear_in_mad_tables(invoke, fill, main):
    fill("alliances")
    assert "no runs of MAD tasks yet" in main("table", "-t", "compression").stderr
    assert len(invoke(ls, "runs", columns=200).output.splitlines()) == 2 + 4
    assert list(suites())[:4] == ["mad", "language", "interactions", "signals"]
    assert not Store.open("results", create=False).problems


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("-t", "hunter"), "did you mean 'hunters'?"),
        (("-t", "hunters", "embedding=one_hot"), "has no effect without colliding agents"),
        (("-t", "hunters", "controls=false"), "has no effect without colliding agents"),
        (("-t", "hunters", "tasks.alliances.setting.types=3"), "has no effect: the tasks are hunters"),
        (("-t", "hunters", "tasks.alliances={setting: {types: 3}}"), "has no effect: the tasks are hunters"),
        (("embedding=one_hott",), "did you mean 'one_hot'?"),
        (("tasks.colliding.setting.embedding=one_hot",), "'embedding' has no effect"),
        (("tasks.hunters.learning_rates.one_hot=0.1",), "'one_hot' has no effect"),
        (("--no-figures", "-o", "there"), "has no effect with --no-figures"),
        (("--dry-run", "-o", "there"), "has no effect with --dry-run"),
        (("cd:gla",), "cd:id-dg sees only earlier tokens"),
        (("--profile", "quik"), "did you mean 'quick'?"),
        (("training.epochs=3",), "unknown key 'epochs'"),
    ],
)
def test_items_of_worlds_refuse_wrong_options_and_options_without_effect(refuse, given, message):
    assert message in refuse(paper, *WORLDS, *given)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, "float64"),
        ({"overrides": (Override.of("precision", "float32"),)}, "float32"),
        ({"profile": "full"}, "float32"),
    ],
)
def test_the_protocol_of_worlds_has_the_precision_of_its_jobs(how, expected):
    found = load_paper("interactions")
    request = Request(found, found.item("worlds"), **how)
    experiment = measure_of(request.item).plan(request)
    assert {job.training.precision for job in experiment.jobs} == {expected}
    assert {row.protocol.precision for row in experiment.rows} == {expected}


def test_a_change_of_the_precision_is_named_by_the_key_that_makes_it():
    ours, theirs = (InteractionProfile.load("quick", given) for given in ((), ("precision=float32",)))
    (job,) = INTERACTIONS.jobs(["hfa:C3"], theirs, tasks=["hunters"])
    assert [*map(str, ours.changes(job))] == ["precision=float32"]
