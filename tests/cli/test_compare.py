"""``madbench compare``: labels against the first one, over tasks and language models of one protocol."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from madbench.cli.compare import compare
from madbench.jobs import Record
from madbench.suites.mad.suite import MAD
from references import interval_of, p_of, terms

TWO_TASKS = ("compression", "in_context_recall")
OTHER_CORPUS = {"corpus": "c0ffee0123456789", "vocab_size": 64}
"""The setting of a language model on another corpus, and so under another protocol."""


@pytest.fixture
def compared_cells(invoke, tiny):
    """``compared_cells(*words)``: the table's cells, row by row, as JSON has them."""

    def call(*words):
        output = invoke(compare, *words, "--profile", tiny, "-f", "json")
        assert not output.exception, output.exception
        return json.loads(output.stdout)["cells"]

    return call


def differences(cells):
    return {(cell["label"], cell["quantity"]): round(cell["estimate"], 6) for cell in cells}


@pytest.mark.slow
def test_the_first_label_is_compared_with_each_of_the_others(fill, compared_cells):
    values = {"S": (0.5, 0.51, 0.53), "R": (0.6, 0.62, 0.61), "R-c": (0.59, 0.62, 0.63)}
    for label, accuracies in values.items():
        for seed, accuracy in enumerate(accuracies):
            fill(label, accuracy, [seed])
    cells = compared_cells("R", "R-c", "S", "-t", ",".join(TWO_TASKS))
    assert [(cell["label"], cell["quantity"]) for cell in cells] == [
        (x, task) for x in ("R-c", "S") for task in TWO_TASKS
    ]
    gaps = {x: np.mean(values[x]) - np.mean(values["R"]) for x in ("R-c", "S")}
    percent = {x: [100 * value for value in of_label] for x, of_label in values.items()}
    sides = {x: [terms(percent[x]), terms(percent["R"])] for x in gaps}
    p = {x: p_of(100 * gaps[x], sides[x]) for x in gaps}
    first, second = p["S"], p["R-c"]
    adjusted = {"S": 4 * first, "R-c": min(1, 2 * second)}  # Holm: two tests each, and the smaller p first
    verdicts = {"S": "not significant", "R-c": "not significant"}
    for cell in cells:
        label = cell["label"]
        low, high = interval_of(100 * gaps[label], sides[label])
        assert cell["estimate"] == pytest.approx(100 * gaps[label])
        assert (cell["low"], cell["high"]) == pytest.approx((low, high))
        assert (cell["p"], cell["p_holm"]) == pytest.approx((p[label], adjusted[label]))
        assert (cell["baseline"], cell["n"], cell["solved"], cell["baseline_solved"]) == ("R", 3, 0, 0)
        assert (cell["test"], cell["verdict"]) == ("t", verdicts[label])


def test_seeds_that_solve_the_task_are_counted_and_diverged_ones_count_at_chance(fill, store, compared_cells, tiny):
    for seed, accuracy in enumerate((0.2, 0.21, 0.22, 0.2)):
        fill("S", accuracy, [seed], tasks=["compression"])
    fill("R", 1.0, range(4), tasks=["compression"])
    for job in MAD.jobs(["R"], MAD.Profile.load(tiny), tasks=["compression"], seeds=[4]):
        store.finish(job, Record("diverged", error="loss"))
    (cell,) = compared_cells("S", "R", "-t", "compression")
    chance = 5 * cell["mean"] - 4 * 100
    assert 0 < chance < 20
    assert (cell["solved"], cell["seeds"], cell["baseline_solved"], cell["baseline_seeds"]) == (4, 5, 0, 4)
    assert (cell["test"], cell["verdict"]) == ("t", "higher")
    assert 0 < cell["low"] < cell["estimate"] < cell["high"] <= 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "accuracies, accuracy, reason",
    [
        ((0.5, 0.51), 0.6, "two seeds"),
        ((1.0, 1.0, 1.0), 1.0, "both solve it"),
    ],
)
def test_comparisons_without_a_test_have_a_reason(fill, compared_cells, accuracies, accuracy, reason):
    for seed, one in enumerate(accuracies):
        fill("S", one, [seed], tasks=["compression"])
    fill("R", accuracy, range(3), tasks=["compression"])
    (cell,) = compared_cells("S", "R", "-t", "compression")
    assert (cell["verdict"], cell["reason"], cell["p"], cell["p_holm"]) == (reason, reason, None, None)


@pytest.mark.slow
def test_labels_and_tasks_of_installed_packages_are_compared_like_any(fill, install_example, compared_cells):
    install_example("plugin"), install_example("task")
    fill("S", 0.5, tasks=("compression", "prefix_sum"))
    fill("lin:elu", 0.75, tasks=("compression", "prefix_sum"))
    expected = {("lin:elu", name): 25.0 for name in ("compression", "prefix_sum")}
    assert differences(compared_cells("S", "lin:elu", "-t", "compression,prefix_sum")) == expected


@pytest.mark.slow
def test_the_learning_rate_is_chosen_before_labels_are_compared(fill, store, refuse, tiny, compared_cells):
    fill("S", 0.5)
    for job in MAD.jobs(["R"], MAD.Profile.load(tiny, ["learning_rates=[1e-3,2e-3]"]), tasks=["compression"]):
        chosen = job.training.learning_rate == 2e-3
        store.finish(job, Record("finished", {"accuracy": 0.3 if chosen else 0.9, "selection_accuracy": float(chosen)}))
    assert differences(compared_cells("S", "R", "-t", "compression")) == {("R", "compression"): 40.0}
    words = ("S", "R", "learning_rates=[1e-3,2e-3]", "-t", "compression")
    assert "S shares no task" in refuse(compare, *words, "--profile", tiny)  # of S a rate is missing
    for job in MAD.jobs(["S"], MAD.Profile.load(tiny, ["learning_rates=[2e-3]"]), tasks=["compression"]):
        store.finish(job, Record("finished", {"accuracy": 0.5, "selection_accuracy": 0.1}))
    both = compared_cells("S", "R", "learning_rates=[1e-3,2e-3]", "-t", "compression")
    assert differences(both) == {("R", "compression"): -20.0}


@pytest.mark.slow
def test_protocols_are_never_mixed(fill, compared_cells):
    for label, accuracy in (("S", 0.5), ("R", 0.6)):
        fill(label, accuracy)
        fill(label, 2 * accuracy - 0.5, fidelity="published")
        fill(label, 3 * accuracy - 1.0, budget="paper")
        fill(label, 4 * accuracy - 1.5, overrides=["training.epochs=3"])
    for points, *words in [
        [10.0],
        [20.0, "--fidelity", "published"],
        [30.0, "--budget", "paper"],
        [40.0, "training.epochs=3"],
    ]:
        cells = compared_cells("S", "R", *words, "-t", "compression")
        assert differences(cells) == {("R", "compression"): points}
        assert {cell["verdict"] for cell in cells} == {"single seed"}


@pytest.mark.slow
def test_language_models_of_the_labels_join_unless_tasks_are_named(fill, fill_language, compared_cells):
    for label, accuracy in (("S", 0.5), ("R", 0.6)):
        fill(label, accuracy, (0, 1), tasks=["compression"])
        for seed in (0, 1):
            fill_language(label, [3.0, 3 - accuracy], seed=seed)
    fill_language("R", [1.0], budget="paper")
    fill_language("R-c", [1.0], setting=OTHER_CORPUS)
    losses = {("R", "loss_l5"): -0.05, ("R", "validation_loss"): -0.1}  # L5 has two evaluations, of which one is 3.0
    assert differences(compared_cells("S", "R")) == {("R", "compression"): 10.0} | losses
    assert differences(compared_cells("S", "R", "-t", "compression")) == {("R", "compression"): 10.0}
    assert (
        differences(compared_cells("S", "R", "-t", "language_model,compression"))
        == {("R", "compression"): 10.0} | losses
    )


def test_language_models_alone_need_no_runs_of_mad_tasks(fill_language, invoke, refuse):
    fill_language("S", [3.0, 2.0])
    fill_language("R", [3.0, 2.1])
    output = invoke(compare, "S", "R", "-t", "language_model", columns=160)
    rows = [line.split() for line in output.stdout.split("\n\n")[0].splitlines()[2:]]
    verdict = ["single", "seed"]
    assert rows == [["R"], ["L5", "loss", "n=1", "+0.050", *verdict], ["Val", "loss", "n=1", "+0.100", *verdict]]
    noted = invoke(compare, "S", "R", "-t", "language_model", "--notes", columns=160).stdout
    assert "Corpus shelf (c0ffee01)" in noted and noted.count("Profile ") == 1
    assert invoke(compare, "S", "R", columns=160).stdout == output.stdout
    assert "R shares no protocol with G" in refuse(compare, "R", "G", "-t", "language_model")


@pytest.mark.slow
def test_a_protocol_of_several_has_to_be_chosen(fill, fill_language, invoke, refuse, tiny, compared_cells):
    for label, loss in (("S", 2.0), ("R", 2.2)):
        fill(label, 0.5, tasks=["compression"])
        fill_language(label, [3.0, loss])
        fill_language(label, [3.0, 2 * loss], setting=OTHER_CORPUS)
    output = invoke(compare, "S", "R", "--profile", tiny, "-f", "csv")
    assert output.exit_code == 0 and "loss_l5" not in output.stdout
    first, *protocols = output.stderr.splitlines()
    assert first == "warning: language models are left out; choose a protocol with --protocol ID:"
    found = {line.split()[0] for line in protocols}
    assert len(found) == 2
    gains = {
        differences(compared_cells("S", "R", "--protocol", protocol))["R", "validation_loss"] for protocol in found
    }
    assert gains == {0.2, 0.4}
    assert "2 protocols" in refuse(compare, "S", "R", "-t", "language_model")
    assert "no run follows protocol 00000000" in refuse(compare, "S", "R", "-p", tiny, "--protocol", "00000000")


@pytest.mark.slow
def test_a_label_without_a_shared_run_is_left_out_and_named(fill, invoke, refuse, tiny):
    fill("S", 0.5)
    fill("R", 0.6)
    fill("R-c", 0.7, seeds=[1])
    words = ("-p", tiny, "-t", "compression", "-f", "csv")
    output = invoke(compare, "S", "R-c", "R", "G", *words)
    found = [line["label"] for line in csv.DictReader(io.StringIO(output.stdout))]
    assert found == ["R-c", "R"]  # seeds need not be the same
    assert output.stderr.splitlines() == ["warning: G is left out: it shares no task with S"]
    assert "results: S shares no task with G" in refuse(compare, "S", "G", *words)


def test_a_failed_run_is_no_result(fill, store, compared_cells, tiny):
    fill("S", 0.5, (0, 1))
    fill("R", 0.6, (0,))
    (job,) = MAD.jobs(["R"], MAD.Profile.load(tiny), tasks=["compression"])
    store.finish(replace(job, seed=1), Record("failed", error="out of memory"))
    (cell,) = compared_cells("S", "R", "-t", "compression")
    assert (cell["n"], cell["seeds"], cell["baseline_seeds"]) == (1, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["S"], "S: nothing to compare with; give two labels or more"),
        (["S", "S"], "S: nothing to compare with"),
        (["training.epochs=2"], "no label: nothing to compare with"),
        (["S", "S-x"], "label 'S-x'"),
        (["S", "R", "-t", "compresion"], "did you mean 'compression'?"),
        (["S", "R", "trainin.epochs=1"], "did you mean 'training"),
        (["S", "R", "-t", "compression", "--protocol", "c0ffee"], "no run follows protocol c0ffee"),
        (["S", "R", "-t", "language_model", "training.epochs=1"], "training: unknown key 'epochs'"),
        (["S", "R", "-t", "language_model", "-p", "full"], "profile 'full': no such profile of the suite language"),
        (
            ["S", "R", "-t", "language_model", "--fidelity", "published"],
            "--fidelity published has no effect: the tasks are language_model",
        ),
        (["S", "R", "--results", "nowhere"], "nowhere: there is no such results folder"),
        (["S", "R", "--profile", "full"], "no run of S or R belongs to profile full"),
    ],
)
def test_compare_refuses_wrong_arguments(fill, refuse, words, message):
    fill("S", 0.5)
    assert message in refuse(compare, *words)


@pytest.mark.slow
def test_every_format_of_compare_has_the_same_values(fill, invoke, tiny):
    values = {"S": [0.5, 0.501, 0.502], "R-12o!": [0.625, 0.626, 0.627]}
    for label, accuracies in values.items():
        for seed, accuracy in enumerate(accuracies):
            fill(label, accuracy, [seed], tasks=["compression"])
    words = ("S", "R-12o!", "-p", tiny, "-f")
    outputs = {name: invoke(compare, *words, name).stdout for name in ("markdown", "latex", "csv", "json")}
    low, high = interval_of(12.5, [terms([100 * x for x in of_label]) for of_label in values.values()])
    cells = f"0/3:0/3 | +12.5 | [{low:+.1f},{high:+.1f}] | 0.009 | higher"
    assert f"| R-12o! |  |  |  |  |  |\n|   Compr. | {cells} |" in outputs["markdown"]
    lines = [line.rpartition(" & ")[2].removesuffix(r" \\") for line in outputs["latex"].splitlines()]
    in_latex = cells.replace("<", r"\textless{}").split(" | ")  # the cells of one row stand below each other
    assert [line for line in lines if line in in_latex] == in_latex
    content = json.loads(outputs["json"])
    (cell,) = content["cells"]
    (line,) = csv.DictReader(io.StringIO(outputs["csv"]))
    assert {name: str(value) for name, value in cell.items()} == line
    assert all(name in content["notes"] for name in ("Trained on an abacus", "Student's t", "Holm"))


@pytest.mark.slow
def test_the_comparison_table_fits_80_columns(fill, fill_language, invoke, tiny):
    for label, accuracy in (("R-pcg-q", 0.5), ("G-pcg-12o!", 0.625)):
        for seed in range(3):
            fill(label, accuracy + seed / 100, [seed])
            fill_language(label, [2 - accuracy + seed / 5], seed=seed)
    output = invoke(compare, "R-pcg-q", "G-pcg-12o!", "-p", tiny, columns=80).stdout
    assert max(map(len, output.splitlines())) <= 80 and "…" not in output
    table = [" ".join(line.split()) for line in output.split("\n\n")[0].splitlines()]
    assert table[0] == "Label Solved Difference 95% interval p Verdict" and table[2] == "G-pcg-12o!"
    assert table[3].startswith("Compr. 0/3:0/3 +12.5 [+") and table[3].endswith("higher")
    assert table[-1].startswith("Val loss n=3 −0.125 [−") and table[-1].endswith("not significant")


@pytest.mark.slow
def test_a_margin_adds_a_verdict_of_equivalence(fill, compared_cells, refuse, tiny):
    for label, accuracies in {"S": (0.5, 0.501, 0.502, 0.5, 0.501), "R": (0.501, 0.5, 0.502, 0.501, 0.5)}.items():
        for seed, accuracy in enumerate(accuracies):
            fill(label, accuracy, [seed])
    cells = compared_cells("S", "R", "-t", ",".join(TWO_TASKS), "--within", "12")
    assert [(cell["equivalence"], cell["margin"]) for cell in cells] == [("equivalent", 12.0)] * 2
    (one, other) = compared_cells("S", "R", "-t", ",".join(TWO_TASKS), "--within", "compression=12")
    assert one["equivalence"] == "equivalent" and (other["equivalence"], other["margin"]) == ("", None)
    assert "COLUMN=NUMBER" in refuse(compare, "S", "R", "--within", "much")
    assert "did you mean 'compression'?" in refuse(compare, "S", "R", "--profile", tiny, "--within", "compresion=1")
    for words in (("100",), ("compression=1e9",)):
        problem = refuse(compare, "S", "R", "--profile", tiny, "--within", *words)
        assert "expected less than 100 points" in problem
