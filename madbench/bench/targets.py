"""The speed targets of madbench, and a table of them with measured values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from madbench.bench.parts import PEER, BenchRow

RowsByPart = Mapping[str, Sequence[BenchRow]]  # the rows of each part of the benchmark, by the part's name


@dataclass(frozen=True)
class Target:
    """A bound on one measured ratio of speed, time or memory, such as the speed of the fused over the chunked path.

    ``device`` is ``cpu`` or ``gpu``. ``what`` and ``bound`` are the target in words. ``measure`` returns the ratio, or
    None if it was not measured.
    """

    device: str
    what: str
    bound: str
    measure: Callable[[RowsByPart], float | None]


def _value(part: str, name: str, **keys: object) -> Callable[[RowsByPart], float | None]:
    """A function that finds the value ``name`` in the rows of a part of the benchmark.

    It uses the first row that has this value and all values in ``keys``, and returns None if there is no such row.
    """

    def find(rows: RowsByPart) -> float | None:
        for row in rows.get(part, ()):
            if all(row.get(key) == value for key, value in keys.items()) and row.get(name) is not None:
                value: float = row[name]
                return value
        return None

    return find


def _inverse(find: Callable[[RowsByPart], float | None]) -> Callable[[RowsByPart], float | None]:
    return lambda rows: None if (value := find(rows)) is None else 1 / value


def _least_speed_over_peer(rows: RowsByPart) -> float | None:
    """The lowest speed of any label relative to the reference code's model, on short sequences.

    These are sequences of 32 tokens in the two tasks ``_SHORT``. None unless both tasks were measured.
    """
    ratios = {
        (row["task"], row["label"]): row["speed_over_peer"]
        for row in rows.get("training", ())
        if row["task"] in _SHORT and row["length"] == 32 and row["label"] != PEER and "speed_over_peer" in row
    }
    return min(ratios.values()) if {task for task, _ in ratios} == {*_SHORT} else None


_SHORT = ("memorization", "compression")
_GLU = {"label": "G-cg-q-12o"}
_FUSED = _GLU | {"path": "fused compiled", "beside": "chunked compiled"}
_COPYING = _GLU | {"task": "selective_copying", "length": 256}
TARGETS = (
    Target("gpu", "8x1024x768, fused over chunked, both compiled, speed", "at least 1.7; goal 2.5",
           _value("mixers", "speed", shape="8x1024x768", **_FUSED)),
    Target("gpu", "8x1024x768, memory kept, fused over chunked, both compiled", "at most 0.125; goal 0.091",
           _value("mixers", "kept_share", shape="8x1024x768", **_FUSED)),
    Target("gpu", "8x1024x768, time of the core over flash attention's", "at most 2.8; goal 1.5",
           _inverse(_value("mixers", "speed", shape="8x1024x768", path="core", **_GLU))),
    Target("gpu", "128x128x128, fused over chunked, both compiled, speed", "at least 2; goal 3",
           _value("mixers", "speed", shape="128x128x128", **_FUSED)),
    Target("gpu", "128x1024x128, fused over chunked, both compiled, speed", "at least 3; goal 5",
           _value("mixers", "speed", shape="128x1024x128", **_FUSED)),
    Target("gpu", "GPT-2 small, training step over that of S flash", "at most 1.35; goal 1.10",
           _value("table5", "train_over_flash", d_model=768, length=1024, **_GLU)),
    Target("cpu", "selective copying, training step over that of S", "at most 2.2",
           _value("training", "times_of_S", **_COPYING)),
    Target("cpu", "selective copying, speed over the reference's softmax", "at least 1.5",
           _value("training", "speed_over_peer", **_COPYING)),
    Target("cpu", "memorization and compression, least speed over the reference's softmax", "at least 1.0",
           _least_speed_over_peer),
)  # fmt: skip
"""The targets. A target that names no label is about HyperGLU."""


def targets_table(rows: RowsByPart, device: str) -> list[str]:
    """The lines of a Markdown table of the speed targets on ``device``, which is ``cpu`` or ``gpu``.

    Each target is shown with the value that was measured in ``rows``, or with ``not measured``.
    """
    measured = [(target, target.measure(rows)) for target in TARGETS if target.device == device]
    cells = [
        f"| {target.what} | {target.bound} | {'not measured' if value is None else f'{value:.3g}'} |"
        for target, value in measured
    ]
    return ["| HyperGLU | Target | Here |", "| --- | --- | ---: |", *cells]
