"""Frames for every figure with the given labels. Seeds differ, and some runs diverged or are missing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from drawings import FIGURES
from madbench.labels import expand
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS

PROTOCOL = "Profile full: d_model 128, 2 blocks, 2 heads, float32. Fidelity corrected; budget strict."
TABLE = expand(["@table1"])
LABELS = {
    "one label": ["S"],
    "three labels": ["S", "R-cg-q-12o", "G-pcg-q-12o"],
    "long labels": [f"family:{label}-{'with-a-really-long-name-' * 2}" for label in ("S", "R", "G")],
    "33 labels": TABLE,
}
VARIABLES = {"vocab_size": (256, 512, 1024, 8192), "num_train_examples": (800, 1600, 3200, 6400, 12800)}


def frame_of(name: str, rows: list[dict]) -> pd.DataFrame:
    """A frame of ``rows`` with the columns of the figure. Missing values are NaN, 0 or empty."""
    columns = FIGURES[name].columns
    empty = {column: {str: "", int: 0}.get(kind, math.nan) for column, kind in columns.items()}
    return pd.DataFrame([empty | {"protocol": PROTOCOL} | row for row in rows])[list(columns)].astype(columns)


def skill(labels):
    rng = np.random.default_rng(len(labels))
    return {label: rng.uniform(0.2, 0.97) for label in labels}


def scores(labels, tasks, seeds=3):
    rng, of_label = np.random.default_rng(0), skill(labels)
    rows = []
    for i, task in enumerate([*tasks, MAD_AVERAGE] if len(tasks) == len(MAD_TASKS) else tasks):
        rows += [{"task": task, "mark": "ceiling", "accuracy": 95.0}, {"task": task, "mark": "chance", "accuracy": 9.0}]
        for label in labels:
            values = 100 * of_label[label] ** (0.5 + i / 3) + 4 * rng.normal(size=seeds)
            state = "1/3 diverged" if label == labels[-1] and i == 1 else ""
            state = "not run" if label == labels[len(labels) // 2] and i == 2 else state
            half = 4.0 if seeds > 1 else math.nan
            mean = {"accuracy": math.nan} if state else {"accuracy": values.mean(), "n": seeds}
            ends = {} if state else {"low": values.mean() - half, "high": values.mean() + half}
            rows.append({"task": task, "label": label, "mark": "mean", "state": state} | mean | ends)
            rows += [
                {"task": task, "label": label, "mark": "seed", "seed": seed, "accuracy": value}
                for seed, value in enumerate(values if state != "not run" else [])
            ]
            rows.append({"task": task, "label": label, "mark": "published", "accuracy": 100 * rng.random()})
    return frame_of("scores", rows)


def learning(labels, tasks, seeds=2):
    rng, of_label = np.random.default_rng(0), skill(labels)
    rows = []
    for i, task in enumerate(tasks):
        for label in labels:
            for seed in range(seeds):
                is_diverged = seed == 1 and label == labels[-1]
                run = {"task": task, "label": label, "seed": seed, "id": f"{task}{label}{seed}", "split": "validation"}
                run["status"] = "diverged" if is_diverged else "finished"
                late = 6 + 2 * rng.random()
                for epoch in range(1, 7 if is_diverged else 13 if rng.random() < 0.2 else 21):
                    accuracy = 100 * of_label[label] ** (0.5 + i / 3) / (1 + math.exp(late - epoch / 1.5))
                    numbers = {"accuracy": accuracy, "loss": 3 * math.exp(-accuracy / 30), "train_loss": 1.0}
                    rows.append(run | {"epoch": epoch, "step": 1000 * epoch} | numbers)
    return frame_of("learning", rows)


def loss(labels, tasks, seeds=2):
    rng, of_label = np.random.default_rng(0), skill(labels)
    rows = []
    for label in labels:
        for seed in range(seeds):
            is_diverged = seed == 1 and label == labels[-1]
            run = {"id": f"{label}{seed}", "label": label, "seed": seed, "protocol": "corpus shelf, profile gpt2"}
            run["status"] = "diverged" if is_diverged else "finished"
            for n in range(1, 15 if is_diverged else 41):
                value = 3.4 - 0.5 * of_label[label] + 5 * math.exp(-n / 3) + 0.5 / n
                place = {"evaluation": n, "step": 500 * n, "tokens": 500 * n * 491520, "seconds": 10.0 * n}
                losses = {"train_loss": value + 0.02 * rng.normal(), "validation_loss": value + 0.05}
                rows.append(run | place | losses)
    return frame_of("loss", rows)


def effects(labels, tasks):
    rng = np.random.default_rng(0)
    rows = []
    factors = [*(f"base: {label} vs. S" for label in labels), "conv: c", "R(2): 2o vs. 2"]
    for quantity in [*tasks, MAD_AVERAGE, LOSS] if len(tasks) == len(MAD_TASKS) else tasks:
        unit = 0.01 if quantity == LOSS else 1.0
        for name in factors:
            mean, half = 8 * rng.normal(), abs(10 * rng.normal())
            found = {"row": name, "quantity": quantity, "seeds": 3, "difference": unit * mean}
            ends = {"low": unit * (mean - half), "high": unit * (mean + half), "p_holm": 0.01 if half < mean else 0.5}
            rows.append({"kind": "effect", "pairs": 3} | found | (ends if rng.random() > 0.1 else {}))
            rows += [{"kind": "pair", "pairs": 1} | found | {"difference": unit * (mean + 3)} for _ in range(2)]
        if quantity != LOSS:
            ends = {"difference": 12.0, "low": 4.0, "high": 20.0, "p_holm": 0.01}
            rows.append({"kind": "interaction", "row": "R/S x c", "quantity": quantity, "pairs": 1} | ends)
    return frame_of("effects", rows)


def budget(labels, tasks, seed=0):
    rng, of_label = np.random.default_rng(seed), skill(labels)
    rows = []
    for quantity in [MAD_AVERAGE, LOSS] if len(tasks) == len(MAD_TASKS) else tasks:
        for label in labels:
            mean = 3.4 - 0.5 * of_label[label] if quantity == LOSS else 100 * of_label[label]
            half = 0.03 if quantity == LOSS else 4
            ratio = 1.36 + 0.01 * rng.random() if "!" in label else 1 - 0.012 * rng.random()
            costs = {"budget_ratio": ratio, "mixer_parameters": 65536 * ratio}
            ends = {"mean": mean, "low": mean - half, "high": mean + half, "n": 2}
            rows.append({"quantity": quantity, "label": label} | costs | ends)
    if len(labels) > 1:
        rows[-1] |= {"mean": math.nan, "low": math.nan, "high": math.nan, "n": 0}
    return frame_of("budget", rows)


def difficulty(labels, tasks, seeds=2):
    of_label = skill(labels)
    rows = []
    for i, task in enumerate(tasks):
        for variable in VARIABLES if task != "memorization" else ["vocab_size"]:
            for k, value in enumerate(VARIABLES[variable]):
                for label in labels:
                    mean, half = 100 * of_label[label] ** (0.4 + k / 3 + i / 6), 4 if seeds > 1 else math.nan
                    place = {"task": task, "variable": variable, "value": value, "label": label, "ceiling": 90.0}
                    ends = {"accuracy": mean, "low": mean - half, "high": mean + half, "n": seeds}
                    rows += [place | ends] * (label != "S" or k != 1 or i > 0 or len(labels) == 1)
    return frame_of("difficulty", rows)
