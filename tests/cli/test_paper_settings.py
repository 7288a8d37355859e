"""Settings of papers: every published one is that of the jobs, and one that is not is named."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from madbench.papers import load_paper, settings
from madbench.papers.making import Request

PAPER = load_paper("coefficients")
REQUEST = Request(PAPER, PAPER.item("tables4to12"))


@pytest.fixture(scope="module")
def planned():
    """Jobs of an item, planned once."""
    found = {}

    def jobs(request):
        if request.item.id not in found:
            found[request.item.id] = settings_jobs(request)
        return found[request.item.id]

    settings_jobs = settings.jobs_of
    return jobs


@pytest.mark.slow
def test_the_settings_of_every_table_are_those_of_its_jobs(planned, monkeypatch):
    monkeypatch.setattr(settings, "jobs_of", planned)
    made = settings.SettingsMeasure().decide(REQUEST, None)
    tables = {statement.partition(":")[0] for statement in made.verdicts}
    assert {f"Table {number}" for number in range(4, 13)} <= tables
    assert set(made.verdicts.values()) == {"reproduced"} and not made.remarks


def test_a_setting_that_differs_is_named(planned, monkeypatch, tmp_path):
    with open(PAPER.folder / settings.SETTINGS, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "principle3" and row["table"] == "Table 8"]
    rows[2]["published"] = "8"
    with open(tmp_path / settings.SETTINGS, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=[*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(settings, "jobs_of", planned)
    request = replace(REQUEST, paper=replace(PAPER, folder=tmp_path))
    made = settings.SettingsMeasure().decide(request, None)
    (statement,) = made.verdicts
    assert made.verdicts[statement] == "not reproduced" and made.remarks[statement] == "differs in Number of Heads"
    assert "16" in [row["here"] for row in made.content["settings"]]


def test_settings_of_presets_and_of_the_code_are_those_of_hypermlp(monkeypatch):
    paper = load_paper("hypermlp")
    request = Request(paper, paper.item("settings"))
    made = settings.SettingsMeasure().decide(request, None)
    assert set(made.verdicts.values()) == {"reproduced"} and len(made.verdicts) == 5
    compared = [row for row in made.content["settings"] if row["is_equal"] is not None]
    assert len(compared) > 25
    monkeypatch.setattr("madbench.mixers.srg.parts.EPS", 1e-6)
    changed = settings.SettingsMeasure().decide(request, None)
    assert [*changed.remarks.values()] == ["differs in Stabiliser of the norm"]
