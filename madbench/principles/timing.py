"""Principle 1: time of a forward pass against length, with the recurrence and without."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from madbench.analysis.figures.files import frame_of
from madbench.mixers import build
from madbench.principles import Decision, Principle
from madbench.principles.figures import POINT_COLUMNS, point_figure
from madbench.principles.verdicts import CONTRADICTED, OPEN, SUPPORTED, PrincipleTable

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


@dataclass(frozen=True)
class TimeTable(PrincipleTable):
    """Milliseconds of a forward pass by form and length."""

    seconds: dict[str, dict[int, float]]
    slopes: dict[str, float]

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        lines = [
            [form, *(f"{1000 * seconds:.1f}" for seconds in of_form.values()), f"{self.slopes[form]:.2f}"]
            for form, of_form in self.seconds.items()
        ]
        lengths = next(iter(self.seconds.values()))
        return ["Form", *map(str, lengths), "Slope"], lines

    def records(self) -> list[dict[str, Any]]:
        return [
            {"form": form, "length": length, "seconds": seconds, "slope": self.slopes[form]}
            for form, of_form in self.seconds.items()
            for length, seconds in of_form.items()
        ]


def slope(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log time on log T over the upper half of the lengths."""
    upper = len(lengths) // 2
    return float(np.polyfit(np.log(lengths[upper:]), np.log(seconds[upper:]), 1)[0])


def decide_time(principle: Principle, device: str, lengths: Sequence[int] | None = None) -> Decision:
    """Medians of a layer's forward pass, d 64, 2 heads, batch 1."""
    lengths = lengths or LENGTHS[device.partition(":")[0]]
    seconds = {form: {n: _seconds(label, path, n, device) for n in lengths} for form, (label, path, _) in FORMS.items()}
    slopes = {form: slope(list(of_form), list(of_form.values())) for form, of_form in seconds.items()}
    verdicts = {}
    for form, (_, _, expected) in FORMS.items():
        is_near = abs(slopes[form] - expected) <= NEAR
        is_other = abs(slopes[form] - (3 - expected)) <= NEAR
        verdict = SUPPORTED if is_near else CONTRADICTED if is_other else OPEN.replace("significant", "clear")
        verdicts[form] = f"{verdict}: slope {slopes[form]:.2f}, expected about {expected:.0f}"
    caption = (
        f"Milliseconds of a forward pass at each length on {device}, medians of {REPEATS}; slope of log time on log T"
        " over the upper half."
    )
    points = [
        {"panel": "forward pass", "series": form, "label": form, "x": float(n), "y": 1000 * value}
        for form, of_form in seconds.items()
        for n, value in of_form.items()
    ]
    frame = frame_of(points, POINT_COLUMNS, f"One layer, d_model {WIDTH}, {HEADS} heads, batch 1, {device}.")
    draw = functools.partial(
        point_figure,
        principle=principle,
        axes_of={"forward pass": {"xscale": "log", "yscale": "log", "xlabel": "length T", "ylabel": "ms"}},
        is_line=True,
    )
    return Decision(TimeTable(seconds, slopes, caption=caption), verdicts, frame, draw)


def _seconds(label: str, path: str, length: int, device: str) -> float:
    mixer = build(label, WIDTH, length, n_head=HEADS, budget="paper", path=path).to(device).eval()
    x = torch.randn(1, length, WIDTH, device=device)
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    found = []
    with torch.inference_mode():
        for _ in range(REPEATS + 1):
            wait()
            start = time.perf_counter()
            mixer(x)
            wait()
            found.append(time.perf_counter() - start)
    return statistics.median(found[1:])
