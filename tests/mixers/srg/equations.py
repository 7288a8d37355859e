"""One label per equation of the S/R/G grammar, and the checks of HyperMLP's appendices."""

from __future__ import annotations

from dataclasses import replace

from madbench.mixers.srg.grammar import SrgLabel
from madbench.mixers.srg.listing import all_parsed_labels

APPENDICES = {
    "diagonal mixing", "mixed normals", "turned normals", "differential", "deformation", "pool", "atoms",
    "bounded features", "bounded readout", "restriction", "variation norm", "bounded output", "tangent kernel",
    "constant kernel", "lazy descent", "stable selection", "convolution", "added document", "spurious slots",
    "explicit construction", "curved kink", "swapped normals", "linear cells", "bent cells", "smooth cells",
    "low-rank deformation", "dummy slots", "reachable atoms", "warped sum", "shift", "noise average", "signal margin",
    "context summaries", "weights of one sign", "summary by one head",
}  # fmt: skip


def one_label_per_equation() -> list[str]:
    """One label for each equation.

    Labels that differ only in ranks have equal equations, so one is chosen, in turn with q, v or no compression.
    """
    by_equation: dict[SrgLabel, list[str]] = {}
    for label in all_parsed_labels():
        equation = replace(label, rank="", over=label.adds_parameters)
        by_equation.setdefault(equation, []).append(str(label))
    return [labels[i % len(labels)] for i, labels in enumerate(by_equation.values())]
