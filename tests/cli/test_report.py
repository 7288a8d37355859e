"""``madbench report``: the file, its labels, and messages for missing results."""

from __future__ import annotations

import json
import os
import re
import webbrowser

import pytest

from madbench.cli.report import report
from madbench.store.index import RunIndex

TWO_TASKS = ("compression", "in_context_recall")


pytestmark = pytest.mark.usefixtures("without_figures")


def embedded(path) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


@pytest.mark.slow
def test_the_verb_report_writes_one_file_and_names_missing_seeds(fill, store, invoke, tiny):
    fill(["S", "S-c"])
    output = invoke(report, "-p", tiny, "-t", ",".join(TWO_TASKS))
    path = store.root / "report.html"
    assert not output.exception, output.exception
    assert re.match(r"results/report.html: [0-9.]+ [kM]B, 4 jobs\n", output.stdout)
    assert "missing: Single seed; excluded from tests (MAD tasks): S, S-c." in output.stdout
    assert embedded(path)["count"] == 4
    assert [entry.name for entry in os.scandir(store.root) if entry.is_file() and "report" in entry.name] == [path.name]


@pytest.mark.slow
def test_report_looks_up_run_folders_once(fill, invoke, tiny, monkeypatch):
    fill(["S", "S-c"])
    calls = []
    look_up = RunIndex.look_up
    monkeypatch.setattr(RunIndex, "look_up", lambda *given: calls.append(given) or look_up(*given))
    assert not invoke(report, "-p", tiny).exception
    assert len(calls) == 1


@pytest.mark.slow
def test_labels_and_the_file_can_be_chosen(fill, invoke, tiny, tmp_path):
    fill(["S", "S-c"])
    path, link = tmp_path / "new" / "folder" / "a.html", tmp_path / "link.html"
    link.symlink_to(path)
    for output in (path, link):
        path.unlink(missing_ok=True)
        ended = invoke(report, "S-c", "-p", tiny, "-t", "compression", "-o", output)
        assert not ended.exception, ended.exception
        assert embedded(path)["runs"]["label"] == {"values": ["S-c"]} and embedded(path)["count"] == 1
    assert link.is_symlink()


@pytest.mark.slow
def test_report_open_starts_a_browser_or_names_the_file(fill, invoke, tiny, monkeypatch, tmp_path):
    fill("S")
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: shown.append(url) or False)
    output = invoke(report, "-p", tiny, "-t", "compression", "--open")
    assert shown == [(tmp_path / "results" / "report.html").as_uri()]
    assert f"no browser found; open {shown[0]}" in output.stderr


@pytest.mark.slow
def test_language_models_need_no_runs_of_mad_tasks(fill_language, invoke):
    fill_language("S")
    output = invoke(report)
    assert not output.exception, output.exception


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (["S-x"], "label 'S-x'"),
        (["--results", "nowhere"], "nowhere: there is no such results folder"),
        (["-p", "full"], "profile full"),
        (["-t", "language_model"], "no runs of language models"),
        (["-t", "language_model", "training.epochs=1"], "training: unknown key 'epochs'"),
        (["-o", "results"], "results: is a directory"),
    ],
)
def test_report_refuses_wrong_arguments(fill, refuse, tiny, words, message):
    fill("S")
    rest = [] if "-p" in words or "-t" in words else ["-p", tiny, "-t", "compression"]
    assert message in refuse(report, *words, *rest)


def test_an_empty_store_says_how_to_fill_it(store, refuse):
    assert "madbench run G-cg-q-12o" in refuse(report)


@pytest.mark.slow
def test_a_full_disk_leaves_the_previous_report(fill, store, invoke, refuse, tiny, monkeypatch):
    fill("S")
    words = ("-p", tiny, "-t", "compression")
    invoke(report, *words)
    before = (store.root / "report.html").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "no space left" in refuse(report, *words)
    assert (store.root / "report.html").read_bytes() == before
    assert not list(store.root.glob(".*.tmp"))
