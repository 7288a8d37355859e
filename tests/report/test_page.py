"""The content of the report page, compared with the store. The page is read as HTML, without a browser."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from madbench.analysis.comparison import comparison_table
from madbench.analysis.quantities import difference_text, heading
from madbench.jobs import Record
from madbench.report.tables import Heading, PageCell, PageTable, RowGroup
from madbench.store.runs import Store
from madbench.suites import main_suite

MAD = ("compression", "in_context_recall")


@pytest.mark.slow
def test_the_seed_that_chose_the_rate_is_in_no_number(parsed):
    assert parsed.cell("mad", "S", "Compr.").text == "51.0†"
    assert parsed.cell("mad", "S", "In-ctx recall").text == "50.5 ±9.8"


@pytest.mark.slow
def test_the_tables_have_the_numbers_of_the_store(parsed_of_three):
    parsed = parsed_of_three
    assert parsed.cell("mad", "S", "Compr.").text == "51.5 ±9.8 n=2"
    assert parsed.cell("mad", "S-c", "In-ctx recall").text == "61.0 ±7.0"
    assert parsed.cell("mad", "R-c", "In-ctx recall").text == "-"
    assert parsed.cell("mad", "S", "Budget").text == "0.977"
    assert parsed.cell("language", "S-c", "L5").text.startswith("2.475 ±")
    assert parsed.cell("factors", "conv: c vs. none", "Compr.").text == "+10.0 ±12.0"
    assert parsed.cell("budget", "S", "Parameters").text == "1,024"
    assert parsed.cell("budget", "S", "Ratio").text == "1.000"


@pytest.mark.slow
def test_every_number_names_the_runs_behind_it(parsed_of_three):
    parsed = parsed_of_three
    cell = parsed.cell("mad", "S-c", "Compr.")
    assert cell.attributes["data-link"] == "runs/S-c/compression"
    assert float(cell.attributes["data-value"]) == pytest.approx(61.5)
    assert parsed.cell("language", "S", "L5").attributes["data-link"] == "runs/S/language_model"
    effect = parsed.cell("factors", "conv: c vs. none", "Compr.").attributes["data-link"]
    assert effect == "effect/conv%3A%20c%20vs.%20none/compression"
    assert parsed.data["effects"]["conv: c vs. none/compression"]["rows"] == [[["S-c", "S"], "+10.0 ±12.0"]]
    assert parsed.data["tasks"]["loss_l5"] == ["language_model"]


@pytest.mark.slow
def test_embedded_runs_equal_the_stored_runs(parsed, store):
    stored = {run.job.id: run for run in store.runs()}
    ids = [parsed.field("id", i) for i in range(parsed.data["count"])]
    assert set(stored) < set(ids) and len(set(ids)) == len(ids)
    for i, run_id in enumerate(ids):
        if run_id not in stored:
            assert (parsed.field("label", i), parsed.field("status", i)) == ("R-c", "missing")
            continue
        run = stored[run_id]
        names = ("label", "seed", "task")
        assert [parsed.field(name, i) for name in names] == [getattr(run.job, name) for name in names]
        assert parsed.field("training", i)["learning_rate"] == run.job.training.learning_rate
        assert parsed.field("status", i) == run.record.status
        assert (parsed.field("error", i) or "") == run.record.error
        for name, value in run.record.metrics.items():
            assert parsed.field(f"metrics.{name}", i) == pytest.approx(value)
        assert parsed.field("details.device", i) == run.record.details.get("device")


@pytest.mark.slow
def test_the_run_with_the_chosen_rate_is_marked_and_has_a_thinned_curve_for_every_seed(parsed):
    of_s = [
        i for i in range(parsed.data["count"]) if parsed.field("label", i) == "S" and parsed.field("task", i) == MAD[0]
    ]
    rates = {parsed.field("training", i)["learning_rate"]: parsed.field("counts", i) for i in of_s}
    assert len(of_s) == 4 and rates == {1e-3: True, 2e-3: False}
    curves = {parsed.field("counts", i): parsed.data["curves"].get(str(i)) for i in of_s}
    assert curves[False] is None
    assert len(curves[True]["step"]) == 24
    assert (curves[True]["step"][0], curves[True]["step"][-1]) == (4, 240)
    assert curves[True]["train_loss"][-1] == 0.05


def test_the_page_names_the_protocol_the_device_and_the_versions(parsed):
    for text in (
        "two_rates",
        "corrected",
        "strict",
        "float32",
        "a slide rule",
        "torch 9.9",
        "c0ffee with changes",
        "0.001, 0.002",
    ):
        assert text in parsed.text, text


@pytest.mark.slow
def test_runs_from_outside_a_git_checkout_have_no_commit(empty_store, fill, read_page):
    fill(empty_store, git=None)
    provenance = read_page(empty_store, tasks=MAD).text.partition("Provenance")[2]
    assert provenance.split("Code")[1].split()[:2] == ["not", "recorded"]


def test_the_page_lists_missing_runs_with_the_command_that_trains_them(parsed):
    assert "2 of 18 jobs (MAD tasks) have no result, 1 of them failed: R-c." in parsed.text
    assert "madbench run R-c -t in_context_recall --seeds 0-1" in parsed.text
    assert "No runs (Language model): R-c." in parsed.text
    assert "madbench run R-c -t language_model --seeds 0-1 model.d_model=16" in parsed.text


def test_text_of_a_run_cannot_become_markup(parsed):
    assert sum(tag == "script" for tag, _ in parsed.tags) == 2
    assert "<b>out of memory</b>" in parsed.text


def test_a_label_with_markup_is_text_everywhere(page):
    label = "num:<img src=x onerror=alert(1)>\"'&"
    group = RowGroup([[PageCell(label, 0, f"runs/{label}/"), PageCell("1.0 ±<b>", 1.0)]], label)
    table = PageTable("mad", "a <caption>", "a <note>", [Heading("Label", True), Heading("<th>")], [group])
    content = page.content | {"tables": [table], "lead": "<lead>"}
    html = dataclasses.replace(page, content=content).render("<i>", "<b>")
    assert b"<img" not in html and b"<lead>" not in html and b"<i>" not in html and b"<note>" not in html
    assert b'data-label="num:&lt;img' in html


def test_tables_have_scopes_captions_and_labeled_regions(parsed):
    assert len(set(parsed.ids)) == len(parsed.ids)
    levels = [int(tag[1]) for tag, _ in parsed.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    for tag, attributes in parsed.tags:
        if tag == "th":
            assert attributes.get("scope") in ("col", "row", "rowgroup")
        if attributes.get("role") == "region":
            assert attributes["tabindex"] == "0"
            assert attributes.get("aria-label") or attributes["aria-labelledby"] in parsed.ids


def test_the_page_loads_nothing_from_the_network(parsed):
    for _, attributes in parsed.tags:
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "@import" not in parsed.html and "url(http" not in parsed.html


@pytest.fixture
def empty_store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.mark.slow
def test_a_report_can_have_only_mad_tasks(empty_store, fill, read_page):
    fill(empty_store)
    parsed = read_page(empty_store, tasks=MAD)
    assert "mad-table" in parsed.tables and "language-table" not in parsed.tables
    assert "Language model" not in parsed.text


@pytest.mark.slow
def test_a_suite_stored_only_for_other_labels_is_listed_as_missing(empty_store, fill, fill_language, read_page):
    fill(empty_store)
    missing = "No runs of these labels and this protocol: Language model."
    assert missing not in read_page(empty_store, tasks=None).text
    fill_language(empty_store, labels=["R"])
    assert missing in read_page(empty_store, "S", tasks=None).text
    assert missing not in read_page(empty_store, "S", tasks=MAD).text


@pytest.mark.slow
def test_a_report_can_have_only_language_models(empty_store, fill_language, read_page):
    fill_language(empty_store)
    parsed = read_page(empty_store, tasks=["language_model"])
    assert "language-table" in parsed.tables and "mad-table" not in parsed.tables
    assert parsed.cell("factors", "conv: c vs. none", "L5 loss").text == "−0.250 ±0.097"


@pytest.mark.slow
def test_named_labels_without_runs_and_single_seeds_are_listed_as_missing(empty_store, fill, read_page):
    fill(empty_store, seeds=(0,))
    parsed = read_page(empty_store, "S", "R-c", "G", tasks=MAD)
    assert [row[0].text for row in parsed.tables["mad-table"] if row[0].text in ("S", "S-c", "R-c", "G")] == [
        "S",
        "R-c",
        "G",
    ]
    assert "Single seed; excluded from tests (MAD tasks): S, R-c" in parsed.text
    assert "stored runs are of other labels, protocols or versions of code" in parsed.text
    assert f"madbench ls runs --results {empty_store.root}" in parsed.text


@pytest.mark.slow
def test_a_label_whose_only_seed_failed_is_no_single_seed(empty_store, fill, profile, read_page):
    fill(empty_store, labels=["S"], seeds=(0,))
    for job in main_suite().jobs(["G"], main_suite().Profile.load(profile), tasks=MAD, seeds=[0]):
        empty_store.finish(job, Record("failed", error="out of memory"))
    page = read_page(empty_store, "S", "G", tasks=MAD).text
    assert re.search(r"have no result, [0-9]+ of them failed: G", page)
    assert "Single seed; excluded from tests (MAD tasks): S" in page and "MAD tasks): S, G" not in page


@pytest.mark.slow
def test_language_models_that_failed_are_listed_and_missing(empty_store, fill_language, read_page, language_run):
    fill_language(empty_store)
    run = language_run("S", seed=2)
    empty_store.finish(run.job, Record("failed", error="out of memory"))
    parsed = read_page(empty_store, tasks=["language_model"])
    assert "1 of 5 jobs (Language model) have no result, 1 of them failed: S." in parsed.text
    assert "--seeds 2" in parsed.text and "out of memory" in parsed.text


@pytest.mark.slow
def test_measurements_stand_with_their_run(empty_store, fill_language, read_page):
    fill_language(empty_store)
    run_id = sorted(empty_store.jobs())[1]
    empty_store.measure(run_id, "evaluation", {"loss": 2.25}, {"device": "an abacus"}, {"seq_len": 64})
    data = read_page(empty_store, tasks=["language_model"]).data
    ((place, (measured,)),) = data["measurements"].items()
    assert data["runs"]["id"][int(place)] == run_id
    assert (measured["name"], measured["values"], measured["settings"]) == (
        "evaluation",
        {"loss": 2.25},
        {"seq_len": 64},
    )


@pytest.mark.slow
def test_the_page_names_the_damaged_folders_of_a_store(empty_store, fill, read_page):
    fill(empty_store)
    damaged = next((empty_store.root / "runs").iterdir())
    (damaged / "record.json").write_text("{}")
    assert f"Could not be read: {damaged}" in read_page(empty_store, tasks=MAD).text


@pytest.mark.slow
def test_one_sentence_names_the_best_label_of_each_column(empty_store, fill, read_page):
    fill(empty_store, ["S", "S-c"], seeds=(0, 1, 2, 3))
    text = read_page(empty_store, tasks=MAD).text
    assert re.search(r"Of 2 labels S-c \(62\.0.*\) has the highest compression\.", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds, tasks, sentence",
    [
        ({}, None, "No label has a result in the column MAD average yet, which needs all of its tasks."),
        ({}, MAD, "Only S has a result in the column compression yet: a comparison needs two labels with at least"),
        ({"S-c": 4}, MAD, "Of 2 labels only one can be compared in the column compression yet: a comparison needs two"),
        ({"S-c": 4, "R-c": 1, "S": 4}, MAD, r"Of 2 labels that can be compared S-c \(62\.0.*\) has the highest compr"),
    ],
)
def test_one_sentence_says_which_labels_can_be_compared(empty_store, fill, read_page, seeds, tasks, sentence):
    for label, count in {"S": 1, **seeds}.items():
        fill(empty_store, [label], seeds=range(count))
    assert re.search(sentence, read_page(empty_store, tasks=tasks).text)


def test_the_page_names_no_best_label_with_too_few_seeds(parsed):
    assert re.search("Of 3 labels none can be compared in the column compression yet: a comparison needs", parsed.text)


@pytest.mark.slow
def test_the_page_compares_labels_with_the_first_one_given(empty_store, fill, read_page, selected):
    fill(empty_store, ["S", "S-c", "R-c"], seeds=(0, 1, 2))
    for asked, baseline in [((), "S"), (("S-c", "S"), "S-c")]:
        parsed = read_page(empty_store, *asked, tasks=MAD)
        others = [label for label in (asked or ("S", "S-c", "R-c")) if label != baseline]
        made = comparison_table(baseline, others, selected(empty_store, *asked, tasks=MAD).scores)
        assert f"Difference to {baseline}" in parsed.text and made.rows
        for row in made.rows:
            shown = parsed.cell("comparison", row.label, heading(row.quantity))
            mark = "*" if row.verdict in ("higher", "lower") else ""
            assert shown.text == difference_text(row.difference, row.quantity) + mark
            assert shown.attributes["data-link"] == f"runs/{row.label}/{row.quantity}"


@pytest.mark.slow
def test_a_report_of_one_label_has_no_comparison(empty_store, fill, read_page):
    fill(empty_store, ["S"])
    assert "comparison-table" not in read_page(empty_store, tasks=MAD).tables


@pytest.mark.slow
def test_the_dates_of_runs_come_from_records_and_not_from_files(empty_store, fill, read_page):
    fill(empty_store, ["S"], seeds=[0], ended="2026-02-03T23:59:59+00:00")
    fill(empty_store, ["S"], seeds=[1], ended="2026-02-05T01:00:00+00:00")
    fill(empty_store, ["S-c"], seeds=[0])
    trained = read_page(empty_store, tasks=MAD).text.partition("Provenance")[2].partition("Runs ended")[2]
    assert trained.strip().startswith("2026-02-03 to 2026-02-05; 3 of 9 runs have no date")
