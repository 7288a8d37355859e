"""The report is made once, and again when anything that it shows has changed."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pytest

from madbench.jobs import Record
from madbench.report import kept
from madbench.report.kept import report_of
from madbench.store.runs import Store

DATES = [datetime(2026, 1, day, tzinfo=UTC) for day in (2, 3)]


@pytest.fixture
def copied(store, tmp_path) -> Store:
    shutil.copytree(store.root / "runs", tmp_path / "results" / "runs")
    return Store.open(tmp_path / "results")


@pytest.fixture
def made(monkeypatch):
    """What has been made anew, a page each time."""
    pages = []
    page_of = kept.page_of
    monkeypatch.setattr("madbench.report.figures.CAPTIONS", {})
    monkeypatch.setattr(kept, "page_of", lambda *given: pages.append(page_of(*given)) or pages[-1])
    return pages


def test_the_second_report_is_the_first_one_but_for_command_and_date(copied, gather, made):
    first, second = report_of(gather(copied)), report_of(gather(copied))
    assert first == second and len(made) == 1
    pages = [report.page(f"madbench report <{i}>", DATES[i]) for i, report in enumerate((first, second))]
    assert pages[0] == made[0].render("madbench report <0>", "2026-01-02 00:00 UTC")
    assert pages[1] == made[0].render("madbench report <1>", "2026-01-03 00:00 UTC")
    assert (first.count, first.missing) == (made[0].count, made[0].missing)


def test_another_choice_or_result_or_file_of_the_package_makes_it_anew(copied, gather, made, monkeypatch, tmp_path):
    report_of(gather(copied))
    report_of(gather(copied, "S", "S-c"))
    report_of(gather(copied, "S", "S-c", tasks=("compression",)))
    run = next(run for run in copied.runs() if run.record.status == "finished" and run.job.task == "compression")
    copied.finish(run.job, Record("diverged"), replace=True)
    report_of(gather(copied, "S", "S-c", tasks=("compression",)))
    monkeypatch.setattr(kept.resources, "VARIANTS", tmp_path)
    report_of(gather(copied, "S", "S-c", tasks=("compression",)))
    assert len(made) == 5


@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: content[:-9], lambda content: b"{}\n" + content]
)
def test_a_damaged_one_is_made_anew(copied, gather, made, damage):
    path = copied.root / "index" / "report"
    first = report_of(gather(copied))
    path.write_bytes(damage(path.read_bytes()))
    assert report_of(gather(copied)) == first
    assert len(made) == 2


def test_where_it_cannot_be_kept_it_is_made_each_time(copied, gather, made):
    (copied.root / "index").write_text("a file in its place")
    assert report_of(gather(copied)) == report_of(gather(copied))
    assert len(made) == 2
