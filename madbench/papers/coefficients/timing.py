"""Principle 1: time of a forward pass against length, with the recurrence and without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from madbench.bench.timing import Limits, in_turns
from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.papers.coefficients import Decision, Principle
from madbench.papers.coefficients.figures import point_decision
from madbench.papers.coefficients.verdicts import CONTRADICTED, OPEN, SUPPORTED, principle_table

FORMS = {
    "cd:id-sm-bd chunked": ("cd:id-sm-bd", "chunked", 1.0),
    "cd:id-sm-bd dense": ("cd:id-sm-bd", "dense", 2.0),
    "cd:exp-sum sdpa": ("cd:exp-sum", "sdpa", 2.0),
}
"""Label, path, and the slope of log time on log T that is expected for long sequences."""
LENGTHS = {"cpu": (256, 512, 1024, 2048, 4096), "cuda": tuple(2**i for i in range(9, 17))}
REPEATS = 5
WIDTH, HEADS = 64, 2
NEAR = 0.35
"""How far a slope may be from the expected one."""


def slope(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log time on log T over the upper half of the lengths."""
    upper = len(lengths) // 2
    return float(np.polyfit(np.log(lengths[upper:]), np.log(seconds[upper:]), 1)[0])


def decide_time(principle: Principle, device: str, lengths: Sequence[int] | None = None) -> Decision:
    """Medians of a layer's forward pass, d 64, 2 heads, batch 1."""
    lengths = lengths or LENGTHS[device.partition(":")[0]]
    verdicts, lines, cells, points = {}, [], [], []
    for form, (label, path, expected) in FORMS.items():
        seconds = [_seconds(label, path, length, device) for length in lengths]
        exponent = slope(lengths, seconds)
        is_near = abs(exponent - expected) <= NEAR
        is_other = abs(exponent - (3 - expected)) <= NEAR
        verdict = SUPPORTED if is_near else CONTRADICTED if is_other else OPEN.replace("significant", "clear")
        verdicts[form] = f"{verdict}: slope {exponent:.2f}, expected about {expected:.0f}"
        lines.append([form, *(f"{1000 * duration:.1f}" for duration in seconds), f"{exponent:.2f}"])
        for n, duration in zip(lengths, seconds):
            cells.append({"form": form, "length": n, "seconds": duration, "slope": exponent})
            points.append({"panel": "forward pass", "series": form, "label": form, "x": float(n), "y": 1000 * duration})
    caption = (
        f"Milliseconds of a forward pass at each length on {device}, medians of {REPEATS}; slope of log time on log T"
        " over the upper half."
    )
    table = principle_table(caption, ["Form", *map(str, lengths), "Slope"], lines, cells)
    protocol = f"One layer, d_model {WIDTH}, {HEADS} heads, batch 1, {device}."
    axes_of = {"forward pass": {"xscale": "log", "yscale": "log", "xlabel": "length T", "ylabel": "ms"}}
    return point_decision(principle, verdicts, table, points, protocol, axes_of, is_line=True)


def _seconds(label: str, path: str, length: int, device: str) -> float:
    mixer = build(label, WIDTH, length, n_head=HEADS, budget="paper", path=path).to(device).eval()
    x = torch.randn(1, length, WIDTH, device=device)
    with torch.inference_mode():
        measured = in_turns({path: lambda: mixer(x)}, Limits(REPEATS), device)[path]
    if isinstance(measured, str):
        raise TrainingError(f"{label} by path {path} at length {length}: {measured}")
    return measured.median
