"""Figure 9 over lengths: the trained jobs, and verdicts from counts."""

from __future__ import annotations

import pandas as pd
import pytest

from madbench.errors import ConfigError
from madbench.papers import load_paper
from madbench.papers.coefficients.lengths import judge_lengths
from madbench.papers.coefficients.measure import LengthsMeasure
from madbench.papers.making import Request, jobs_of

KERNELS = ("cd:kexp-sum-p", "cd:ksoftplus-sum-p")


def request(**changes) -> Request:
    paper = load_paper("coefficients")
    return Request(paper, paper.item("figure9_lengths"), **changes)


def counts(gains: dict[str, float], seeds: int = 5) -> pd.DataFrame:
    """Suppressed coefficients by label, length and seed: 2 at 32 tokens, and more by the gain at 128."""
    return pd.DataFrame(
        {"label": label, "length": length, "seed": seed, "suppressed": 2 + gain * (length > 32) + 0.1 * seed}
        for label, gain in gains.items()
        for length in (32, 128)
        for seed in range(seeds)
    )


@pytest.mark.parametrize(
    ("gain", "seeds", "expected"),
    [(4.0, 5, "supported"), (-1.5, 5, "contradicted"), (0.01, 5, "not significant"), (4.0, 2, "too few seeds")],
)
def test_the_longest_task_is_compared_with_the_shortest(gain, seeds, expected):
    verdicts, remarks = judge_lengths(counts({KERNELS[0]: gain}, seeds))
    statement = "cd:kexp-sum-p: more coefficients are zero at 128 tokens than at 32"
    assert verdicts == {statement: expected} and f"{seeds} seeds" in remarks[statement]


def test_each_kernel_has_its_own_verdict_on_lengths():
    verdicts, _ = judge_lengths(counts(dict(zip(KERNELS, (4.0, 0.01)))))
    assert [*verdicts.values()] == ["supported", "not significant"]


def test_one_length_gives_no_verdict_on_lengths():
    rows = counts({KERNELS[0]: 4.0})
    assert judge_lengths(rows[rows.length == 32]) == ({}, {})


@pytest.mark.slow
def test_both_kernels_are_trained_at_two_lengths_of_one_task_and_share_the_runs_of_the_principle():
    jobs = jobs_of(request())
    assert {job.label for job in jobs} == {*KERNELS} and {job.task for job in jobs} == {"selective_copying"}
    assert {job.setting["seq_len"] for job in jobs} == {32, 128} and {job.seed for job in jobs} == {*range(5)}
    paper = load_paper("coefficients")
    shared = {job.id for job in jobs_of(Request(paper, paper.item("principle2.2")))}
    assert shared == {job.id for job in jobs if job.setting["seq_len"] == 32}
    assert {job.setting["seq_len"] for job in jobs_of(request(profile="full"))} == {128, 512}


def test_other_labels_and_tasks_are_refused_on_figure9_lengths():
    for changes in ({"labels": ("cd:softmax",)}, {"tasks": ("compression",)}):
        with pytest.raises(ConfigError, match="has no effect on figure9_lengths"):
            LengthsMeasure().plan(request(**changes))
