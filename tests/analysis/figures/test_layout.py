from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from madbench.analysis.figures.budget import budget_figure
from madbench.analysis.figures.difficulty import difficulty_figure
from madbench.analysis.figures.effects import effects_figure
from madbench.analysis.figures.layout import Legend, Panels, new_figure, text_width
from madbench.analysis.figures.learning import learning_figure
from madbench.analysis.figures.loss_curves import loss_curve_figure
from madbench.analysis.figures.mad import mad_figure
from madbench.analysis.figures.style import style
from madbench.analysis.scores import MAD_AVERAGE
from madbench.labels import expand
from madbench.tasks import TASK_NAMES

PROTOCOL = "Profile full: d_model 128, 2 blocks, 2 heads, float32. Fidelity corrected; budget counting strict."
LABELS = {
    "one label": ["S"],
    "three labels": ["S", "R-cg-q-12o", "G-pcg-q-12o"],
    "long labels": [f"family:{label}-{'with-a-really-long-name-' * 2}" for label in ("S", "R", "G")],
    "33 labels": expand(["@table1"]),
}
VARIABLES = {"vocab_size": [256, 512, 1024, 8192], "num_train_examples": [800, 1600, 3200, 6400, 12800]}


def mad(labels, tasks):
    tasks = [*tasks, MAD_AVERAGE] if len(tasks) == 6 else tasks
    rows = [
        {"task": task, "label": label, "mark": mark, "accuracy": 3.0 * i, "low": 1.0, "high": 90.0, "n": 2}
        for task in tasks
        for i, label in enumerate(labels)
        for mark in ("mean", "seed", "published")
    ]
    references = {"ceiling": 95.0, "chance": 9.0}
    rows += [{"task": t, "label": "", "mark": mark, "accuracy": at} for t in tasks for mark, at in references.items()]
    frame = pd.DataFrame(rows).assign(protocol=PROTOCOL, seed=0.0, state="").fillna({"n": 0})
    frame.loc[frame.label == labels[-1], ["n", "state", "accuracy"]] = [0, "1/2 diverged", math.nan]
    return mad_figure(frame)


def learning(labels, tasks, y="accuracy"):
    rows = [
        {"task": task, "label": label, "seed": 0, "step": step, "accuracy": float(i), "loss": 1e-3 * i + 0.01}
        for task in tasks
        for i, label in enumerate(labels)
        for step in (1000, 20000)
    ]
    return learning_figure(pd.DataFrame(rows).assign(protocol=PROTOCOL, status="finished", split="validation"), y)


def learning_losses(labels, tasks):
    return learning(labels, tasks, "loss")


def loss(labels, tasks):
    rows = [
        {"id": label, "label": label, "evaluation": n, "train_loss": 2 + i / 1e3 + 1 / n, "step": n, "tokens": 1e5 * n}
        for i, label in enumerate(labels)
        for n in range(1, 9)
    ]
    frame = pd.DataFrame(rows).assign(protocol=PROTOCOL, status="finished", seed=0)
    return loss_curve_figure(frame.assign(validation_loss=frame.train_loss), "tokens")


def effects(labels, tasks):
    quantities = [*tasks, MAD_AVERAGE, "loss_l5"] if len(tasks) == 6 else tasks
    rows = [
        {"row": f"base: {label} against S", "quantity": quantity, "kind": kind, "difference": 1.5 * i, "p_holm": 0.01}
        for quantity in quantities
        for i, label in enumerate(labels)
        for kind in ("effect", "pair", *["interaction"] * (i == 0))
    ]
    return effects_figure(pd.DataFrame(rows).assign(protocol=PROTOCOL, low=-20.0, high=30.0, pairs=2, seeds=3))


def budget(labels, tasks):
    quantities = [MAD_AVERAGE, "loss_l5"] if len(tasks) == 6 else tasks
    rng = np.random.default_rng(0)
    rows = [
        {"quantity": quantity, "label": label, "budget_ratio": 1 + rng.random() / 50, "mean": 2 + rng.random() / 100}
        for quantity in quantities
        for label in labels
    ]
    frame = pd.DataFrame(rows).assign(protocol=PROTOCOL, mixer_parameters=65536.0, n=2)
    return budget_figure(frame.assign(low=frame["mean"] - 0.001, high=frame["mean"] + 0.001))


def difficulty(labels, tasks):
    rows = [
        {"task": task, "variable": variable, "value": float(value), "label": label, "accuracy": 2.0 * i}
        for task in tasks
        for variable in (VARIABLES if task != "memorization" else ["vocab_size"])
        for value in VARIABLES[variable]
        for i, label in enumerate(labels)
    ]
    return difficulty_figure(pd.DataFrame(rows).assign(protocol=PROTOCOL, low=0.0, high=50.0, ceiling=90.0, n=2))


KINDS = (mad, learning, learning_losses, loss, effects, budget, difficulty)


@pytest.fixture
def boxes(monkeypatch):
    """``boxes(figure)``: where each text is that is drawn, in pixels."""
    draw = Text.draw
    drawn = []
    monkeypatch.setattr(Text, "draw", lambda text, renderer: (drawn.append(text), draw(text, renderer)))

    def call(figure):
        drawn.clear()
        figure.draw_without_rendering()
        texts = [text for text in drawn if text.get_text().strip()]
        return [(text, Text.get_window_extent(text)) for text in texts]  # of an annotation without its arrow

    return call


def overlap(one: Bbox, other: Bbox) -> bool:
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.width, shared.height) > 1


CASES = [
    pytest.param(kind, labels, tasks, id=f"{kind.__name__}, {labels}, {tasks}", marks=[pytest.mark.slow] * is_slow)
    for kind in KINDS
    for labels, tasks, is_slow in (
        ("one label", 1, False),
        ("three labels", 6, True),
        ("long labels", 1, False),
        ("long labels", 6, True),
        ("33 labels", 1, True),
        ("33 labels", 6, kind is learning_losses),
    )
]


@pytest.mark.parametrize("kind, labels, tasks", CASES)
def test_no_text_covers_another_or_a_panel_or_leaves_the_figure(kind, labels, tasks, boxes):
    figure = kind(LABELS[labels], TASK_NAMES[:tasks])
    found = boxes(figure)
    assert len(found) > 5
    width, height = figure.bbox.size
    for text, box in found:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (text, box)
        outside = [axes for axes in figure.axes if axes is not text.axes]
        assert not any(overlap(box, axes.bbox) for axes in outside), text
    for (one, box), (other, other_box) in itertools.combinations(found, 2):
        assert not overlap(box, other_box), (one, other)


def test_panels_keep_their_size_however_long_their_names_are():
    sizes = []
    for names in (0.1, 5.0):
        with style():
            panels = Panels([2, 1], 1.5, 1.0, names)
            legend = Legend({"x": {"color": "k", "linewidth": 1}})
            figure, drawn = new_figure("some", "A title", [PROTOCOL], panels, legend)
        sizes.append([axes.bbox.size / figure.dpi for axes in drawn])
        assert figure.get_figwidth() > names + 2 * 1.5
    assert np.allclose(sizes, [[1.5, 1.0]] * 3)


def test_a_width_is_that_of_the_text_in_a_picture(boxes):
    with style():
        figure, _ = new_figure("some", "S-pcg-q-12o", [], Panels([1], 1.0, 1.0, 0.1), Legend({}))
    ((_, box),) = [pair for pair in boxes(figure) if pair[0].get_text() == "S-pcg-q-12o"]
    assert box.width / figure.dpi == pytest.approx(text_width("S-pcg-q-12o", 12, "bold"), rel=0.05)
