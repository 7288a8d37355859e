"""Items of the HyperMLP paper that train rows of settings, and adapters on frozen models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

from madbench.analysis.scores import Results
from madbench.errors import ConfigError
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import Record
from madbench.papers import load_paper
from madbench.papers.hypermlp import adaptation
from madbench.papers.hypermlp.adaptation import (
    SIDES,
    AdapterAccuracy,
    adapt,
    attach_adapters,
    change_examples,
    judge_sides,
)
from madbench.papers.making import Request, jobs_of, measure_of, seeds_of
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from madbench.suites.signals.suite import SIGNALS, SignalProfile
from madbench.suites.signals.trial import SignalTrial
from madbench.tasks.signals import Digits
from madbench.tasks.signals.digits import images


def request(item: str, **choices) -> Request:
    paper = load_paper("hypermlp")
    return Request(paper, paper.item(item), **choices)


@pytest.mark.slow
def test_the_rows_of_an_item_are_those_of_its_claims_without_duplicates():
    asked = request("proposition2.6_trained")
    names = [row.name for row in measure_of(asked.item).plan(asked).rows]
    assert (
        names[:3] == ["R-cg-q  model.gates=vo", "R-cg-q  model.gates=qk", "R-c"] and len(names) == len(set(names)) == 9
    )
    jobs = jobs_of(asked)
    assert len(jobs) == 9 * 2 * len(seeds_of(asked)) and len({job.id for job in jobs}) == len(jobs)
    assert {job.mixer.get("gates") for job in jobs if job.label == "R-cg-q"} == {None, "vo", "qk"}
    with pytest.raises(ConfigError, match="S has no effect on proposition2.6_trained"):
        measure_of(asked.item).plan(request("proposition2.6_trained", labels=("S",)))


@pytest.mark.slow
def test_a_claim_on_settings_is_decided_by_its_rows(tmp_path):
    asked = request("proposition2.6_trained", tasks=("compression",), seeds="0-11", results=tmp_path)
    planned, store = (
        prepare(measure_of(asked.item).plan(asked), ExperimentOptions(device="cpu", results=tmp_path)),
        Store.open(tmp_path),
    )

    def verdict(vo, qk):
        for job in planned.jobs:
            if values := {"vo": vo, "qk": qk}.get(job.mixer.get("gates")):
                value = values[job.seed] / 100
                metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
                store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}), replace=True)
        made = measure_of(asked.item).decide(asked, Results.from_rows(planned, Snapshot.open(tmp_path)))
        return made.verdicts["VO gate above QK gate, compression"]

    high, low = [60 + 0.3 * seed for seed in range(12)], [40 + 0.4 * (seed * 5 % 12) for seed in range(12)]
    assert verdict(high, low) == "supported" and verdict(low, high) == "contradicted"
    assert verdict(low, [value + 0.1 for value in low]) == "not decided"


@pytest.fixture
def trained():
    (job,) = SIGNALS.jobs(["R-c"], SignalProfile.load("quick"), tasks=["digits"])
    return SignalTrial.build(job), job


@pytest.mark.slow
@pytest.mark.parametrize("names", SIDES.values(), ids=SIDES)
def test_adapters_start_at_zero_and_are_the_only_weights_trained(names, trained, monkeypatch):
    monkeypatch.setattr(adaptation, "STEPS", 40)
    model, _ = trained
    x, classes = map(torch.from_numpy, Digits().data("train", 0))
    frozen = {name: value.clone() for name, value in model.state_dict().items()}
    before = model(x[:4])
    parameters = attach_adapters(model, names, 2)
    torch.testing.assert_close(model(x[:4]), before)
    assert sum(p.numel() for p in parameters) == 2 * 2 * 2 * (32 + 32)  # layers, maps, rank, sides of a matrix
    adapt(model, parameters, x[:64], classes[:64], seed=0)
    assert (model(x[:4]) - before).abs().max() > 1e-3
    layer = model.backbone.layers[0]
    for name in "qkvo":
        linear = getattr(layer, name)
        weight = linear.parametrizations.weight.original if parametrize.is_parametrized(linear) else linear.weight
        torch.testing.assert_close(weight, frozen[f"backbone.layers.0.{name}.weight"], rtol=0, atol=0)
        moved = torch.linalg.matrix_rank(linear.weight - weight)
        assert moved == (2 if name in names else 0)


def test_change_examples_rotates_images_or_renames_classes():
    x, classes = map(torch.from_numpy, Digits().data("test", 0))
    turned, same = change_examples("turned images", x, classes, 2)
    whole, _ = Digits(patch=8).data("test", 0)
    square = np.rot90(whole[5].reshape(8, 8))
    np.testing.assert_array_equal(turned[5, 6].reshape(2, 2), square[2:4, 4:6])
    assert torch.equal(same, classes) and images()[0].shape[1:] == (8, 8)
    as_it_was, renamed = change_examples("renamed classes", x, classes, 2)
    assert torch.equal(as_it_was, x) and torch.equal((renamed - classes) % 10, torch.ones_like(classes))


def test_a_side_is_better_only_if_it_is_in_all_seeds():
    def rows(first, second):
        sides = zip(SIDES, (first, second))
        return [
            AdapterAccuracy("R-c", "turned images", side, 2, i, 10, v, 9)
            for side, of in sides
            for i, v in enumerate(of)
        ]

    verdict = {
        name: judge_sides(rows(*of))[0]
        for name, of in {"for": ([80, 81, 82], [50, 51, 52]), "no": ([50, 60, 55], [55, 52, 58])}.items()
    }
    assert [*verdict["for"].values(), *verdict["no"].values()] == ["supported", "not decided"]
    assert [*judge_sides(rows([50, 51, 52], [80, 81, 82]))[0].values()] == ["contradicted"]
