"""The counted and the measured costs of labels, each with its ratio to the first label.

All labels are timed in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from madbench.bench.layers import Layers
from madbench.bench.mixer import InputShape, check_error, forward_of, pass_of
from madbench.bench.parts import BenchColumn, BenchPart, BenchRow, BenchSetup, Curve, RatioColumn
from madbench.bench.timing import MIB, Timing, kept_bytes, reason_unmeasured, time_in_turns
from madbench.mixers.checks.residuals import difference
from madbench.mixers.costs import count_costs
from madbench.models.blocks import autocast
from madbench.models.shapes import BlocksConfig
from madbench.suites import main_suite

NEW_TOKENS = 16
"""The number of tokens at the end of the input that are decoded one by one."""
COSTS = ("parameters", "flops_per_token", "state", "step_ms", "prefill_ms", "token_ms", "kept_mib")
"""The costs that have a ratio to the first label."""


def _shape(setup: BenchSetup) -> tuple[InputShape, int]:
    """The shape of the input, and the number of heads.

    Sizes that ``setup`` does not give have defaults. The number of heads and the default width are those of the
    profile.
    """
    model = main_suite().Profile.load(setup.profile).model_config()
    assert isinstance(model, BlocksConfig)
    length = setup.lengths[0] if setup.lengths else 256 if setup.is_cpu else 1024
    return InputShape(setup.batch or (8 if setup.is_cpu else 32), length, setup.d_model or model.d_model), model.n_head


def measure_costs(setup: BenchSetup) -> Iterator[BenchRow]:
    """Measure the mean costs of a layer's mixer. One row per label, in the order of ``setup.labels``.

    A row has the costs ``COSTS``, each with a ratio to the first label that could be measured, or an ``error``.
    """
    shape, n_head = _shape(setup)
    torch.manual_seed(0)
    x = torch.randn(shape.batch, shape.length, shape.d_model, device=setup.device, requires_grad=True)
    layers_by_label: dict[str, Layers] = {}
    problems: dict[str, str] = {}
    cases: dict[tuple[str, str], Callable[[], Any]] = {}
    for label in dict.fromkeys(setup.labels):
        try:
            layers = Layers(label, shape.d_model, shape.length, n_head=n_head).to(setup.device)
            passes = {"step": pass_of(layers, x, setup, backward=True)}
            passes |= _decoding(layers.eval(), x.detach(), setup) if layers.decodes else {}
        except Exception as error:  # many kinds of errors: no ranks fit, or a kernel fails
            problems[label] = reason_unmeasured(error)
            continue
        layers_by_label[label] = layers
        cases |= {(label, what): run for what, run in passes.items()}
    times = time_in_turns(cases, setup.limits, setup.device)
    rows = []
    for label in dict.fromkeys(setup.labels):
        row: dict[str, Any] = {"label": label, "length": shape.length, "batch": shape.batch, "d_model": shape.d_model}
        own_times = {what: time for (name, what), time in times.items() if name == label}
        failed = problems.get(label) or next((time for time in own_times.values() if isinstance(time, str)), "")
        rows.append(row | ({"error": failed} if failed else _costs(layers_by_label[label], own_times, x, setup)))
    first = next((row for row in rows if "error" not in row), {})
    for row in rows:
        shared = [name for name in COSTS if row.get(name) and first.get(name)]
        yield {**row, **{f"{name}_ratio": row[name] / first[name] for name in shared}}


def _decoding(layers: Layers, x: Tensor, setup: BenchSetup) -> dict[str, Callable[[], Any]]:
    """Two functions to be timed: ``prefill`` reads a prompt, and ``tokens`` decodes the ``NEW_TOKENS`` tokens after it.

    The input is the first sequence of ``x``. The result is empty if this sequence has at most ``NEW_TOKENS`` tokens, so
    that none is left for a prompt. Raises ``WrongResultError`` if the decoded rows differ from the forward pass.
    """
    one_sequence, end = x[:1], x.shape[1] - NEW_TOKENS
    if end < 1:
        return {}

    def prompt() -> tuple[Tensor, list[Any]]:
        with autocast(setup.device, setup.precision):
            return layers.prefill(one_sequence[:, :end])

    def following() -> Tensor:
        caches = read
        with autocast(setup.device, setup.precision):
            for token in one_sequence[:, end:].unbind(1):
                row, caches = layers.step(token, caches)
        return row

    _, read = prompt()
    with torch.no_grad(), autocast(setup.device, setup.precision):
        expected = layers(one_sequence)[:, -1]
    check_error(difference(following().float(), expected.float()), setup)
    return {"prefill": prompt, "tokens": following}


def _costs(layers: Layers, times: Mapping[str, Timing | str], x: Tensor, setup: BenchSetup) -> dict[str, Any]:
    """The mean costs of one mixer in ``layers``. Times are in milliseconds, kept memory in MiB.

    Parameters, FLOPs per token and the size of the state are counted. The other costs are measured. ``times`` has the
    time of each kind of pass, such as ``step``, through all mixers of ``layers``.
    """
    count, (batch, length, _) = len(layers.mixers), x.shape
    counted = count_costs(layers.allocation, length)
    row: dict[str, Any] = {"layers": count, "path": layers.resolve_path(batch, length)}
    row |= {"parameters": counted.parameters / count, "flops_per_token": counted.flops_per_token / count}
    row["state"] = None if counted.state is None else counted.state / count
    medians = {what: 1e3 * time.median / count for what, time in times.items() if isinstance(time, Timing)}
    row["step_ms"] = medians["step"]
    if "tokens" in medians:
        row |= {"prefill_ms": medians["prefill"], "token_ms": medians["tokens"] / NEW_TOKENS}
    row["kept_mib"] = kept_bytes(layers, forward_of(layers, x, setup), setup.device) / MIB / count
    return row


COSTS_PART = BenchPart(
    "costs",
    "counted and measured costs of labels",
    "Mean costs of a layer's mixer under the strict budget, with the ratio to the first label. FLOPs: forward, causal "
    "half, per token; state: numbers carried after the last token; milliseconds of forward and backward; of a prompt "
    f"of one sequence; of each of its last {NEW_TOKENS} tokens, decoded one by one; MiB kept for the backward pass. A "
    "hybrid has the mean over the layers of its pattern.",
    [
        BenchColumn("label", "Label"),
        BenchColumn("length", "T"),
        RatioColumn("parameters", "Parameters", "{:,.0f}"),
        RatioColumn("flops_per_token", "FLOPs", "{:,.0f}"),
        RatioColumn("state", "State", "{:,.0f}"),
        RatioColumn("step_ms", "Step ms", "{:.1f}"),
        RatioColumn("prefill_ms", "Prompt ms", "{:.1f}"),
        RatioColumn("token_ms", "Token ms", "{:.2f}"),
        RatioColumn("kept_mib", "Kept MiB", "{:.1f}"),
    ],
    Curve("label", "step_ms", "ms, forward and backward"),
    measure_costs,
    ("length",),
    lambda setup: 1,
)
