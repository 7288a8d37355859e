"""A check of a paper's table of complexities: the exponents of time, memory and FLOPs in the number of tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from madbench.bench.timing import Timing, TimingLimits, peak_bytes, time_in_turns
from madbench.errors import TrainingError
from madbench.labels import parse
from madbench.mixers import build
from madbench.mixers.ops.threads import torch_threads
from madbench.papers.making import CONTRADICTED, OPEN, REPRODUCED, ItemResult, PlainMeasure, Request
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.scores import Results

WIDTH, HEADS = 16, 2
PAIRS = (512, 1024, 2048, 4096, 8192, 16384)
"""Numbers of tokens at which operators on all pairs of tokens are timed.

Below about 4,000 tokens, a large part of their time does not depend on the number of tokens.
"""
REPEATS = 5
NEAR, APART = 0.4, 0.6
"""Bounds on the distance between a measured and an expected exponent: up to ``NEAR`` they agree, from ``APART`` on they
differ.
"""


@dataclass(frozen=True)
class Case:
    """A row of a paper's table of complexities, with the label, path and numbers of tokens by which it is measured."""

    row: str
    label: str
    path: str
    exponent: float
    """The exponent p that the table states: a forward pass of T tokens costs T^p."""
    lengths: tuple[int, ...]


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent p of values that grow as length^p: the slope of log(value) over log(length).

    Only the upper half of the lengths is used.
    """
    upper = len(lengths) // 2
    return float(np.polyfit(np.log(lengths[upper:]), np.log(values[upper:]), 1)[0])


class ComplexityMeasure(PlainMeasure):
    """A measure that checks a paper's table of complexities. Each paper has a subclass with the ``cases`` of its table.

    For each case it runs forward passes at several numbers of tokens T, and fits the exponent p with which their time
    grows as T^p. The verdict compares p with the table's exponent (:func:`exponent_verdict`). The exponents of memory
    and of counted FLOPs are shown without a verdict.
    """

    cases: ClassVar[Sequence[Case]] = ()

    @property
    def operators(self) -> list[str]:
        return list(dict.fromkeys(case.label for case in self.cases))

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        from madbench.analysis.rendering import Listing

        device = resolve_device(request.device)
        with torch_threads(1):
            rows = [measure_case(case, device) for case in self.cases]
        verdicts, remarks = {}, {}
        for row in rows:
            statement = f"{row['row']}, {row['label']}: time of T^{row['exponent']:g}"
            verdicts[statement] = exponent_verdict(row["time"], row["exponent"])
            remarks[statement] = (
                f"measured T^{row['time']:.2f}, memory T^{row['memory']:.2f}, FLOPs T^{row['flops']:.2f}"
            )
        for statement, (actual, expected) in self.further(rows).items():
            verdicts[statement] = exponent_verdict(actual, expected)
            remarks[statement] = f"measured {actual:.2f}"
        names = ("exponent", "time", "memory", "flops")
        lines = [
            [row["row"], row["label"], row["path"], *(f"{row[name]:.2f}" for name in names), row["T"]] for row in rows
        ]
        headings = ["Row", "Label", "Path", "Table", "Time", "Memory", "FLOPs", "T"]
        caption = f"{request.item.place} of {request.paper.title}: exponents of T of a forward pass on {device}."
        notes = (
            f"One layer, d_model {WIDTH}, {HEADS} heads, batch 1, float32. Slopes of logarithms over the upper half of"
            f" the lengths: the shortest of {REPEATS} times, on a CPU its own in one thread, bytes at the peak, and"
            " FLOPs as counted."
        )
        table = Listing(rows, headings, lines, rows, caption, notes, f"tab:{request.item.id}")
        return ItemResult([table], verdicts, {"rows": rows}, (), remarks)

    def further(self, rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
        """Further statements that the measure decides: statement to (measured value, expected value). Empty by default.

        ``rows`` are the rows of the table, results of :func:`measure_case`.
        """
        return {}


def exponent_verdict(actual: float, expected: float) -> str:
    """The verdict on a measured exponent: reproduced if it differs from the expected one by at most ``NEAR``.

    Contradicted if it differs by ``APART`` or more, otherwise not decided.
    """
    away = abs(actual - expected)
    return REPRODUCED if away <= NEAR else CONTRADICTED if away >= APART else OPEN


def measure_case(case: Case, device: str) -> dict[str, Any]:
    """Measure one row of a table of complexities.

    The result has these keys:

    - ``row``, ``label``, ``path`` and ``exponent``, the fields of the case;
    - ``time``, ``memory`` and ``flops``, the exponents with which these quantities grow with the length;
    - ``T``, the range of lengths as text;
    - ``seconds`` and ``bytes``, lists of the measured numbers for each length.
    """
    passes, flops = {}, []
    for length in case.lengths:
        mixer = build(parse(case.label), WIDTH, length, n_head=HEADS, budget="paper", path=case.path).to(device).eval()
        passes[length] = partial(mixer, torch.randn(1, length, WIDTH, device=device))
        flops.append(length * mixer.allocation.flops_per_token(length))
    times = pass_seconds(case.label, passes, device)
    with torch.inference_mode():
        bytes_ = [peak_bytes(run, device) for run in passes.values()]
    fields = {"row": case.row, "label": case.label, "path": case.path, "exponent": case.exponent}
    slopes: dict[str, Sequence[float]] = {"time": times, "memory": bytes_, "flops": flops}
    fields |= {name: slope(case.lengths, values) for name, values in slopes.items()}
    return fields | {"T": f"{case.lengths[0]}-{case.lengths[-1]}", "seconds": times, "bytes": bytes_}


def pass_seconds(name: str, passes: Mapping[int, Callable[[], Tensor]], device: str) -> list[float]:
    """The seconds of a pass at each length, in the order of ``passes``: the shortest of ``REPEATS`` passes.

    Lengths take turns, to spread noise. On a CPU the seconds are the processor time of one thread, which other
    processes do not increase. Raises ``TrainingError``, which names ``name``, if a pass cannot be timed on a GPU.
    """
    with torch.inference_mode():
        if device == "cpu":
            with torch_threads(1):
                rounds = [[own_seconds(run) for run in passes.values()] for _ in range(1 + REPEATS)]
            return [min(times) for times in zip(*rounds[1:])]
        timings = time_in_turns(passes, TimingLimits(REPEATS), device)
    seconds = []
    for length, timing in timings.items():
        if not isinstance(timing, Timing):
            raise TrainingError(f"{name} at {length} tokens: {timing}")
        seconds.append(timing.low)
    return seconds


def own_seconds(run: Callable[[], Tensor]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began
