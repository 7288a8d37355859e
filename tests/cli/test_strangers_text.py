"""Text of a stranger's runs, in any script and of any length, in every figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

LABEL = f"my:{'模型' * 100}.M"
DEVICE = f"{'算盘' * 1500} {'x' * 4000} {'y z ' * 2000}"


@pytest.mark.slow
@pytest.mark.parametrize("width", ["", "single"])
def test_every_figure_draws_long_foreign_text_of_imported_runs(main, tiny, store, fill, fill_language, width):
    fill(["S", "S-p"], seeds=(0, 1))
    for label in ("S", "S-p"):
        fill_language(label)
    for run in list(store.runs()):
        details = run.record.details | {"device": DEVICE}
        if run.job.suite == "language":
            details["corpus"] = details["corpus"] | {"name": "书架" * 500}
        job = run.job if run.job.label == "S" else replace(run.job, label=LABEL, family=f"1+{'e' * 64}", mixer={})
        store.finish(job, replace(run.record, details=details), replace=True)
    of_mad, shape = ["--profile", tiny, "-t", "compression,in_context_recall"], ["--width", width] if width else []
    for verb in (["plot", *of_mad, *shape], ["plot", "loss", *shape], ["report", *of_mad]):
        ended = main(*verb)
        assert ended.code == 0 and "Glyph" not in ended.stderr, (verb, ended.stderr)
    named = main("plot", "scores", *of_mad, "--rename", "S=模", *shape)
    assert named.code == 2 and "has no character 模" in named.stderr
