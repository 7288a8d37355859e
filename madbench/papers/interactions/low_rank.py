"""Appendix G.3: the error and the cost of low-rank softmax HyperAttention.

The error depends on the rank and on the size of the entries of q and k.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from madbench.analysis.frames import groups_of, records_of
from madbench.papers.interactions.mixers.low_rank import approximate, exact_flops, flops, rank
from madbench.papers.making import CONTRADICTED, OPEN, REPRODUCED, DrawnFigure, ItemResult, PlainMeasure, Request

if TYPE_CHECKING:
    from madbench.analysis.figures.panels import Layout, Page
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results

TOKENS, WIDTH, ORDER = (16, 64), 4, 3
SIZES = (0.5, 1.0, 2.0)
"""Sizes of the entries of q and k. Entries are drawn uniformly between minus the size and the size."""
DEGREES = (0, 1, 2, 3, 4, 6)
SEED = 0


class LowRankMeasure(PlainMeasure):
    """A measure of the largest error of one low-rank head against the exact sum over tuples of tokens.

    q, k and v are random, in float64.
    """

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        frame = error_rows()
        error_table = frame[frame.tokens == TOKENS[-1]].pivot(index="size", columns="degree", values="error")
        is_falling = bool((error_table.diff(axis=1).iloc[:, 1:] < 0).all(axis=None))
        is_less = bool((error_table.diff().iloc[1:, 1:] > 0).all(axis=None))
        first = error_table[1] <= 0.01
        verdicts = {
            "the error falls with the rank R2, at every size of the entries": _verdict(is_falling),
            "smaller entries have a smaller error at the same rank (Alman and Song)": _verdict(is_less),
            "R2 of O(R), degree 1, is enough: an error of 1% of the largest value": (
                REPRODUCED if first.all() else OPEN if first.any() else CONTRADICTED
            ),
        }
        remarks = dict.fromkeys(
            verdicts, f"entries up to {SIZES[0]}: " + ", ".join(f"{x:.0e}" for x in error_table.iloc[0]) + " by degree"
        )
        remarks[list(verdicts)[2]] = ", ".join(
            f"entries up to {size}: {error:.2g}" for size, error in error_table[1].items()
        )
        draw = functools.partial(_draw, frame)
        figures = [DrawnFigure("interactions_low_rank", draw, frame)]
        table = _table(frame, request)
        return ItemResult([table], verdicts, {"cells": table.json_rows()}, figures, remarks)


def _verdict(is_so: bool) -> str:
    return REPRODUCED if is_so else CONTRADICTED


def exact_attention(q: torch.Tensor, k: Sequence[torch.Tensor], v: Sequence[torch.Tensor]) -> torch.Tensor:
    """The outputs (B, H, T, d_vo) of causal softmax HyperAttention of order 3, by exact sums over pairs of tokens.

    ``q`` (B, H, T, R) is already scaled. ``k`` has two tensors of keys (B, H, T, R), and ``v`` two tensors of values
    (B, H, T, d_vo), one for each token of a pair.
    """
    tokens = q.shape[2]
    z = torch.einsum("bhis,bhjs,bhks->bhijk", q, *k)
    seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    z = z.masked_fill(~(seen[:, :, None] & seen[:, None]), -torch.inf).flatten(3)
    return torch.einsum("bhijk,bhjv,bhkv->bhiv", z.softmax(-1).unflatten(3, (tokens, tokens)), *v)


def error_rows() -> pd.DataFrame:
    """A frame of errors with one row per sequence length, size of the entries, and degree of the polynomial.

    Columns: tokens, size, degree, rank (of the low-rank sum), error, flops (of the low-rank sum), exact_flops. The
    error is the largest error of an output, relative to the largest exact output.
    """
    rows = []
    for tokens in TOKENS:
        generator = torch.Generator().manual_seed(SEED)
        drawn = 2 * torch.rand(5, 1, 1, tokens, WIDTH, dtype=torch.float64, generator=generator) - 1
        v = [*drawn[3:]]
        for size in SIZES:
            q, *k = drawn[:3] * size
            truth = exact_attention(q * WIDTH**-0.5, k, v)
            for degree in DEGREES:
                output = approximate(q * WIDTH**-0.5, k, v, degree)
                row = {"tokens": tokens, "size": size, "degree": degree, "rank": rank(WIDTH, degree)}
                row["error"] = float((output - truth).abs().max() / truth.abs().max())
                row["flops"] = flops(tokens, WIDTH, WIDTH, degree, ORDER)
                rows.append(row | {"exact_flops": exact_flops(tokens, WIDTH, WIDTH, ORDER)})
    return pd.DataFrame(rows)


def _table(frame: pd.DataFrame, request: Request) -> Listing:
    from madbench.analysis.rendering import Listing

    lines = []
    for (tokens, degree), group in groups_of(frame, ["tokens", "degree"]):
        cost = group.iloc[0].flops / group.iloc[0].exact_flops
        lines.append(
            [
                str(tokens),
                str(degree),
                str(int(group["rank"].iloc[0])),
                *(f"{x:.1e}" for x in group.error),
                f"{cost:.2g}",
            ]
        )
    headings = ["T", "Degree", "R2", *(f"entries to {size:g}" for size in SIZES), "FLOPs / exact"]
    caption = (
        f"{request.item.place} of {request.paper.title}: largest error over rows and channels, relative to the largest"
        " output, by degree of the polynomial and by the largest entry of q and k."
    )
    notes = (
        f"One head, order {ORDER}, width {WIDTH}, all causal tuples, entries uniform, scores over its root, float64."
    )
    cells: list[dict[str, Any]] = records_of(frame)
    return Listing(cells, headings, lines, cells, caption, notes, f"tab:{request.item.id}")


def _draw(frame: pd.DataFrame, layout: Layout | None = None) -> Page:
    from madbench.analysis.figures.panels import Layout, Panels
    from madbench.analysis.figures.style import GRAY, MARKERS, PALETTE, style

    layout = layout or Layout()
    with style():
        looks: dict[float, dict[str, Any]] = {
            size: {"color": c, "marker": m, "linewidth": 1.4} for size, c, m in zip(SIZES, PALETTE, MARKERS)
        }
        entries = {f"entries up to {size:g}": look for size, look in looks.items()}
        entries["cost of the exact sum"] = {"color": GRAY, "linestyle": ":"}
        lines = layout.lines([len(TOKENS)], 2, 1.3 if layout.is_small else 1.8, 0.6)
        heading = "HyperAttention in low rank: error against cost"
        panels = Panels(layout, "low rank", heading, lines, (2.6, 2.2), 0.6, len(entries))
        for axes, tokens in zip(panels.axes, TOKENS):
            for size, look in looks.items():
                line = frame[(frame.tokens == tokens) & (frame["size"] == size)]
                axes.plot(line.flops, line.error, **look)
            axes.axvline(frame[frame.tokens == tokens].exact_flops.iloc[0], color=GRAY, linestyle=":")
            axes.set(title=f"T = {tokens}", xscale="log", yscale="log")
        panels.name_axes("FLOPs", "largest error")
        notes = [f"Degrees {', '.join(map(str, DEGREES))} of the polynomial, from the left; order 3, width {WIDTH}."]
        return panels.finish(notes, entries)
