"""The table of findings: rows, headings, notes, explanations and export formats."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from hypermlp_claims import CLAIMS, findings
from madbench.analysis.claims.sentences import parse_claim
from madbench.analysis.findings_table import explanation, findings_table, open_commands
from madbench.analysis.power import power_table
from madbench.labels.names import DisplayNames, using_names
from madbench.suites.mad.suite import MAD_TASKS
from score_frames import frame_of_losses, frame_of_scores

VALUES = {
    "R-12o!": [57.0, 59.0, 55.0],
    "R-12!": [9.0, 9.5, 8.5],
    "S-c-q": [50.0],
    "S-c-v": [40.0],
    "R-cg-q-12o": [100.0] * 3,
    "R-cg-q": [100.0] * 3,
}


def table(values=VALUES, losses=None):
    frames = [*([frame_of_scores(values, MAD_TASKS)] if values else []), *([frame_of_losses(losses)] if losses else [])]
    return findings_table(findings(pd.concat(frames) if frames else None), ["A protocol."])


def shown(found, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(found.to_rich(width))
    return captured.get().splitlines()


def rows(found) -> dict[str, list[str]]:
    _, lines = found.text_rows()
    return {title: cells for title, *cells in lines}


def test_the_caption_says_whose_seeds_n_counts():
    found = table({"R-cg-q-12o": [60.0, 61.0, 62.0], "R-cg-q": [50.0 + 0.1 * seed for seed in range(9)]})
    assert {row.n for row in found.rows} == {0, 3} and "n: seeds of the label in these pairs that has" in found.caption
    assert "n: seeds" not in table({}).caption


def test_a_finding_is_a_row_below_the_heading_of_its_group():
    found = rows(table())
    assert list(found)[:2] == ["Main claims: MAD avg", "Softmax is not essential"]
    published, ours, n, verdict, why = found["The lag layout is necessary"]
    assert (published, n, verdict) == ("+35.5", "3", "supported")
    assert ours.startswith("+48.0 ±") and why.startswith("p <0.")
    assert found["Compress QK rather than VO"] == ["+0.2", "(+10.0)", "1", "not enough data", "single seed"]
    assert found["GLU matches on MAD, lowers loss"][3:] == ["not enough data", "needs G-cg-q-12o"]
    noisy = found["Mixing helps noisy recall"]
    assert (noisy[0], noisy[2:]) == ("+0.0*", ["3", "not testable", "both solve it"])
    assert noisy[1].startswith("+0.0 ±") and noisy[1] == found["Mixing hardly helps memorization"][1]


def test_untestable_findings_still_show_their_interval():
    unequal = {"R-cg-q-12o": [99.0] * 3, "R-cg-q": [98.0] * 8}
    text = rows(findings_table(findings(frame_of_scores(unequal))))["Mixing helps compression"]
    assert "±" in text[1] and text[3] == "not testable"


def test_a_finding_on_losses_is_below_that_on_accuracy_or_alone():
    both = [line[0] for line in table(losses={"S": [3.0]}).text_rows()[1]]
    assert both[1:3] == ["Softmax is not essential", "  on L5 loss"]
    alone = table(None, {"R-12o!": [3.0, 3.1], "R-12!": [4.0, 4.3]})
    assert rows(alone)["The lag layout is necessary"][:3] == ["+1.307", "+1.100 ±1.161", "2"]
    assert next(iter(rows(alone))) == "Main claims: L5 loss"
    assert not any("on L5" in title for title in rows(alone))
    assert "0.022 nats" in alone.notes and "0.022 nats" not in table().notes


def test_the_first_row_of_a_claim_has_the_quantity_of_its_group_heading():
    heading = ""
    for row, line in zip(*_rows_and_lines(table(losses={"S": [3.0]}))):
        heading = line if row is None else heading
        if row is not None and not line[0].startswith("  on ") and "the task" not in heading[0]:
            assert heading[0].endswith(": MAD avg") and row.quantity == "mad_average"


def _rows_and_lines(found):
    """The lines of a table, each with its finding. None for a heading."""
    _, lines = found.text_rows()
    of_lines = iter(found.rows)
    return [next(of_lines) if line[4] else None for line in lines], lines


@pytest.mark.slow
def test_a_table_fits_80_columns_without_the_reasons():
    for found in (table(None), table()):
        lines = shown(found, 100)
        assert max(map(len, lines)) <= 100
        assert "".join(lines).count("not enough data") == sum(row.verdict == "not enough data" for row in found.rows)
    narrow = shown(table(), 80)
    assert max(map(len, narrow)) <= 80 and not any("Why" in line for line in narrow)
    assert any(line.startswith("The lag layout is necessary ") and " supported" in line for line in narrow)
    assert shown(table(), 30)  # a line a column


@pytest.mark.slow
def test_notes_state_the_test_the_correction_and_the_minimum_of_seeds():
    found = table()
    assert found.notes.startswith("A protocol. ") and found.caption.startswith(
        "Gains in percentage points of accuracy; more is better. Published: Table 1, one seed; *:"
    )
    tested = max(row.tested for row in found.rows)
    assert f"Holm-corrected for {tested} tests." in found.notes and "3.6 points" in found.notes
    assert "or with fewer than 3 seeds." in found.notes
    assert all(claim.name in table(None).notes for claim in CLAIMS)
    assert findings_table(findings(), left_out=2).notes.count("2 results of a label") == 1


def test_the_caption_says_if_published_gains_are_of_some_pairs_of_a_claim_only():
    (claim,) = [claim for claim in CLAIMS if claim.name == "selective-copying"]
    values = {label: [100.0] * 3 for pair in claim.pairs for label in pair}
    said = "If only some pairs of a claim have enough runs, Published and Ours are of these pairs alone."
    for labels, published in ((values, "+24.8"), (claim.pairs[0], "+25.2"), ((), "+24.8")):
        scores = frame_of_scores({label: values[label] for label in labels}, claim.quantities) if labels else None
        made = findings_table(findings(scores, claims=[claim]))
        assert rows(made)[claim.title][0] == published
        assert (said in made.caption) == (published == "+25.2")


def test_one_command_trains_all_labels_that_open_findings_need():
    labels = "R-pc S-pc R-cg-q-12o R-cg-q R-g-q-12o R-pcg-q-12o G-cg-q-12o R-12o! R-12! S-c-q S-c-v S-g-q"
    labels += " G-cg-q-1o G-12o! G-2o! S G-g-q-12o R"
    assert open_commands(findings()) == [f"madbench run {labels} --seeds 0-4"]
    of_suites = open_commands(findings(options={"mad": "-p full", "language": "-p gpt2"}))
    assert [command.partition(" --seeds 0-4 ")[2] for command in of_suites] == ["-p full", "-t language_model -p gpt2"]
    assert open_commands([row for row in findings(frame_of_scores(VALUES, MAD_TASKS)) if row.n > 2]) == []


GATED = "cd:id-dg-cg"  # cd:gla-cg


@pytest.fixture
def renamed():
    """A claim on two pairs of labels, and scores of them. Two of the labels have display names."""
    with using_names(DisplayNames(by_user={GATED: "gated attention", "S": "softmax"})):
        claim, _ = parse_claim(f"every {GATED} R > S on compression")
        yield claim, frame_of_scores({GATED: [50.0, 51.0], "R": [40.0, 42.0], "S": [9.0, 8.0]})


def test_a_command_has_labels_that_can_be_typed_in_place_of_their_names(renamed):
    claim, scores = renamed
    shown_text = findings_table(findings(scores, claims=[claim])).with_notes_if(True).below
    assert "madbench run cd:gla-cg S" in shown_text and "gated" not in shown_text.partition("madbench run")[2]


def test_the_gains_of_pairs_have_the_names_of_their_labels(renamed):
    claim, scores = renamed
    _, lines = power_table(scores, {"": [claim]}).text_rows()
    assert [first for first, *_ in lines][1:] == ["  gated attention - softmax", "  R - softmax"]


def test_every_format_has_every_row():
    found = table()
    assert "| The lag layout is necessary | +35.5 | +48.0 ±" in found.to_markdown()
    assert re.search(r"The~lag~layout~is~necessary & \+35.5 & .*\+48.0.*\$\\pm\$", found.to_latex())
    heading, *lines = found.to_csv().splitlines()
    assert heading.startswith("name,title,group,claim,source,factors,quantity") and len(lines) == len(found.rows)
    records = {record["name"]: record for record in json.loads(json.dumps(found.json_rows(), allow_nan=False))}
    assert records["lag"]["pairs"] == "R-12o! - R-12!" and records["lag"]["verdict"] == "supported"
    assert records["softmax"]["estimate"] is None
    assert records["softmax"]["command"].startswith("madbench run R-pc S-pc")
    assert records["softmax"]["threshold"] == pytest.approx(-3.5575)


def test_an_explanation_has_the_claim_its_pairs_its_numbers_and_its_note():
    found = table()
    lag = explanation([row for row in found.rows if row.claim.name == "lag"])
    parts = {heading: text for heading, text in lag if heading}
    assert "Theorem 2.3" in parts["claim"] and "R-2!" in parts["note"] and "layout" in parts["test"]
    assert parts["MAD avg"].startswith("supported. The gain is above +17.8: p <0.")
    assert "above 50% of the published gain" in parts["test"]
    assert ("", "G-12o! − G-12!: published +32.3, ours not counted") in lag
    dominant = explanation([row for row in found.rows if row.claim.name == "dominant"])
    assert ("rivals", "conv, RoPE, GLU; shown is the gain over the next largest of them") in dominant
    assert ("", "madbench run R-cg-q-12o R-cg-q R-g-q-12o R-pcg-q-12o G-cg-q-12o --seeds 0-4") in dominant
    headline = explanation([row for row in found.rows if row.claim.name == "headline"])
    assert ("pairs", "every one has to hold; shown is the smallest gain") in headline


def test_a_finding_with_the_gain_at_its_threshold_has_this_reason():
    """The p-value of 1 is not caused by too few seeds."""
    equal = {"R-cg-q-12o": [60.0, 62.0, 64.0], "R-cg-q": [61.0, 62.0, 63.0]}
    (row,) = (row for row in findings(frame_of_scores(equal)) if row.claim.name == "compression")
    assert (row.verdict, row.is_at_threshold) == ("not decided", True) and row.reason.startswith(
        "The gain is at 0: p 1.000"
    )
    assert rows(findings_table([row]))["Mixing helps compression"][-1] == "p 1.000, at the threshold"
    apart = {"R-cg-q-12o": [61.0, 63.0, 65.0], "R-cg-q": [61.0, 62.0, 63.0]}
    (row,) = (row for row in findings(frame_of_scores(apart)) if row.claim.name == "compression")
    assert not row.is_at_threshold and "may be on either side of 0" in row.reason


def test_verdicts_from_chosen_settings_have_a_sign_a_note_and_a_column():
    scores = frame_of_scores(VALUES, MAD_TASKS)
    rows_found = findings(scores, chosen_on={"mad": "choosing"})
    found, note = findings_table(rows_found), "settings chosen by the published order of @choosing"
    with_pairs = [row for row in rows_found if row.pairs]
    assert {row.choice_note for row in with_pairs} == {note} and {row.chosen_on for row in rows_found} == {
        "choosing",
        "",
    }
    assert rows(found)["The lag layout is necessary"][3] == "supported §"
    assert "§: settings chosen by the published order of @choosing." in found.caption
    cells = {cell["title"]: cell for cell in found.json_rows()}
    assert cells["The lag layout is necessary"]["verdict"] == "supported"
    assert cells["The lag layout is necessary"]["verdict_note"] == note
    of_lag = [row for row in rows_found if row.claim.name == "lag"]
    assert any(f"supported ({note})." in text for _, text in explanation(of_lag))
    assert "§" not in str(table().text_rows()) + table().caption


def test_marks_that_all_verdicts_share_are_in_the_caption_only():
    found = findings(frame_of_scores(VALUES, MAD_TASKS))
    assert len(found) > 1
    marks = ("provisional", "registered before 2 of 9 runs")
    table = findings_table([replace(row, marks=marks) for row in found])
    assert table.caption.startswith("All verdicts: provisional, registered before 2 of 9 runs. Gains in")
    assert not any("provisional" in cell for line in table.text_rows()[1] for cell in line)
    assert all("provisional" in record["verdict"] for record in table.json_rows())
    some = findings_table([replace(row, marks=marks if i else ()) for i, row in enumerate(found)])
    assert some.caption.startswith("All verdicts on registered claims: provisional")
    mixed = findings_table([replace(row, marks=marks[: 1 + i % 2]) for i, row in enumerate(found)])
    verdicts = [line[4] for line in mixed.text_rows()[1] if line[4]]
    assert "All verdicts" not in mixed.caption and all("(provisional" in verdict for verdict in verdicts)
