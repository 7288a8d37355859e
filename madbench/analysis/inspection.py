"""Measurements inside the mixers of a trained model: active sets, weights, gates, lag kernels, interaction matrices.

The measurements read a :class:`madbench.mixers.probe.Probe`, so they work for every family. A row of scores belongs to
one query and has one slot per token that it sees, indexed by lag. The active set of a row is the set of slots that the
activation does not set to zero. The first row sees only itself and is left out. Means are over the rows of all
examples, for each layer and head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from madbench.analysis.lag_kernels import kernel_rows
from madbench.errors import TrainingError
from madbench.mixers.probe import Probe
from madbench.mixers.traits import mixers_in

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

NEAR_ZERO, NEAR_ONE = 0.001, 0.9  # bounds of a coefficient (Coefficient Dynamics, sections 5 and D.2); at most 1
GATE_CLOSED, GATE_OPEN = 0.1, 0.9
NOISE = 0.01  # size of the added noise, relative to the root mean square of the input
BANDS = {"lag 0": (0, 1), "1": (1, 2), "2-7": (2, 8), "8-31": (8, 32), "32+": (32, None)}
MOST_PAIRS = 2**22  # the largest product of examples, rows and keys by default


@dataclass(frozen=True)
class Inspection:
    """The measurements of one model as tables, and its probes, from which figures are drawn."""

    tables: dict[str, list[dict[str, Any]]]
    """The tables by name. A table without rows is left out.

    - ``active``: one row per layer and head, with size and stability of the active sets;
    - ``weights``: one row per layer and head, with statistics of the mixing coefficients;
    - ``gates``: one row per layer and gate;
    - ``kernels``: one row per layer, mixing and head (:func:`madbench.analysis.lag_kernels.kernel_rows`);
    - ``matrices``: one row per layer, matrix and head.
    """
    probes: list[Probe]
    """The probes of all mixers that have a method ``probe``, in the order in which the mixers run."""
    layers: list[int]
    """The number of the layer of each probe, counted from 1 over all layers of the model."""


@torch.no_grad()
def inspect(model: nn.Module, inputs: Tensor) -> Inspection:
    """Measure the mixers of ``model``, which must be in eval mode, on a batch of inputs.

    ``inputs`` is a tensor (B, T) on the device of the model. Raises ``TrainingError`` if no mixer has a method
    ``probe``, or if all probes are empty.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    probes, layers = [], []
    numbers = {id(mixer): number for number, (_, mixer, _) in enumerate(mixers_in(model), start=1)}
    for count, (mixer, x) in enumerate(mixer_inputs(model, inputs), start=1):
        probe, number = mixer.probe(x), numbers.get(id(mixer), count)
        probes.append(probe)
        layers.append(number)
        active, with_noise = probe.active, None if probe.active is None else mixer.probe(_add_noise(x)).active
        rows_by_table = {
            "active": [] if active is None or with_noise is None else _active_rows(active, with_noise),
            "weights": [] if probe.weights is None else _weight_rows(probe.weights),
            "gates": _gate_rows(probe),
            "kernels": [
                {"kernel": name} | row for name in probe.kernels for row in kernel_rows(probe.kernels[name], x.shape[1])
            ],
            "matrices": _matrix_rows(probe),
        }
        for name, rows in rows_by_table.items():
            tables.setdefault(name, []).extend({"layer": number} | row for row in rows)
    tables = {name: rows for name, rows in tables.items() if rows}
    if not tables:
        raise TrainingError("the probes of its mixers are empty, so there is nothing to measure")
    return Inspection(tables, probes, layers)


def examples_for(length: int) -> int:
    """The default number of examples to measure if each has ``length`` tokens: 1 to 32, fewer for long examples."""
    return max(1, min(32, MOST_PAIRS // length**2))


def mixer_inputs(model: nn.Module, inputs: Tensor) -> list[tuple[Mixer, Tensor]]:
    """Run ``model`` on ``inputs``, a tensor (B, T). Return its mixers with a method ``probe`` and their inputs.

    The result has a pair (mixer, input of shape (B, T, D)) per call of a mixer, in the order of the calls. Raises
    ``TrainingError`` if no mixer has a method ``probe``.
    """
    mixers_and_inputs: list[tuple[Mixer, Tensor]] = []
    mixers = [module for module in model.modules() if hasattr(module, "probe")]
    if not mixers:
        raise TrainingError("its mixers have no 'probe', so there is nothing to inspect; see madbench.mixers.probe")
    handles = [
        m.register_forward_pre_hook(lambda mixer, args: mixers_and_inputs.append((mixer, args[0]))) for m in mixers
    ]
    try:
        model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return mixers_and_inputs


def _add_noise(x: Tensor) -> Tensor:
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    return x + NOISE * x.square().mean(-1, keepdim=True).sqrt() * noise


def _visible(rows: int, device: torch.device) -> Tensor:
    """The number of visible slots of each row except the first: 2 to ``rows``, as a tensor (rows - 1,)."""
    return torch.arange(2, rows + 1, device=device)


def _mean(values: Tensor) -> list[float]:
    """The mean of ``values``, a tensor (B, H, ...), for each of the H heads. NaN is ignored."""
    return values.double().nanmean(dim=[i for i in range(values.dim()) if i != 1]).tolist()


def _heads(columns: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    return [{"head": head, **dict(zip(columns, values))} for head, values in enumerate(zip(*columns.values()), start=1)]


def _active_rows(active: Tensor, active_with_noise: Tensor) -> list[dict[str, float]]:
    """Sizes and overlaps of active sets, with one row of a table per head.

    ``active`` is True for active slots, (B, H, rows, lags). ``active_with_noise`` is the same after noise of relative
    size ``NOISE`` is added to the input of the mixer. The overlap of sets A and B of two successive rows is |A and B| /
    |A or B|. All numbers are means over inputs and rows, without the first row.

    - ``share``, ``slots``: share and number of the visible slots that are active;
    - ``share_recent``, ``share_older``: the share among lags below 8, and among all other lags;
    - ``same_lags``: the overlap if slots with the same lag count as the same;
    - ``same_slots``: the overlap if slot l and slot l - 1 of the row before count as the same. Without mixing, both
      belong to one token;
    - ``chance``: the approximate overlap of independent random sets of these sizes;
    - ``flips``: the share of the slots whose activity differs between ``active`` and ``active_with_noise``.
    """
    visible = _visible(active.shape[-1], active.device)
    sizes = active.sum(-1).double()
    share = sizes[..., 1:] / visible
    columns = {"share": _mean(share), "slots": _mean(sizes[..., 1:])}
    newer, older = active[..., 1:, :], active[..., :-1, :]
    recent = torch.arange(active.shape[-1], device=active.device) < 8
    lower = torch.ones(active.shape[-2:], dtype=torch.bool, device=active.device).tril()
    is_visible, was_visible = lower[1:], lower[:-1]
    for name, of_band in {"share_recent": is_visible & recent, "share_older": is_visible & ~recent}.items():
        columns[name] = _mean((newer & of_band).sum(-1) / of_band.sum(-1))  # NaN if a row sees no such slot
    n, a, b = visible - 1, (newer & was_visible).sum(-1).double(), older.sum(-1).double()
    columns["same_lags"] = _mean(_overlap(newer & was_visible, older))
    columns["same_slots"] = _mean(_overlap(newer[..., 1:], older[..., :-1]))
    expected_both = a * b / n
    columns["chance"] = _mean(expected_both / (a + b - expected_both))
    columns["flips"] = _mean((active ^ active_with_noise)[..., 1:, :].sum(-1) / visible)
    return _heads(columns)


def _overlap(mask: Tensor, other: Tensor) -> Tensor:
    return (mask & other).sum(-1).double() / (mask | other).sum(-1)


def _weight_rows(weights: Tensor) -> list[dict[str, float]]:
    """Statistics of the mixing coefficients w, (B, H, rows, lags), with one row of a table per head.

    - ``keys``: (sum |w|)^2 / sum w^2, the effective number of keys of a row;
    - ``near_zero``, ``near_one``, ``negative``: the shares of the visible coefficients with |w| of at most
      ``NEAR_ZERO``, with w from ``NEAR_ONE`` to 1, and with w below 0;
    - the columns of :data:`BANDS`: the share of sum |w| in each range of lags;
    - ``same_lags``, ``same_tokens``: the overlap of two successive rows, whose |w| are divided by their sum. It is the
      sum of the smaller one of the two values at each lag or, for ``same_tokens``, at each token.

    All numbers are means over inputs and rows, without the first row.
    """
    size = weights[..., 1:, :].double().abs()
    visible = _visible(weights.shape[-1], weights.device)
    is_visible = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()[1:]
    total = size.sum(-1)
    columns = {
        "keys": _mean(total**2 / size.square().sum(-1)),
        "near_zero": _mean(((size <= NEAR_ZERO) & is_visible).sum(-1) / visible),
        "near_one": _mean(((weights[..., 1:, :] >= NEAR_ONE) & (weights[..., 1:, :] <= 1)).sum(-1) / visible),
        "negative": _mean((weights[..., 1:, :] < 0).sum(-1) / visible),
    }
    shares = size / total[..., None]
    for band, (first, end) in BANDS.items():
        columns[band] = _mean(shares[..., first:end].sum(-1))
    newer, older = shares[..., 1:, :], shares[..., :-1, :]
    columns["same_lags"] = _mean(torch.minimum(newer, older).sum(-1))
    columns["same_tokens"] = _mean(torch.minimum(newer[..., 1:], older[..., :-1]).sum(-1))
    return _heads(columns)


def _gate_rows(probe: Probe) -> list[dict[str, Any]]:
    rows = []
    for name, values in probe.gates.items():
        values = values.double()
        columns = {"mean": values.mean(), "sd": values.std(), "over_time": values.std(dim=1).mean()}
        columns |= {"closed": (values < GATE_CLOSED).double().mean(), "open": (values > GATE_OPEN).double().mean()}
        rows.append({"gate": name} | {key: float(value) for key, value in columns.items()})
    return rows


def _matrix_rows(probe: Probe) -> list[dict[str, Any]]:
    """Statistics of the interaction matrices of a probe, with one row of a table per matrix and head.

    - ``norm``: the Frobenius norm;
    - ``rank``: (sum of singular values)^2 / (sum of their squares), the effective rank;
    - ``symmetric``, ``diagonal``: the shares of the sum of squares in the symmetric part and on the diagonal.
    """
    rows = []
    for name, matrices in probe.matrices.items():
        for head, matrix in enumerate(matrices.detach().double().cpu(), start=1):
            values, mass = torch.linalg.svdvals(matrix), matrix.square().sum().clamp(min=1e-30)
            measured = {
                "norm": mass.sqrt(),
                "rank": values.sum() ** 2 / mass,
                "symmetric": ((matrix + matrix.T) / 2).square().sum() / mass,
                "diagonal": matrix.diagonal().square().sum() / mass,
            }
            rows.append({"matrix": name, "head": head} | {key: float(value) for key, value in measured.items()})
    return rows


def means_by_lag(probe: Probe) -> dict[str, Tensor]:
    """Means of two quantities per head and lag, as tensors (H, L) on the CPU, by the name of the quantity.

    - ``active``: the share of rows in which the slot at this lag is active;
    - ``weights``: the absolute weight of the slot at this lag as a share of the row's sum of absolute weights.

    Means are over all inputs and over all rows that see a token at this lag. A quantity that the probe lacks is left
    out.
    """
    by_name = {}
    if probe.active is not None:
        length = probe.active.shape[-1]
        rows = torch.arange(length, 0, -1, device=probe.active.device)
        by_name["active"] = (probe.active.double().mean(0).sum(-2) / rows).cpu()
    if probe.weights is not None:
        size = probe.weights.double().abs()
        shares = size / size.sum(-1, keepdim=True).clamp(min=1e-30)
        rows = torch.arange(size.shape[-1], 0, -1, device=size.device)
        by_name["weights"] = (shares.mean(0).sum(-2) / rows).cpu()
    return by_name
