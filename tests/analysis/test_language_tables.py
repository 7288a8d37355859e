"""Tables of language models: losses over seeds, diverged runs, published perplexities and times."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from dataclasses import replace

import pytest

from madbench.analysis.tables import TableOptions, result_table
from madbench.errors import ConfigError, StoreError
from madbench.jobs import Record
from madbench.report.tables import result_page_table
from madbench.suites.language.suite import LANGUAGE, GPTConfig, LanguageProfile, LanguageTraining
from madbench.suites.protocol import protocol_id
from protocols import language_protocol
from references import interval_of, loss_terms

PAPER = {
    "setting": {"corpus": "c0ffee0123456789", "vocab_size": 50304},
    "model": GPTConfig(),
    "training": LanguageTraining(),
}
"""The setting and the training of a job like the paper's."""


@pytest.fixture
def language_table(language_results):
    """``language_table(runs, labels, ...)``: the table of these runs."""
    return lambda runs, labels=(), **choices: result_table(language_results(runs, labels), TableOptions(**choices))


def rows(table) -> dict[str, dict[str, str]]:
    """The cells of a table by row and heading. Published rows are named ``LABEL published``."""
    headings, lines = table.text_rows()
    names = [
        line[0] if line[0] != "  published" else f"{above[0]} published" for above, line in zip([[""], *lines], lines)
    ]
    return {name: dict(zip(headings[1:], line[1:], strict=True)) for name, line in zip(names, lines)}


def test_a_language_run_has_every_column(language_run, language_table):
    table = language_table([language_run("S", [3.0, 2.0, 1.0]), language_run("R-c", [3.0, 2.2, 1.9], seconds=3.0)])
    assert table.text_rows()[0] == [
        "Label", "L5", "Val", "Bits/byte", "to 1.4", "to 1.3", "to 1.2", "to 1.1", "Val, 6 s", "Tokens/s",
        "Budget", "n",
    ]  # fmt: skip
    assert rows(table)["R-c"] == {
        "L5": "2.367†", "Val": "2.000†", "Bits/byte": "4.000†", "to 1.4": "", "to 1.3": "", "to 1.2": "", "to 1.1": "",
        "Val, 6 s": "2.300†", "Tokens/s": "213", "Budget": "0.990", "n": "1",
    }  # fmt: skip
    assert rows(table)["S"]["to 1.1"] == "30†" and rows(table)["S"]["Val, 6 s"] == "1.100†"


def test_language_cells_are_mean_and_interval_over_seeds(language_run, language_table):
    finals = [1.0, 1.3, 1.5]
    table = language_table(
        [language_run("S", [final], seed=i) for i, final in enumerate(finals)], thresholds=[1.2, 1.4]
    )
    row = rows(table)["S"]
    _, half = interval_of(0, [loss_terms(finals)])
    assert row["L5"] == f"{statistics.mean(finals):.3f} ±{half:.3f}"
    assert (row["to 1.2"], row["to 1.4"], row["n"]) == ("10 [1/3]", "10 [2/3]", "3")
    assert "k of n seeds get there" in table.notes
    assert (row["Tokens/s"], row["Budget"]) == ("320", "0.990")


def test_a_diverged_seed_counts_as_the_uniform_distribution(language_run, language_table):
    runs = [language_run("S", [2.0, 1.0]), language_run("S", [2.0], seed=1, status="diverged")]
    table = language_table(runs, thresholds=[2.5])
    row, uniform = rows(table)["S"], math.log(runs[0].job.setting["vocab_size"])
    assert row["L5"].startswith(f"{(1.5 + uniform) / 2:.3f} ±") and row["Val"].endswith("‡")
    assert row["Bits/byte"].startswith(f"{(2 * 1.1 + 2 * uniform) / 2:.3f} ±")
    assert (row["to 2.5"], row["n"]) == ("10 ±26", "2")  # steps are counted in tens
    assert "1 of 2 runs diverged." in table.notes and "they count at chance" in table.notes
    assert "‡: some runs diverged" in table.caption and "solve" not in table.caption


def test_a_store_of_diverged_runs_alone_is_a_table(language_run, language_table):
    table = language_table([language_run(label, [], status="diverged") for label in ("S", "R")])
    assert [row["L5"] for row in rows(table).values()] == ["diverged", "diverged"]
    assert table.text_rows()[0] == ["Label", "L5", "Val", "Tokens/s", "Budget", "n"]


@pytest.mark.parametrize("loss", [0.0, math.inf, 800.0])
def test_absurd_losses_do_not_break_the_table(language_run, language_table, loss):
    runs = [language_run("S", [2.0, loss], [2.0, loss]), language_run("R", [2.0, 1.5])]
    shown = rows(language_table(runs))
    assert shown["R"]["Val"] == "1.600†" and "inf" not in " ".join(shown["S"].values())


def test_a_table_of_runs_without_bytes_has_no_column_of_bits_per_byte(language_run, language_table):
    run = language_run("S")
    curve = [{k: v for k, v in row.items() if k != "validation_bits_per_byte"} for row in run.record.curve]
    assert "Bits/byte" not in language_table([replace(run, record=replace(run.record, curve=curve))]).text_rows()[0]


@pytest.mark.parametrize(
    ("profile", "overrides", "label", "published"),
    [
        ("hyper1", [], "ha:3u!", "48.50"),
        ("hyper3", [], "hfa:2", "27.97"),
        ("hyper1", [], "hfa:3", "60.22"),
        ("hyper3", [], "hfa:3", "27.97"),
        ("hyper3", [], "hfa:1+2", "27.75"),
        ("hyper3", [], "hfa:2+3", "27.75"),
        ("hyper3", ["model.n_head=4"], "hfa:1+2", "27.75"),
        ("wikitext", [], "cd:id-sm-bd-cg", "28.87"),
        ("wikitext", ["model.positions=learned"], "cd:exp-sum", "31.73"),
        ("wikitext", ["model.positions=learned", "model.n_layer=12"], "cd:exp-sum", "31.73"),
        ("wikitext", ["model.value_skip=true"], "cd:id-sm-b1-cg", "29.23"),
    ],
)
def test_published_perplexities_are_below_the_rows_of_their_models(
    language_run, language_table, profile, overrides, label, published
):
    profile = LanguageProfile.load(profile, overrides)
    how = {"model": profile.model_config(), "training": profile.training_config("float32"), "mixer": {}}
    losses = [6.0, 5.0, 4.0, 3.0, 3.5, 3.2]
    runs = [language_run(label, losses, losses, **how), language_run("R-c", [], status="diverged", **how)]
    table = language_table(runs)
    found = rows(table)
    assert found[label]["PPL"] == f"{math.exp(3.2):.2f}†"
    assert found[label]["PPL of 5"] == f"{math.exp(statistics.mean(losses[1:])):.2f}†"
    assert found[f"{label} published"]["PPL"] == published
    assert table.cells["R-c"]["perplexity"].mean == pytest.approx(runs[1].job.setting["vocab_size"])
    assert found["R-c"]["PPL"] == "diverged"
    assert "R-c published" not in found and "PPL: exponential of the last loss" in table.notes
    cd, hfa = "coefficients, Table 3, one run each", "interactions, Tables 1 and 2, one run each, smoothed"
    assert f"Published: {cd if label.startswith('cd:') else hfa}. " in table.caption


def test_other_and_changed_profiles_have_no_published_perplexities(language_run, language_table):
    profile = LanguageProfile.load("hyper1", ["training.steps=10000"])
    how = {"model": profile.model_config(), "training": profile.training_config("float32"), "mixer": {}}
    for run in (language_run("S", **how), language_run("S")):
        assert not any("PPL" in heading for heading in language_table([run]).text_rows()[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [("device", "an abacus"), ("world_size", 2), ("micro_batch", 8), ("threads", 4), ("compiled", True), ("group", 4)],
)
def test_tables_leave_out_times_of_runs_under_different_conditions(language_run, language_table, name, value):
    table = language_table([language_run("S"), language_run("R", details={name: value})])
    assert not any("Val," in heading or "Tokens" in heading for heading in table.text_rows()[0])
    assert f"the runs differ in {name.replace('_', ' ')}." in table.notes and "Val, 6 s" not in table.notes


def test_one_label_is_not_compared_at_equal_time(language_run, language_table):
    assert not any("Val," in heading for heading in language_table([language_run("S")]).text_rows()[0])


@pytest.mark.parametrize(
    "change",
    [
        {"setting": {"corpus": "deadbeef01234567", "vocab_size": 320}},
        {"setting": {"corpus": "c0ffee0123456789", "vocab_size": 384}},
        {"model": GPTConfig(32, 2, 1, seq_len=16)},
        {"training": LanguageTraining(steps=60, tokens_per_step=64, eval_every=20)},
        {"training": LanguageTraining(steps=60, tokens_per_step=64, eval_every=10, precision="bfloat16")},
        {"budget": "paper"},
    ],
)
def test_protocols_are_never_mixed(language_run, language_table, change):
    runs = [language_run("S"), language_run("R", **change)]
    ids = [protocol_id(LANGUAGE, run.job) for run in runs]
    assert len(set(ids)) == 2
    with pytest.raises(
        ConfigError, match="the runs of language models follow 2 protocols, which cannot be compared"
    ) as refused:
        language_table(runs)
    lines = str(refused.value).splitlines()[1:]
    assert {line.split()[0]: line[-3:] for line in lines} == dict(zip(ids, [": S", ": R"]))


def test_labels_that_an_override_does_not_affect_share_the_table(language_run, language_table):
    usual = language_run("S").job.mixer
    plain, changed = language_run("S"), language_run("R-12!", mixer=usual | {"mix_rank": 4})
    other = language_run("R-12!", mixer=usual)
    assert protocol_id(LANGUAGE, plain.job) != protocol_id(LANGUAGE, changed.job)
    assert language_table([plain, changed]).rows == language_table([changed, plain]).rows
    with pytest.raises(ConfigError, match="the runs of language models follow 2 protocols") as refused:
        language_table([plain, changed, other])
    assert [line.rpartition(": ")[2] for line in str(refused.value).splitlines()[1:]] == ["R-12!, S"] * 2
    assert language_protocol(plain, changed).overrides == language_protocol(changed).overrides


def test_label_and_seed_are_not_part_of_a_protocol(language_run, language_table):
    runs = [language_run("S"), language_run("R", seed=7)]
    assert len({protocol_id(LANGUAGE, run.job) for run in runs}) == 1


def test_no_run_is_an_error(language_table):
    with pytest.raises(StoreError, match="no runs of language models yet"):
        language_table([])


@pytest.mark.parametrize("thresholds", [[0.0], [-1.0], [float("nan")], [2.0, 1.9, 2.0]])
def test_thresholds_must_be_losses_and_differ(language_run, language_table, thresholds):
    with pytest.raises(ConfigError, match="threshold"):
        language_table([language_run("S")], thresholds=thresholds)


def test_a_protocol_is_named_by_the_nearest_profile_and_its_overrides(language_run, language_table):
    profile = LANGUAGE.Profile.load("tiny", ["training.steps=600", "model.n_head=4"])
    run = language_run("S", model=profile.model_config(), training=profile.training_config("float32"))
    protocol = language_protocol(run)
    assert protocol.name == "tiny model.n_head=4 training.steps=600"
    assert protocol.profile.model_config() == run.job.model
    assert not profile.changes(run.job) and LANGUAGE.Profile.load("tiny").changes(run.job)
    bfloat16 = language_run("S", model=run.job.model, training=profile.training_config("bfloat16"))
    assert language_protocol(bfloat16).overrides == protocol.overrides
    assert protocol_id(LANGUAGE, bfloat16.job) != protocol_id(LANGUAGE, run.job)


@pytest.mark.slow
def test_published_rows_are_shown_for_the_papers_protocol_alone(language_run, language_table):
    ours = language_run("G-cg-q-12o", [3.25, 2.95], **PAPER)
    table = language_table([ours])
    assert rows(table)["G-cg-q-12o published"] == {
        "L5": "2.986", "Val": "", "Bits/byte": "", "to 3.3": "4000", "to 3.2": "6500", "to 3.1": "11000",
        "to 3.0": "29000",
        "Tokens/s": "", "Budget": "", "n": "",
    }  # fmt: skip
    assert "OpenWebText2" in table.notes
    assert "Published: hypermlp, Table 1, one seed." in table.caption
    other = {
        "setting": {"corpus": "c0ffee0123456789", "vocab_size": 320},
        "model": replace(GPTConfig(), positions="learned"),
        "training": LanguageTraining(eval_sequences=200),
    }
    for name, value in other.items():
        table = language_table([language_run("G-cg-q-12o", [3.25, 2.95], **PAPER | {name: value})])
        assert list(rows(table)) == ["G-cg-q-12o"] and "Not comparable with the paper" in table.notes


def test_tables_with_published_rows_use_the_papers_thresholds(language_run, language_table):
    assert "to 3.0" in language_table([language_run("S", [4.0], **PAPER)]).text_rows()[0]
    assert "to 4.1" in language_table([language_run("S", [4.0])]).text_rows()[0]


def test_the_notes_state_corpus_model_schedule_and_devices(language_run, language_table):
    notes = language_table([language_run("S"), language_run("R", [3.0, 2.6, 2.2])]).notes
    for fact in [
        "Corpus shelf (c0ffee01), tokens: bytes, 9,000 training tokens of 8,990 bytes, 1,000 validation tokens of 999",
        "d_model 16, 1 blocks, 2 heads, context 16, no positions, float32; 60 steps of 64 tokens.",
        "An evaluation is 4 windows of 16 tokens (train: drawn anew; val: evenly spread).",
        "one every 10 steps of 64 tokens.",
        "Trained on a slide rule. Times are wall-clock",
        "Val, 6 s: after the longest training time that all runs reached.",
        "Budget strict.",
        "†: single seed, not tested.",
        "Not comparable with the paper's losses",
    ]:
        assert fact in notes


def test_rows_are_in_the_order_of_the_given_labels(language_run, language_table):
    runs = [language_run("S"), language_run("R"), language_run("G-cg-q-12o")]
    assert list(language_table(runs, ["R", "S-p", "S"]).rows) == ["R", "S"]
    assert list(language_table(runs[::-1]).rows) == ["S", "R", "G-cg-q-12o"]


def test_records_and_csv_hold_every_cell_in_full(language_run, language_table):
    table = language_table([language_run("S", [10 / 3]), language_run("R", [3.0], status="diverged")], thresholds=[3.1])
    records = json.loads(json.dumps(table.json_rows(), allow_nan=False))
    assert records == table.json_rows() and len(records) == 2 * (len(table.columns) - 2)
    assert records[0] == {
        "label": "S", "task": "loss_l5", "mean": 10 / 3, "low": None, "high": None, "spread": None,
        "n": 1, "solved": None, "solved_low": None, "solved_high": None, "diverged_high": 0.975, "mark": "", "done": 1,
        "expected": 1, "diverged": 0, "budget_ratio": 0.99, "over_budget": False, "published": None, "chance": None,
        "heuristic": None,
    }  # fmt: skip
    by_name = {(record["label"], record["task"]): record for record in records}
    uniform = math.log(language_run("R").job.setting["vocab_size"])
    assert by_name["R", "loss_l5"]["mean"] == pytest.approx(uniform) and by_name["R", "loss_l5"]["diverged"] == 1
    assert by_name["R", "steps_to_3.1"]["mean"] == 10.0
    lines = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [float(line["mean"] or "nan") for line in lines] == pytest.approx(
        [float("nan") if record["mean"] is None else record["mean"] for record in records], rel=1e-15, nan_ok=True
    )


def test_a_label_over_budget_is_marked_in_every_form(language_run, language_results):
    runs = [language_run("S"), language_run("R", details={"budget_ratio": 1.26})]
    results = language_results(runs)
    table = result_table(results)
    assert {name: row["Budget"] for name, row in rows(table).items()} == {"S": "0.990", "R": "1.260‖"}
    assert (
        "‖: over budget, not compared" in table.caption
        and "over budget" not in result_table(language_results(runs[:1])).caption
    )
    page = result_page_table(table)
    assert "1.260‖" in [cell.text for group in page.groups for line in group.rows for cell in line]
    assert "1.260‖" in table.to_markdown() and "1.260‖" in table.to_html() and r"1.260$\|$" in table.to_latex()
    marked = {(line["label"], line["over_budget"]) for line in csv.DictReader(io.StringIO(table.to_csv()))}
    assert marked == {("S", "False"), ("R", "True")}
    assert "Over budget (parameters relative to softmax attention, mean over tasks): R 1.260." in results.sentences()


def test_runs_without_any_details_are_tabulated(language_run, language_table):
    run = language_run("S")
    bare = replace(run, record=Record("finished", {}, run.record.curve))
    table = language_table([bare])
    assert rows(table)["S"]["Budget"] == "" and "Corpus c0ffee0123456789" in table.notes


def test_the_interval_of_a_label_depends_on_its_own_seeds_alone(language_run, language_table):
    finals = {"S": [2.0, 2.1], "R": [1.0, 1.3]}
    runs = [language_run(label, [x], seed=i) for label, of_label in finals.items() for i, x in enumerate(of_label)]
    table = language_table([*runs, language_run("G", [0.5])])
    by_label = {record["label"]: record for record in table.json_rows() if record["task"] == "loss_l5"}
    for label, values in finals.items():
        low, high = interval_of(statistics.mean(values), [loss_terms(values)])
        found = by_label[label]
        assert (found["low"], found["high"]) == (pytest.approx(max(low, 0.0)), pytest.approx(high))
    assert by_label["G"]["low"] is None


def test_the_lowest_loss_is_the_best_and_speed_and_budget_have_none(language_run, language_table):
    finals = {"S": 2.0, "R": 1.0, "R-12o!": 0.5, "G": 1.001}
    runs = [language_run(label, [x + 0.01 * i], seed=i) for label, x in finals.items() for i in range(3)]
    table = language_table([*runs, language_run("S-p", [0.1])], thresholds=[5.0])
    marks = {(record["label"], record["task"]): record["mark"] for record in table.json_rows()}
    of_l5 = {label: marks[label, "loss_l5"] for label in (*finals, "S-p")}
    assert of_l5 == {"S": "", "R": "best", "R-12o!": "", "G": "within_noise", "S-p": ""}
    assert {mark for (_, name), mark in marks.items() if name == "tokens_per_second"} == {""}
    assert "by the test of madbench compare" in table.notes and "over budget" in table.notes
    assert list(table.sorted_by("loss_l5").rows) == ["S-p", "R-12o!", "R", "G", "S"]


def test_no_label_with_two_seeds_is_marked_best(language_run, language_table):
    runs = [language_run(label, [2.0 + i, 1.0 + i], seed=seed) for i, label in enumerate("SR") for seed in (0, 1)]
    assert not any(record["mark"] for record in language_table(runs, thresholds=[2.5]).json_rows())


def test_a_label_that_never_reaches_a_threshold_is_not_marked(language_run, language_table):
    runs = [language_run(label, [2.0 + i + seed / 100], seed=seed) for i, label in enumerate("SR") for seed in range(3)]
    table = language_table(runs, thresholds=[2.5])
    marks = {record["label"]: record["mark"] for record in table.json_rows() if record["task"] == "steps_to_2.5"}
    assert marks["R"] == "" and rows(table)["R"]["to 2.5"] == ""
