"""The verdicts on the principles for scores that support and that contradict them."""

import dataclasses
import math

import pandas as pd
import pytest

from coefficient_results import decide_principle, results_of, store_results
from madbench.analysis.scores import Results
from madbench.config import Override
from madbench.errors import StoreError
from madbench.experiment import ExperimentOptions, prepare
from madbench.papers import load_paper
from madbench.papers.coefficients import QUICK, Study
from madbench.papers.coefficients.decisions import decide
from madbench.papers.coefficients.measure import rows_of
from madbench.papers.coefficients.shares import compare_shares
from madbench.papers.coefficients.studies import principle
from madbench.papers.coefficients.sweeps import both_choices
from madbench.papers.making import Request, jobs_of
from madbench.rows import Grid
from madbench.store.runs import Store
from madbench.suites.tokens import LARGEST_COEFFICIENT

RATES = (Override.parse("learning_rates=[1.0e-3, 3.0e-3]"),)


@pytest.mark.slow
def test_an_expected_gap_is_supported_for_every_readout(tmp_path):
    found = decide_principle("3", tmp_path, lambda label: 0.55 if "-p" in label or "0.9" in label else 0.4)
    assert found.verdicts == dict.fromkeys(("exp", "softplus", "relu"), "supported")
    assert set(found.frame.group) == {"exp", "softplus", "relu"}


@pytest.mark.slow
def test_an_opposite_gap_contradicts_and_a_missing_one_gives_no_verdict(tmp_path):
    def accuracy(label):
        gap = {"exp": -0.15, "softplus": 0.0, "relu": 0.15}[label[3:].split("-")[0]]
        return 0.5 + gap * ("-p" in label or "0.9" in label)

    found = decide_principle("3", tmp_path, accuracy).verdicts
    assert found["exp"] == "contradicted" and found["relu"] == "supported"
    assert "not significant" in found["softplus"]


@pytest.mark.slow
def test_diverged_runs_count_against_a_label_and_are_hatched(tmp_path):
    def accuracy(label):
        if label.startswith("cd:exp") and not label.endswith("sum-p"):
            return None
        return 0.55 if label.endswith(("sum-p", "pow-p")) else 0.4

    found = decide_principle("6", tmp_path, accuracy)
    assert found.verdicts == dict.fromkeys(("exp", "softplus", "relu"), "supported")  # they score at chance
    means = found.frame[found.frame["mark"] == "mean"]
    assert sorted(means[means.state == "diverged"].remainder) == ["1.15-b1-p", "1.15-b1-pow-p"]
    assert any(patch.get_hatch() for patch in found.figure.axes[0].patches)


@pytest.mark.slow
def test_mirrors_are_compared_with_gates_also_with_unit_keys_on_both_sides(tmp_path):
    def accuracy(label):
        return 0.7 if "-h" in label else 0.55 if label.endswith("-cug") else 0.4

    found = decide_principle("4", tmp_path, accuracy).verdicts
    assert found["mirrors above gates"] == found["mirrors above gates of unit keys"] == "supported"
    assert "not significant" in found["learned vectors above keys"]


@pytest.mark.slow
def test_principle_4_leaves_out_its_harder_task_if_a_task_is_given(tmp_path):
    paper = load_paper("coefficients")
    for tasks, lengths in (((), {64}), (("memorization",), {32})):
        request = Request(paper, paper.item("principle4"), tasks=tasks, results=tmp_path)
        assert {job.setting["seq_len"] for job in jobs_of(request)} == lengths


@pytest.mark.slow
def test_an_advantage_of_mirrors_due_to_unit_keys_alone_is_not_significant(tmp_path):
    found = decide_principle("4", tmp_path, lambda label: 0.6 if "u" in label.split("-")[-1] else 0.4).verdicts
    assert found["mirrors above gates"] == "supported"
    assert "not significant" in found["mirrors above gates of unit keys"]


@pytest.mark.slow
def test_a_sweep_of_learning_rates_shows_the_validation_choice_and_the_best_run(tmp_path):
    study = dataclasses.replace(principle("3").study(QUICK), overrides=RATES)

    def metrics(job):
        is_low = job.training.learning_rate == 1e-3
        return {"accuracy": 0.4 if is_low else 0.6, "selection_accuracy": 0.9 if is_low else 0.1}

    table = both_choices(store_results(study, tmp_path, lambda label: 0.5, metrics_of=metrics))
    assert {(row["validation"], row["best_of_sweep"], row["seeds"]) for row in table.json_rows()} == {(40, 60, 2)}
    assert len(table.json_rows()) == len(study.labels)
    assert both_choices(results_of("3", tmp_path / "one", lambda label: 0.5)) is None


@pytest.mark.slow
def test_validation_and_best_run_of_a_rate_sweep_use_the_reported_seeds(tmp_path):
    """The first seed chooses the rate for the others. If one side counted it, 65 would be 77."""
    whole = principle("3").study(QUICK)
    study = dataclasses.replace(whole, patterns=whole.patterns[:1], overrides=RATES)

    def metrics(job):
        accuracy = (1.0, 0.6, 0.7)[job.seed]
        return {"accuracy": accuracy, "selection_accuracy": accuracy - job.training.learning_rate}

    for row in both_choices(store_results(study, tmp_path, lambda label: 0.5, metrics_of=metrics)).json_rows():
        assert row["seeds"] == 2
        assert row["validation"] == pytest.approx(65) and row["best_of_sweep"] == pytest.approx(65)


@pytest.mark.slow
def test_the_largest_coefficients_of_growing_labels_are_shown_by_seed(tmp_path):
    def curve(job):
        return [
            {"step": n, LARGEST_COEFFICIENT: value}
            for n, value in enumerate([job.seed + 1.5, 0.5, math.inf, math.nan][: 2 + job.seed])
        ]

    results = store_results(principle("6").study(QUICK), tmp_path, lambda label: 0.5, curve)
    measured = decide(principle("6"), principle("6").study(QUICK), results).measured
    headings, lines = measured.text_rows()
    assert headings == ["Label", "seed 0", "seed 1", "seed 2"]
    assert {label: values for label, *values in lines} == {
        label: ["1.5", "inf", "inf"] for label in principle("6").study(QUICK).labels
    }
    assert {row[LARGEST_COEFFICIENT] for row in measured.json_rows()} == {1.5, None}


@pytest.mark.slow
def test_the_largest_coefficient_of_a_seed_is_over_all_learning_rates(tmp_path):
    study = dataclasses.replace(principle("6").study(QUICK), overrides=RATES)

    def curve(job):
        return [{"step": 1, LARGEST_COEFFICIENT: 1e-3 / job.training.learning_rate}]

    results = store_results(study, tmp_path, lambda label: 0.5, curve)
    _, lines = decide(principle("6"), study, results).measured.text_rows()
    assert lines and all(values == ["1", "1", "1"] for _, *values in lines)


@pytest.mark.parametrize("number", ["2", "2.2", "3", "5"])
def test_a_principle_without_a_complete_seed_is_not_decided(number, tmp_path):
    study = principle(number).study(QUICK)
    grid = Grid(rows_of(study), profile=QUICK, tasks=study.tasks, overrides=study.overrides, budget="paper")
    planned = prepare(grid, ExperimentOptions(device="cpu", results=tmp_path))
    results = Results.from_rows(planned, Store.open(tmp_path))
    with pytest.raises(StoreError, match="nothing to decide"):
        decide(principle(number), study, results)


def test_models_that_all_diverged_are_not_measured(tmp_path):
    with pytest.raises(StoreError, match="no run has finished"):
        decide_principle("2", tmp_path, lambda label: None)


@pytest.mark.slow
def test_both_init_std_values_of_principle_5_have_their_own_verdicts(tmp_path):
    paper, (small, large) = load_paper("coefficients"), (0.02, 0.125)
    jobs = jobs_of(Request(paper, paper.item("figure10"), results=tmp_path))
    assert {job.mixer["init_std"] for job in jobs} == {small, large} and len({job.id for job in jobs}) == 80

    def metrics(job):
        has_factor = job.label in ("cd:exp-sum-p", "cd:exp-bzn-sum-p")
        wide = job.mixer["init_std"] == large and not has_factor
        accuracy = 0.5 + (0.2 if wide else 0.002) * (job.seed - 1)
        return {"accuracy": accuracy, "selection_accuracy": accuracy}

    study = principle("5").study(QUICK)
    results = store_results(study, tmp_path, lambda label: 0.5, metrics_of=metrics)
    decision = decide(principle("5"), study, results)
    of_start = {start: f"cd:exp-sum-p, init_std {start}, selective copying" for start in (small, large)}
    assert decision.verdicts[of_start[large]] == "supported"
    assert decision.verdicts[of_start[small]] in ("not significant", "no variation")
    assert decision.verdicts.keys() == set(of_start.values()) == set(decision.frame.panel)
    assert "at n = 32" in decision.remarks[of_start[large]] and "at n = 128" in decision.remarks[of_start[large]]


def test_shares_near_zero_of_kernels_are_compared_with_exp_and_id():
    study = principle("2.1").study(QUICK)
    means = {"exp": 0.5, "krelu": 0.4, "kelu": 0.1, "ksoftplus": 0.1, "kexp": 0.2, "id": 0.05}

    def decided(seeds=5, **changed):
        rows = [
            {
                "task": "selective_copying",
                "label": f"cd:{name}-sum-p",
                "seed": seed,
                "near_zero": mean + 0.002 * (seed - 2),
            }
            for name, mean in (means | changed).items()
            for seed in range(seeds)
        ]
        return tuple(compare_shares(study.shares, pd.DataFrame(rows))[0].values())

    assert decided() == ("supported", "supported")
    assert decided(krelu=0.6) == ("contradicted", "supported")
    assert decided(kelu=0.02) == ("supported", "contradicted")
    assert decided(kexp=0.5) == ("not significant", "supported")
    assert decided(krelu=0.02) == ("supported", "supported")  # of krelu the paper says nothing against id
    assert decided(seeds=2) == ("too few seeds", "too few seeds")


@pytest.mark.slow
def test_labels_that_compute_the_same_function_cannot_differ(tmp_path):
    study = Study(("cd:relu{-b1,,-bz,-bzn}{-sum,}-p",), ("selective_copying",), vary={"model.qk_rank": (64, 128)})
    results = store_results(study, tmp_path, lambda label: 0.6)
    found = decide(principle("5"), study, results).verdicts
    assert found["cd:relu-sum-p, init_std 0.02, selective copying"].startswith("cannot differ")
    assert not found["cd:relu-p, init_std 0.02, selective copying"].startswith("cannot differ")
