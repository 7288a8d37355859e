"""Proposition 2.6 (ii) with LoRA: adapters of a frozen model, on Q and K or on V and O, learn a changed task.

The frozen models are runs of the image task ``digits``. The task is changed in one of two ways: every image is rotated
by a quarter turn, or every class is renamed. The first change requires other attention weights, the second another
readout. Low-rank adapters, which are zero at the start, are added to the two matrices of one side (Q and K, or V and O)
of every mixer. If no rank of a label is reduced, the adapters of both sides have the same number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from madbench.analysis.inference import LEVEL, Sample, Scale, difference
from madbench.analysis.marked_text import with_minus
from madbench.analysis.rendering import Listing
from madbench.labels import expand
from madbench.mixers.ops.threads import torch_threads
from madbench.mixers.traits import mixers_in
from madbench.papers.making import CONTRADICTED, ItemResult, Measure, Request, grid_of_one_task, require_results
from madbench.papers.quantities import MeasuredQuantity, Values
from madbench.rows import Grid
from madbench.store.runs import Store
from madbench.suites.signals.suite import SIGNALS, setting_of
from madbench.tasks.signals.digits import Digits
from madbench.training.checkpoints import load_model

if TYPE_CHECKING:
    from madbench.analysis.scores import Results
    from madbench.jobs import Job

TASK = "digits"
SIDES = {"V and O": ("v", "o"), "Q and K": ("q", "k")}
"""The names of the linear maps of a side that get adapters. The paper expects the first side to be more accurate."""
CHANGES = ("turned images", "renamed classes")
RANKS = (2,)
STEPS, BATCH, RATE = 250, 32, 3e-3
SUPPORTED, UNDECIDED, OPEN = "supported", "not decided", "not enough data"
ADAPTED = MeasuredQuantity(
    "adaptations", {"ranks": list(RANKS), "steps": STEPS, "batch": BATCH, "rate": RATE, "changes": list(CHANGES)}
)
"""The stored measurement of a run: the accuracies on both changed tasks with adapters of each side."""


class LowRank(nn.Module):
    """A low-rank adapter that maps a frozen weight W (out, in) to W + B A.

    A (rank, in) starts from N(0, 1 / in), and B (out, rank) from zero.
    """

    def __init__(self, weight: Tensor, rank: int):
        super().__init__()
        outputs, inputs = weight.shape
        self.down = nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Map the frozen weight (out, in) to the adapted weight (out, in)."""
        return weight + self.up @ self.down


@dataclass(frozen=True)
class AdapterAccuracy:
    """The accuracy of one run on a changed task, before and after training adapters of one side and rank."""

    label: str
    change: str
    side: str
    rank: int
    seed: int
    before: float
    """Accuracy of the frozen model without adapters, in percent."""
    after: float
    """Accuracy with trained adapters, in percent."""
    parameters: int
    """Number of parameters of the adapters."""


def attach_adapters(model: nn.Module, names: Sequence[str], rank: int) -> list[nn.Parameter]:
    """Freeze a model, and add adapters of rank ``rank`` to the linear maps ``names`` of each of its mixers.

    Return the parameters of the adapters.
    """
    model.requires_grad_(False)
    for _, mixer, _ in mixers_in(model):
        for name in names:
            linear = getattr(mixer, name)
            parametrize.register_parametrization(linear, "weight", LowRank(linear.weight, rank))
    adapters = [part for part in model.modules() if isinstance(part, LowRank)]
    return [
        cast(nn.Parameter, parameter.requires_grad_()) for adapter in adapters for parameter in adapter.parameters()
    ]


def change_examples(change: str, x: Tensor, classes: Tensor, patch: int) -> tuple[Tensor, Tensor]:
    """Return the images x (N, T, C), as T patches, and their classes (N,) after ``change``, one of :data:`CHANGES`.

    Images are rotated by a quarter turn, or each class is renamed to the next. ``patch`` is the width of a square patch
    in pixels.
    """
    if change == "renamed classes":
        return x, (classes + 1) % 10
    across = math.isqrt(x.shape[1])
    images = x.view(-1, across, across, patch, patch).transpose(2, 3).reshape(len(x), across * patch, -1)
    images = images.rot90(1, (1, 2))
    return images.reshape(-1, across, patch, across, patch).transpose(2, 3).reshape(x.shape), classes


def adapt(model: nn.Module, parameters: Sequence[nn.Parameter], x: Tensor, classes: Tensor, seed: int) -> None:
    """Train only ``parameters`` of a model for ``STEPS`` steps, with AdamW and a cosine schedule to zero.

    Batches are drawn from x and ``classes`` by ``seed``, with replacement.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.5 * RATE * (1 + math.cos(math.pi * step / STEPS))
        batch = torch.randint(len(x), (BATCH,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), classes[batch]).backward()
        optimizer.step()


@torch.inference_mode()
def accuracy(model: nn.Module, x: Tensor, classes: Tensor) -> float:
    """The accuracy of the model in percent, for inputs ``x`` and their true classes."""
    return 100 * float((model(x).argmax(-1) == classes).double().mean())


def changed_data(setting: Digits, split: Literal["train", "test"], seed: int, change: str) -> tuple[Tensor, Tensor]:
    """The inputs and classes of a split of the image task ``setting`` after ``change``, one of :data:`CHANGES`."""
    x, classes = map(torch.from_numpy, setting.data(split, seed))
    return change_examples(change, x, classes, setting.patch)


def adaptations(path: Any) -> Iterator[AdapterAccuracy]:
    """Train adapters of the model whose weights are at ``path``, and yield their accuracies.

    There is one result for each change of the task, each side of a mixer and each rank. Each starts from the same
    frozen model.
    """
    for change in CHANGES:
        for side, names in SIDES.items():
            for rank in RANKS:
                model, job = load_model(path)
                setting, seed = setting_of(job), job.derived_seed("data")
                assert isinstance(setting, Digits)  # of TASK
                train, test = (changed_data(setting, split, seed, change) for split in ("train", "test"))
                before = accuracy(model, *test)
                with torch.random.fork_rng():
                    torch.manual_seed(job.derived_seed("init"))
                    parameters = attach_adapters(model, names, rank)
                adapt(model, parameters, *train, job.seed)
                count = sum(parameter.numel() for parameter in parameters)
                yield AdapterAccuracy(job.label, change, side, rank, job.seed, before, accuracy(model, *test), count)


def _measure(weights: Path) -> Values:
    rows = list(adaptations(weights))
    values = {f"{row.change}, {row.side}, rank {row.rank}": row.after for row in rows}
    return values, {"adapted": [asdict(row) for row in rows]}


class AdaptationMeasure(Measure):
    """A measure that trains models of the image task, then adapters of both sides, and compares their accuracies."""

    def quantity(self, request: Request) -> MeasuredQuantity:
        return ADAPTED

    def plan(self, request: Request) -> Grid:
        return grid_of_one_task(request, TASK, expand(request.labels or request.item.labels))

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        trained = require_results(results)
        store = Store(trained.store.root)
        rows: list[AdapterAccuracy] = []
        jobs: list[Job] = [job for row in trained.rows_of(SIGNALS) for job in row.jobs]
        with torch_threads(1):  # more threads are slower at these sizes
            for job in jobs:
                rows += (AdapterAccuracy(**row) for row in ADAPTED.of_run(store, job, _measure).details["adapted"])
        verdicts, remarks = judge_sides(rows)
        table = _table(rows)
        return ItemResult([table], verdicts, {"cells": table.json_rows()}, (), remarks)


def judge_sides(rows: Sequence[AdapterAccuracy]) -> tuple[dict[str, str], dict[str, str]]:
    """Test for each label, change and rank whether adapters of V and O are more accurate than those of Q and K.

    Return the verdicts and the numbers behind them. The keys of both are texts that name the label, change and rank.
    """
    better, worse = SIDES
    verdicts, remarks = {}, {}
    for label, change, rank in dict.fromkeys((row.label, row.change, row.rank) for row in rows):
        of_case = [row for row in rows if (row.label, row.change, row.rank) == (label, change, rank)]
        high, low = (_sample([row.after for row in of_case if row.side == side]) for side in (better, worse))
        gain = difference(high, low)
        subject = f"{label}, {change}, rank {rank}"
        if gain.p <= LEVEL:
            verdicts[subject] = SUPPORTED if gain.estimate > 0 else CONTRADICTED
        else:
            verdicts[subject] = OPEN if math.isnan(gain.p) else UNDECIDED
        p = gain.reason or f"p {gain.p:.2g}"
        remarks[subject] = with_minus(f"{gain.estimate:+.1f} points of accuracy by {better}, {p}, {gain.n} seeds")
    return verdicts, remarks


def _sample(values: Sequence[float]) -> Sample:
    return Sample(np.array(values), Scale(chance=10.0, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1))


def _table(rows: Sequence[AdapterAccuracy]) -> Listing:
    lines, cells = [], []
    for label, change, side, rank in dict.fromkeys((row.label, row.change, row.side, row.rank) for row in rows):
        of_case = [row for row in rows if (row.label, row.change, row.side, row.rank) == (label, change, side, rank)]
        before, after = (float(np.mean([getattr(row, name) for row in of_case])) for name in ("before", "after"))
        cell = {"label": label, "change": change, "side": side, "rank": rank, "parameters": of_case[0].parameters}
        cells.append(cell | {"before": before, "after": after, "n": len(of_case)})
        lines.append([label, change, side, str(rank), str(of_case[0].parameters), f"{before:.1f}", f"{after:.1f}"])
    headings = ["Label", "Change", "Adapters of", "Rank", "Parameters", "Frozen", "Adapted"]
    caption = (
        "Accuracy on changed digits in percent, mean over seeds: with the frozen model, and after training adapters."
    )
    return Listing(cells, headings, lines, cells, caption, "", "tab:adaptation")
