"""Stored runs of a label whose optional package is not installed here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from madbench.errors import MissingExtraError
from madbench.mixers.fla import budget
from made_up_fla import forget_library

LABEL = "fla:gla"
VERBS = [
    ["table"],
    ["table", LABEL],
    ["compare", "S", LABEL],
    ["plot"],
    ["attribute"],
    ["audit"],
    ["findings"],
    ["findings", "--power"],
    ["report", "--output", "page.html"],
]


@pytest.fixture
def without_package(monkeypatch):
    def library():
        raise MissingExtraError("a label of flash-linear-attention", "fla")

    monkeypatch.setattr(budget, "library", library)
    forget_library()
    yield
    forget_library()


@pytest.fixture
def fill_absent(store, fill, fill_language, without_package):
    """Stores runs as a machine with the package has trained them, of one version of it or of another."""
    fill(["S", "S-p"], seeds=(0, 1, 2))
    fill_language("S")

    def call(version, seeds=(0, 1, 2), accuracy=0.75):
        runs = [run for run in store.runs() if run.job.label in ("S", "S-p") and run.job.seed in seeds]
        for run in [run for run in runs if run.job.suite == "language" or run.job.label == "S-p"]:
            job = replace(run.job, label=LABEL, family=f"1 with flash-linear-attention {version}", mixer={})
            store.finish(job, replace(run.record, metrics=run.record.metrics | {"accuracy": accuracy}))

    return call


@pytest.mark.slow
def test_runs_of_an_absent_package_are_shown_with_a_mark_by_every_verb(main, tiny, fill_absent, tmp_path):
    fill_absent("0.2", seeds=(0,), accuracy=0.25)
    fill_absent("0.3")
    where = ["--profile", tiny, "-t", "compression,in_context_recall"]
    absent = f"6 runs of {LABEL} had code that is not here: flash-linear-attention"
    for verb in VERBS:
        ended = main(*verb, *where)
        assert ended.code == 0, (verb, ended.stderr)
        said = " ".join(ended.stderr.split())
        assert f"2 runs of {LABEL} are from another version of its code; left out" in said, verb
        if verb[0] in ("table", "compare"):
            shown = " ".join(ended.stdout.split())
            assert LABEL in shown and absent in shown and ("75.0" in shown or verb[0] == "compare")
            assert "25.0 ±" not in shown
    assert f"{LABEL} ¶" in main("table", *where).stdout
    assert f"{LABEL} ¶" in (tmp_path / "page.html").read_text()
    for verb in (["table"], ["plot", "loss"], ["compare", "S", LABEL], ["ls", "runs"]):
        ended = main(*verb, *(["-t", "language_model"] if verb[0] != "ls" else []))
        assert ended.code == 0, (verb, ended.stderr)
        assert verb[0] == "plot" or LABEL in ended.stdout
    assert main("validate", "--store").code == 0
    assert main("archive", "-o", "all.tar.xz").code == 0
    assert main("import", "all.tar.xz", "--results", "theirs").code == 0
    ended = main("report", "--archive", "all.tar.xz", "--profile", tiny, "-o", "board.html")
    assert ended.code == 0, ended.stderr
    assert f"{LABEL} ¶" in (tmp_path / "board.html").read_text()


@pytest.mark.slow
def test_training_a_label_of_an_absent_package_says_how_to_install_it(main, tiny, fill_absent):
    fill_absent("0.3")
    ended = main("run", LABEL, "--profile", tiny, "-t", "compression", "--dry-run")
    assert ended.code == 2 and "[fla]" in ended.stderr and "Traceback" not in ended.stderr
