"""studies/evidence.py: the page of measured runs equals the output for its archives and its registration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evidence
from madbench.analysis.agreement import Agreement
from madbench.analysis.audit import ColumnAudit
from madbench.analysis.claims import load_claims
from madbench.analysis.findings import findings
from madbench.analysis.samples import samples_of
from madbench.errors import MadbenchError
from madbench.suites.mad.suite import AVERAGE
from madbench.suites.mad.suite import MAD_TASKS as TASKS
from madbench.suites.scoring import mean_over
from score_frames import frame_of_scores

PAGE = Path(__file__).parents[2] / evidence.PAGE


@pytest.fixture
def page(tmp_path) -> Path:
    path = tmp_path / "README.md"
    path.write_text("by hand\n<!-- archives -->\nof last year\n<!-- end archives -->\nalso\n")
    return path


def test_the_study_of_evidence_replaces_a_block_and_keeps_the_text_around_it(page):
    evidence.main([str(page)])
    headings = "| File | Runs | From a changed checkout | Made by |"
    table = f"{headings}\n| --- | ---: | ---: | --- |"  # of a folder without an archive
    assert page.read_text() == f"by hand\n<!-- archives -->\n\n{table}\n\n<!-- end archives -->\nalso\n"


def test_the_option_check_fails_on_an_outdated_page_and_writes_nothing(page):
    before = page.read_text()
    with pytest.raises(SystemExit, match="not what the archives give"):
        evidence.main([str(page), "--check"])
    assert page.read_text() == before
    evidence.main([str(page), "--check", "--only", "labels"])  # of which it has none
    evidence.main([str(page)])
    evidence.main([str(page), "--check"])


@pytest.mark.parametrize("name", ["archive", "tasks"])
def test_an_unknown_block_names_those_there_are(tmp_path, name):
    with pytest.raises(MadbenchError, match=f"block '{name}': expected one of archives, correlations, pilots"):
        evidence.renew_blocks(f"<!-- {name} -->\n<!-- end {name} -->\n", evidence.Evidence(tmp_path, tmp_path))


def test_verdicts_of_an_archive_that_is_not_there_name_those_that_are(tmp_path):
    page = "<!-- verdicts other -->\n<!-- end verdicts other -->\n"
    folder = evidence.Evidence(tmp_path, tmp_path)
    folder.stores = {"evening": None, "noise": None}
    with pytest.raises(MadbenchError, match="block 'verdicts other': expected one of evening, noise"):
        evidence.renew_blocks(page, folder)


def finding_of(gain: float, spread: float, name: str = "mixing"):
    """The finding of a claim on the average whose two pairs have this gain, and its samples."""
    (claim,) = (claim for claim in load_claims("hypermlp") if claim.name == name)
    rng, drawn = np.random.default_rng(0), []
    for place, label in enumerate(claim.labels(range(len(claim.pairs)))):
        for task in TASKS:
            mean = 40 + gain * (place % 2 == 0) if task != TASKS[0] else 100
            values = mean + spread * rng.standard_normal(5) * (mean < 100)
            drawn.append(frame_of_scores({label: values}, [task]))
    scores = pd.concat(drawn)
    scores = pd.concat([scores, mean_over(scores, TASKS, AVERAGE)], ignore_index=True)
    (row,) = (row for row in findings(scores, claims=[claim]) if row.quantity == AVERAGE)
    return row, samples_of(scores)


@pytest.mark.slow
def test_a_reason_says_on_which_side_of_the_threshold_the_interval_is():
    far, _ = finding_of(20.0, 0.5)
    assert far.verdict == "supported" and evidence.reason(far) == far.reason
    undecided = [replace(row, verdict="not decided") for row, _ in (finding_of(20.0, 0.5), finding_of(-20.0, 0.5))]
    assert "Its interval is on the claim's side of" in evidence.reason(undecided[0])
    assert "The interval shows that there is a gain" in evidence.reason(undecided[0])
    assert "Its interval is on the other side of" in evidence.reason(undecided[1])
    assert "Its interval includes the threshold of" in evidence.reason(finding_of(7.0, 20.0)[0])


def test_a_finding_without_a_stored_pair_is_refused_by_name():
    row, _ = finding_of(20.0, 0.5)
    without = replace(row, ours=None, missing=row.labels[:1])
    with pytest.raises(MadbenchError, match=f"mixing, {AVERAGE}: no run of {row.labels[0]} is stored"):
        evidence.measured_gain(without)


def test_tasks_on_which_nothing_can_differ_are_named():
    row, samples = finding_of(20.0, 0.5)
    text = evidence.limits(row, samples)
    assert text.startswith("Every label solves Compr. with every seed.")


@pytest.mark.slow
def test_the_committed_evidence_page_equals_the_generated_one(tmp_path):
    text = PAGE.read_text("utf-8")
    assert evidence.renew_blocks(text, evidence.Evidence(PAGE.parent, tmp_path)) == text


def audits_with(published: float, loss: float, solved: float, at_heuristic: float) -> list[ColumnAudit]:
    """Audits of a task and of the average with these numbers."""
    none, numbers = Agreement(), {"published": Agreement(published), "outcome": Agreement(loss), "judged": Agreement()}
    shares = {"at_chance": 0.0, "at_heuristic": at_heuristic, "solved": solved, "split": 0.0}
    common = {"labels": 22, "seeds": 3.0, "reliability": none, "seconds": 1.0, "correlations": {}}
    return [ColumnAudit(column=name, **common, **shares, **numbers) for name in (TASKS[0], AVERAGE)]


@pytest.mark.parametrize(
    ("numbers", "met"), [((0.75, -0.65, 1 / 3, 0.2), True), ((0.59, -0.64, 0.34, 0.21), False)], ids=["met", "missed"]
)
def test_aims_are_reached_or_missed_at_their_thresholds(numbers, met):
    table = evidence.aims_table(audits_with(*numbers), audits_with(*numbers))
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert rows[0] == ["Aim", "Aimed at", "Reached", "Missed"] and len(rows) == 7
    assert {row[3 if met else 2] for row in rows[2:]} == {"–"} and "–" not in {row[2 if met else 3] for row in rows[2:]}
