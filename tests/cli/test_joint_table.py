"""Tables with token tasks and language models side by side."""

from __future__ import annotations

import csv
import io
import json

import pytest

from madbench.cli.table import table
from madbench.jobs import Record
from madbench.suites.mad.suite import MAD

TASK = "compression"


@pytest.fixture(scope="session")
def tiny(tiny_of_both) -> str:
    return tiny_of_both


@pytest.fixture
def fill_both(fill, fill_language):
    """Store one run per seed of a MAD task with these accuracies, and of the language model with these losses."""

    def call(label: str, accuracies=(), losses=(), **job) -> None:
        for seed, accuracy in enumerate(accuracies):
            fill(label, accuracy, [seed], tasks=[TASK])
        for seed, loss in enumerate(losses):
            fill_language(label, [loss], seed=seed, **job)

    return call


@pytest.fixture
def row_words(invoke, tiny):
    """``row_words(*words)``: the cells of the table's rows, or all output if ``whole`` is true."""

    def call(*words, whole=False, columns=160):
        result = invoke(table, "--profile", tiny, *words, columns=columns)
        assert not result.exception, result.exception
        return result if whole else [line.split() for line in result.stdout.split("\n\n")[0].splitlines()[2:]]

    return call


BOTH = ("-t", f"{TASK},language_model")


@pytest.mark.slow
def test_both_suites_are_side_by_side_each_with_its_own_marks_budget_and_n(fill_both, row_words):
    fill_both("S", [0.498, 0.501, 0.504] * 5, [2.0, 2.01, 2.02])
    fill_both("R-c", [0.298, 0.301, 0.304] * 5, [1.0, 1.01, 1.02])
    fill_both("G", [0.9], [])
    fill_both("G-cg-q-12o", [], [3.0])
    output = row_words(*BOTH, "--notes", "--published", whole=True).stdout
    lines = [line.split() for line in output.split("\n\n")[0].splitlines()]
    assert " ".join(lines[0]) == "Label Compr. Budget n L5 to 1.4 to 1.3 to 1.2 to 1.1 LM budget LM n"
    assert lines[2] == "S 50.1 ±1.1* 0.990 15 2.010 ±0.025 0.990 3".split()
    assert lines[3] == ["published", "35.2", "3.949"]
    assert lines[4] == "R-c 30.1 ±1.1 0.990 15 1.010 ±0.016* 10 ±7 10 ±7 10 ±7 10 ±7 0.990 3".split()
    assert lines[6] == "G 90.0† 0.990 1".split() and lines[7] == "G-cg-q-12o - 3.000† 0.990 1".split()
    caption = " ".join(output.split())
    for words in (
        "MAD tasks: Percent,",
        "Trained on an abacus.",
        "Language model: Nats per token",
        "Trained on a slide rule.",
        "No runs (MAD tasks): G-cg-q-12o.",
        "No runs (Language model): G.",
        "by the test of madbench compare",
        "In plain text * is bold and ~ is underlined.",
    ):
        assert words in caption
    assert "Val" not in caption and caption.count("Bold: ") == 1


@pytest.mark.slow
def test_a_table_has_the_language_model_unless_other_tasks_are_given(fill_both, row_words, invoke):
    fill_both("S", [0.5], [2.0])
    assert "L5" in row_words(whole=True).stdout and "L5" not in row_words("-t", TASK, whole=True).stdout
    alone = invoke(table, "-t", "language_model", columns=160)
    assert "Compr." not in alone.stdout and alone.stdout.split()[:2] == ["Label", "L5"]


def test_a_store_with_only_language_models_is_tabulated(fill_both, invoke, refuse, tiny):
    fill_both("S", [], [2.0])
    assert invoke(table, columns=160).stdout.split()[:2] == ["Label", "L5"]
    assert f"no runs of MAD tasks yet; madbench run G-cg-q-12o -t {TASK} -p {tiny} makes some" in refuse(
        table, "-t", TASK, "--profile", tiny
    )


@pytest.mark.slow
def test_a_store_with_only_mad_runs_is_tabulated(fill_both, row_words, refuse, tiny):
    fill_both("S", [0.5])
    assert row_words("-t", TASK, whole=True).stdout.split()[:4] == ["Label", "Compr.", "Budget", "n"]
    assert "L5" not in row_words(whole=True).stdout
    assert (
        refuse(table, *BOTH, "--profile", tiny)
        == "results: no runs of language models yet; madbench run G-cg-q-12o -t language_model makes some; its MAD "
        "tasks are in madbench table -t compression"
    )


@pytest.mark.slow
def test_language_models_of_several_protocols_are_never_mixed(fill_both, row_words, refuse, tiny):
    fill_both("S", [0.5], [2.0])
    fill_both("S", [], [3.0], setting={"corpus": "c0ffee0123456789", "vocab_size": 384})
    result = row_words(whole=True)
    assert (
        "L5" not in result.stdout
        and "warning: language models are left out; choose a protocol with --protocol ID:" in result.stderr
    )
    message = refuse(table, *BOTH, "--profile", tiny)
    assert "the runs of language models follow 2 protocols, which cannot be compared" in message
    chosen = [row_words(*BOTH, "--protocol", line.split()[0])[0][4] for line in message.splitlines()[1:]]
    assert sorted(chosen) == ["2.000†", "3.000†"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("label", ["S", "R-c", "G"]),
        (TASK, ["R-c", "S", "G"]),
        ("loss_l5", ["G", "S", "R-c"]),
        ("n", ["R-c", "S", "G"]),
    ],
)
def test_rows_are_sorted_by_a_column_of_either_suite(fill_both, row_words, key, order):
    fill_both("S", [0.5], [2.0])
    fill_both("R-c", [0.6, 0.7], [3.0])
    fill_both("G", [], [1.0])
    assert [row[0] for row in row_words(*BOTH, "--sort", key) if row[0] != "published"] == order


@pytest.mark.slow
def test_an_unknown_column_is_an_error_that_names_the_nearest(fill_both, refuse, tiny):
    fill_both("S", [0.5], [2.0])
    assert refuse(table, *BOTH, "--profile", tiny, "--sort", "loss_15") == (
        "--sort 'loss_15': no such column; did you mean 'loss_l5'?"
    )


@pytest.mark.slow
def test_labels_choose_and_order_the_rows_of_both_suites(fill_both, row_words):
    for label in ("S", "R", "R-c"):
        fill_both(label, [0.5], [2.0])
    assert [row[0] for row in row_words("R-c", "S", "--published", *BOTH)] == ["R-c", "published", "S", "published"]


@pytest.mark.slow
def test_every_format_of_a_joint_table_has_both_suites(fill_both, row_words):
    fill_both("S", [0.5, 0.6], [2.0, 2.1])
    names = ("markdown", "latex", "html", "csv", "json")
    outputs = {name: row_words(*BOTH, "-f", name, whole=True).stdout for name in names}
    assert "| S | 55.0 ±22.2 | 0.990 | 2 | 2.050 ±0.455 |" in outputs["markdown"]
    assert "<td>55.0 ±22.2</td>" in outputs["html"] and "<td>2.050 ±0.455</td>" in outputs["html"]
    assert r"2.050{\scriptsize\,$\pm$0.455}" in outputs["latex"]
    cells = json.loads(outputs["json"])["cells"]
    lines = list(csv.DictReader(io.StringIO(outputs["csv"])))
    assert [line["task"] for line in lines] == [cell["task"] for cell in cells]
    assert [cell["task"] for cell in cells][:2] == [TASK, "loss_l5"]
    assert {tuple(cell) for cell in cells} == {tuple(lines[0])}
    for line, cell in zip(lines[:2], cells):
        assert float(line["low"]) == pytest.approx(cell["low"])


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
def test_a_joint_table_is_never_wider_than_the_terminal(fill_both, row_words, columns):
    for label in ("S-p", "G-pcg-12o!"):
        fill_both(label, [0.5, 0.501], [2.0, 2.1])
    output = row_words(whole=True, columns=columns).stdout
    assert max(map(len, output.splitlines())) <= columns and "…" not in output
    assert {"50.0", "50.1", "2.050"} & set(output.split()) and "0.990" in output


@pytest.mark.slow
def test_on_a_narrow_terminal_the_suites_are_below_each_other_both_sorted(fill_both, row_words):
    fill_both("S", [0.5, 0.501], [2.0, 2.1])
    fill_both("R-c", [0.6, 0.601], [3.0, 3.1])
    output = row_words("--sort", TASK, whole=True, columns=80).stdout
    of_tasks, of_language = output.split("L5")[:2]
    for half in (of_tasks, of_language):
        assert 0 < half.index("R-c ") < half.index("S ")


@pytest.mark.slow
def test_notes_count_diverged_language_models_and_failed_jobs(fill_both, fill_language, store, row_words, tiny):
    fill_both("S", [0.5], [2.0])
    fill_language("S", [2.0], seed=1, status="diverged")
    (planned,) = MAD.jobs(["S"], MAD.Profile.load(tiny), tasks=["in_context_recall"])
    store.finish(planned, Record("failed", {}, [], {}, "out of memory"))
    caption = " ".join(row_words("--notes", whole=True).stdout.split())
    assert "1 of 2 runs diverged." in caption and "of 6 jobs have no result yet." in caption
