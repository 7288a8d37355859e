"""A leaderboard shows the runs of several archives in one table per protocol."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from madbench.store.archive import pack


def archived(store, name, wanted=lambda job: True) -> str:
    pack(store, [job.id for job in store.jobs().values() if wanted(job)], Path(f"{name}.tar.xz"))
    return f"{name}.tar.xz"


def rows_of(page: str) -> list[list[tuple[str, str, str]]]:
    """Label, first number and archives of each row of each table."""
    tables = re.findall(r'<table class="numbers".*?</table>', page, re.DOTALL)
    bodies = [re.findall(r"<tbody.*?</tbody>", table, re.DOTALL) for table in tables]
    cells = [[re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", body, re.DOTALL) for body in table] for table in bodies]
    plain = [[[unescape(re.sub("<.*?>", "", cell)) for cell in row] for row in table] for table in cells]
    return [[(row[0], row[1].split(" ")[0].rstrip("†"), row[-1]) for row in table] for table in plain]


@pytest.mark.slow
def test_rows_of_two_archives_share_a_table_and_name_their_archive(main, fill, store):
    fill(["S", "R-c"], 0.5, seeds=(0, 1), profile="quick")
    fill("S-c", 0.75, seeds=(0, 1), profile="quick")
    ours = archived(store, "ours", lambda job: job.label != "S-c")
    theirs = archived(store, "theirs", lambda job: job.label != "R-c")
    ended = main("report", "--archive", ours, "--archive", theirs)
    assert ended.code == 0 and ended.stdout.startswith("leaderboard.html: ")
    (table,) = rows_of(Path("leaderboard.html").read_text())
    assert {(label, source) for label, _, source in table} == {
        ("S", "ours, theirs"),
        ("S-c", "theirs"),
        ("R-c", "ours"),
    }
    assert {label: number for label, number, _ in table} == {"S": "50.0", "S-c": "75.0", "R-c": "50.0"}
    assert not Path("results/report.html").exists()


@pytest.mark.slow
def test_a_leaderboard_has_one_table_per_protocol(main, fill, store, fill_language):
    fill("S", 0.5, profile="quick")
    fill("S", 0.9, profile="quick", overrides=["training.epochs=7"])
    fill_language("R-c")
    assert main("report", "--archive", archived(store, "all")).code == 0
    page = Path("leaderboard.html").read_text()
    tables = rows_of(page)
    assert sorted(label for table in tables for label, *_ in table) == ["R-c", "S", "S"]
    assert len(tables) == 3 and len(set(re.findall(r'<section id="(board-\w+)"', page))) == 3


@pytest.mark.slow
def test_conflicting_runs_of_later_archives_are_named_and_left_out(main, fill, store):
    fill("S", 0.5, profile="quick")
    first = archived(store, "first")
    for job in store.jobs().values():
        record = store.read(job.id).record
        store.finish(job, replace(record, metrics=record.metrics | {"accuracy": 0.9}), replace=True)
    ended = main("report", "--archive", Path(first).resolve(), "--archive", archived(store, "second"))
    assert "2 runs of second have other numbers than in first, which counts" in ended.stderr
    page = Path("leaderboard.html").read_text()
    assert str(Path.cwd()) not in page and "madbench-" not in page, "no folder of this machine"
    (((_, number, source),),) = rows_of(page)
    assert (number, source) == ("50.0", "first")


@pytest.mark.slow
def test_runs_that_cannot_be_read_here_are_named_once_and_the_others_shown(main, fill, store):
    fill(["S", "R-c"], 0.5, seeds=(0, 1), profile="quick")
    for run in list(store.runs()):
        gone = {"label": "S-xyz"} if run.job.label == "S" else {"task": "gone_task"}
        store.finish(replace(run.job, **gone), run.record)
    ended = main("report", "--archive", archived(store, "all"))
    said = " ".join(ended.stderr.split())
    assert ended.code == 0 and "Traceback" not in said
    assert "4 runs left out; setting of gone_task: unknown task 'gone_task'" in said
    assert "S-xyz is left out" in said
    for warning in re.split("warning: ", said)[1:]:
        assert warning.count("left out") == 1 and said.count(warning) == 1
    (table,) = rows_of(Path("leaderboard.html").read_text())
    assert {label for label, *_ in table} >= {"S", "R-c"}


def test_report_refuses_options_on_stored_runs_with_archives(main, fill, store):
    fill("S")
    path = archived(store, "all")
    for words in (("S",), ("--fidelity", "published"), ("--budget", "strict"), ("--results", "elsewhere")):
        assert f"{words[0]} has no effect with --archive" in main("report", *words, "--archive", path).stderr
    assert "two archives are called 'all'" in main("report", "--archive", path, "--archive", path).stderr


@pytest.mark.slow
def test_archives_of_an_unshipped_profile_need_its_file(main, fill, store, tiny):
    fill("S", 0.5)
    fill("S", 0.9, overrides=["training.epochs=7"])
    path = archived(store, "own")
    assert "name its YAML file with --profile" in main("report", "--archive", path).stderr
    ended = main("report", "--archive", path, "--profile", tiny)
    assert ended.code == 0 and f"its 2 runs do not follow {Path(tiny).name}" in ended.stderr
    (((label, number, _),),) = rows_of(Path("leaderboard.html").read_text())
    assert (label, number) == ("S", "50.0")


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["quick", "tiny"])
def test_runs_at_several_rates_share_a_table(profile, main, fill, store, tiny):
    name = tiny if profile == "tiny" else profile
    fill(["S", "R-c"], 0.5, seeds=(0, 1, 2), profile=name, overrides=["learning_rates=[1e-3,2e-3]"])
    ended = main("report", "--archive", archived(store, "rates"), *(["--profile", name] if profile == "tiny" else []))
    assert ended.code == 0 and "warning" not in ended.stderr, ended.stderr
    page = Path("leaderboard.html").read_text()
    (table,) = rows_of(page)
    assert {label for label, *_ in table} == {"S", "R-c"} and "learning_rates=[0.001,0.002]" in page
