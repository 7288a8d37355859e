"""Learned mixing matrices R(1) and R(2), compared with the predictions of Appendix I.3."""

from __future__ import annotations

import pandas as pd
import pytest

from madbench.papers import load_paper
from madbench.papers.hypermlp.mixing import kernel_table, shares_verdict
from madbench.papers.making import Request


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ([0.6, 0.75, 1.0], "reproduced"),
        ([0.6, 0.5, 1.0], "not decided"),
        ([0.0, 0.05, 0.0], "contradicted"),
        ([0.0, 0.1, 0.0], "not decided"),
        ([1.0, 1.0], "not decided"),
    ],
)
def test_the_verdict_on_learned_mixing_depends_on_the_share_in_every_seed(shares, verdict):
    assert shares_verdict(shares) == verdict


def test_the_kernel_table_counts_per_seed_kernels_with_the_tasks_structure():
    shift = {"best_shift": 0.3, "best_shift_random": 0.2, "best_window": 0.0, "best_window_random": 0.2, "size": 0.5}
    window = shift | {"best_shift": 0.1}
    kernels = [
        {"label": "R", "task": "selective_copying", "seed": seed} | row
        for seed, row in ((0, shift), (0, window), (1, shift))
    ]
    kernels += [{"label": "R", "task": "compression", "seed": 0} | shift]
    paper = load_paper("hypermlp")
    table = kernel_table(pd.DataFrame(kernels), Request(paper, paper.item("mixing_learned")))
    copying, compression = table.json_rows()
    assert copying["shares"] == [0.5, 1.0] and copying["mean"] == pytest.approx(0.7 / 3)
    assert compression["shares"] == [0.0] and compression["structure"] == "best_window"
