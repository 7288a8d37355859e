from __future__ import annotations

import json

import pandas as pd
import pytest
from rich.console import Console

from madbench.analysis.claims import CLAIMS
from madbench.analysis.findings import findings
from madbench.analysis.findings_table import explanation, findings_table, open_commands
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.scores import mean_over
from madbench.tasks import MAD_TASKS

VALUES = {
    "R-12o!": [57.0, 59.0, 55.0],
    "R-12!": [49.0, 49.5, 48.5],
    "S-c-q": [50.0],
    "S-c-v": [40.0],
    "R-cg-q-12o": [100.0] * 3,
    "R-cg-q": [100.0] * 3,
}


WHOLE = {"suite": "mad", "ceiling": 100.0, "done": 1, "expected": 1, "diverged": 0, "budget_ratio": 1.0}


def scored(values: dict[str, list[float]]) -> pd.DataFrame:
    """A frame of scores of labels with these accuracies by seed, the same on all tasks, and their averages."""
    scores = pd.DataFrame(
        WHOLE | {"label": label, "column": task, "seed": seed, "value": accuracy}
        for label, accuracies in values.items()
        for task in MAD_TASKS
        for seed, accuracy in enumerate(accuracies)
    )
    return pd.concat([scores, mean_over(scores, MAD_TASKS, MAD_AVERAGE)], ignore_index=True)


def lost(values: dict[str, list[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        WHOLE | {"suite": "language", "label": label, "column": LOSS, "seed": seed, "value": loss}
        for label, losses in values.items()
        for seed, loss in enumerate(losses)
    )


def table(values=VALUES, losses=None):
    frames = [make(found) for make, found in ((scored, values), (lost, losses)) if found]
    return findings_table(findings(pd.concat(frames) if frames else None), ["A protocol."])


def shown(found, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(found.to_rich(width))
    return captured.get().splitlines()


def rows(found) -> dict[str, list[str]]:
    _, lines = found.text_rows()
    return {title: cells for title, *cells in lines}


def test_a_finding_is_a_row_below_the_heading_of_its_group():
    found = rows(table())
    assert list(found)[:2] == ["Questions of the talk: MAD avg", "Softmax is not essential"]
    published, ours, n, verdict, why = found["The lag layout is necessary"]
    assert (
        (published, n, verdict) == ("+35.5", "3", "supported") and ours.startswith("+8.0 ±") and why.startswith("p 0.")
    )
    assert found["Compress QK rather than VO"] == ["+0.2", "(+10.0)", "1", "not enough data", "single seed"]
    assert found["GLU adds value beyond ReLU"][3:] == ["not enough data", "needs G-cg-q-12o"]
    assert found["Mixing helps noisy recall"] == ["+0.0*", "+0.0 ±0.0", "3", "not enough data", "p 1.00, solved anyway"]
    assert found["Mixing hardly helps memorization"][:2] == ["+17.3*", "+0.0 ±0.0"]


def test_a_loss_is_a_row_of_its_own_below_its_claim_or_the_claims_row_where_it_is_alone():
    both = [line[0] for line in table(losses={"S": [3.0]}).text_rows()[1]]
    assert both[1:3] == ["Softmax is not essential", "  on L5 loss"]
    alone = table(None, {"R-12o!": [3.0, 3.1], "R-12!": [4.0, 4.3]})
    assert rows(alone)["The lag layout is necessary"][:3] == ["+1.307", "+1.100 ±1.271", "2"]
    assert next(iter(rows(alone))) == "Questions of the talk: L5 loss" and not any(
        "on L5" in title for title in rows(alone)
    )
    assert "0.022 nats" in alone.caption and "points" not in alone.caption


def test_everything_is_on_one_screen():
    for found in (table(None), table()):
        lines = shown(found, 100)
        assert max(map(len, lines)) <= 100 and len(lines) + len(found.caption) / 95 <= 41
        assert "".join(lines).count("not enough data") == sum(row.verdict == "not enough data" for row in found.rows)
    narrow = shown(table(), 80)
    assert max(map(len, narrow)) <= 80 and not any("Why" in line for line in narrow)
    assert any(line.startswith("The lag layout is necessary ") and " supported" in line for line in narrow)
    assert shown(table(), 30)  # a line a column


def test_the_caption_says_how_a_verdict_comes_about():
    caption = table().caption
    assert caption.startswith("A protocol. Gain, more is better: accuracy in points.")
    assert "after Holm over 8 tests that" in caption and "minus 3.6 points, for 'hardly'" in caption
    assert "In brackets: single seed; excluded from tests." in caption
    assert all(claim.name in table(None).caption for claim in CLAIMS)
    assert findings_table(findings(), left_out=2).caption.count("2 results of a label") == 1


def test_what_is_not_stored_is_one_command():
    labels = (
        "R-pc S-pc R-cg-q-12o R-cg-q R-g-q-12o R-pcg-q-12o G-cg-q-12o R-12o! R-12! S-c-q S-c-v G-cg-q-1o G-12o! G-2o!"
    )
    assert open_commands(findings()) == [f"madbench run {labels} --seeds 0-2"]
    assert [command.split()[1] for command in open_commands(findings(mad_options="-p full"))] == ["run", "lm"]
    assert open_commands([row for row in findings(scored(VALUES)) if row.n > 1]) == []


def test_every_format_has_every_row():
    found = table()
    assert "| The lag layout is necessary | +35.5 | +8.0 ±" in found.to_markdown()
    assert r"The lag layout is necessary & +35.5 & +8.0{\scriptsize\,$\pm$" in found.to_latex()
    heading, *lines = found.to_csv().splitlines()
    assert heading.startswith("name,title,group,claim,source,factors,quantity") and len(lines) == len(found.rows)
    records = {record["name"]: record for record in json.loads(json.dumps(found.records(), allow_nan=False))}
    assert records["lag"]["pairs"] == "R-12o! - R-12!" and records["lag"]["verdict"] == "supported"
    assert records["softmax"]["ours"] is None and records["softmax"]["command"].startswith("madbench run R-pc S-pc")
    assert records["softmax"]["line"] == pytest.approx(-3.5575)


def test_an_explanation_has_the_claim_its_pairs_its_numbers_and_its_note():
    found = table()
    lag = explanation([row for row in found.rows if row.claim.name == "lag"])
    parts = {heading: text for heading, text in lag if heading}
    assert "Theorem 2.3" in parts["claim"] and "R-2!" in parts["note"] and "layout" in parts["test"]
    assert parts["MAD avg"].startswith("supported. The gain is above 0: p 0.")
    assert ("", "G-12o! - G-12!: published +32.3, ours not counted") in lag
    dominant = explanation([row for row in found.rows if row.claim.name == "dominant"])
    assert ("rivals", "conv, RoPE, GLU; shown is the gain over the next largest of them") in dominant
    assert ("", "madbench run R-cg-q-12o R-cg-q R-g-q-12o R-pcg-q-12o G-cg-q-12o --seeds 0-2") in dominant
