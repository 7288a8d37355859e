"""Stored runs of a label whose optional package is not installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from madbench.mixers.named.family import NamedFamily

ABSENT = "GLA"
VERBS = [
    ["table"],
    ["plot"],
    ["attribute"],
    ["audit"],
    ["findings"],
    ["findings", "--power"],
    ["report", "--output", "page.html"],
]


@pytest.fixture
def without_package(monkeypatch):
    monkeypatch.setattr(NamedFamily, "missing_package", lambda family: "some-package", raising=False)


@pytest.fixture
def fill_absent(store, fill, fill_language):
    """Store runs as if another machine or an earlier version of madbench had trained them."""
    fill(["S", "S-p"], seeds=(0, 1, 2))
    fill_language("S")

    def call(label, version, seeds=(0, 1, 2), accuracy=0.75):
        runs = [run for run in store.runs() if run.job.label in ("S", "S-p") and run.job.seed in seeds]
        for run in [run for run in runs if run.job.suite == "language" or run.job.label == "S-p"]:
            job = replace(run.job, label=label, family=f"1 with flash-linear-attention {version}", mixer={})
            metrics = run.record.metrics | {"accuracy": accuracy}
            details = run.record.details | {"ended": f"2026-0{version[-1]}-01T00:00:00"}
            store.finish(job, replace(run.record, metrics=metrics, details=details))

    return call


@pytest.mark.slow
def test_runs_without_their_code_are_shown_with_a_mark_by_every_verb(
    main, tiny, fill_absent, without_package, tmp_path
):
    label = ABSENT
    fill_absent(label, "0.2", seeds=(0,), accuracy=0.25)
    fill_absent(label, "0.3")
    where = ["--profile", tiny, "-t", "compression,in_context_recall"]
    absent = f"6 runs of {label} had code that is not here: some-package."
    named = [["table", label], ["compare", "S", label]]
    for verb in VERBS + named:
        ended = main(*verb, *where)
        assert ended.code == 0, (verb, ended.stderr)
        said = " ".join(ended.stderr.split())
        assert f"2 runs of {label} are from another version of its code; left out" in said, verb
        if verb[0] in ("table", "compare"):
            shown = " ".join(ended.stdout.split())
            assert label in shown and absent in shown and ("75.0" in shown or verb[0] == "compare")
            assert "25.0 ±" not in shown
    assert f"{label} ¶" in main("table", *where).stdout
    assert f"{label} ¶" in (tmp_path / "page.html").read_text()
    for verb in (["table"], ["plot", "loss"], *named[1:], ["ls", "runs"], ["ls", "runs", label]):
        ended = main(*verb, *(["-t", "language_model"] if verb[0] != "ls" else []))
        assert ended.code == 0, (verb, ended.stderr)
        assert verb[0] == "plot" or label in ended.stdout
    assert main("validate", "--store").code == 0
    assert main("archive", "-o", "all.tar.xz").code == 0
    assert main("import", "all.tar.xz", "--results", "theirs").code == 0
    ended = main("report", "--archive", "all.tar.xz", "--profile", tiny, "-o", "board.html")
    assert ended.code == 0, ended.stderr
    assert f"{label} ¶" in (tmp_path / "board.html").read_text()
