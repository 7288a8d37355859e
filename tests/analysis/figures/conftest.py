from __future__ import annotations

import math

import pandas as pd
import pytest


@pytest.fixture
def cells():
    """``cells({(label, task): [accuracy of seed 0, of seed 1, ...]})``: scores; NaN diverged, None is not done yet."""

    def call(accuracies, ceiling=100.0):
        rows = []
        for (label, task), seeds in accuracies.items():
            for seed, accuracy in enumerate(seeds):
                row = {"label": label, "task": task, "seed": seed, "accuracy": accuracy, "ceiling": ceiling}
                row |= {"done": int(accuracy is not None), "expected": 1, "diverged": int(accuracy is not None and math.isnan(accuracy))}
                rows.append(row | {"budget_ratio": 1.36 if "!" in label else 1.0})
        return pd.DataFrame(rows).astype({"accuracy": float})

    return call


@pytest.fixture
def points():
    """``points(axes, size)``: the places of all markers of that size in the axes, in the order of drawing."""

    def call(axes, size):
        lines = [line for line in axes.lines if line.get_marker() != "None" and line.get_markersize() == size]
        return [(float(x), float(y)) for line in lines for x, y in zip(line.get_xdata(), line.get_ydata())]

    return call


@pytest.fixture
def words():
    """``words(figure)``: all text in a figure but that of its ticks, joined."""

    def call(figure):
        texts = [figure.get_suptitle(), figure.get_supxlabel()]
        texts += [text.get_text() for axes in figure.axes for text in axes.texts]
        return " ".join(" ".join(texts).split())

    return call
