"""Principle 1: how the time of a forward pass grows with the length, with a recurrence and without one.

Layers and the two kernels of Figure 5 are timed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from madbench.labels import parse
from madbench.mixers import build
from madbench.mixers.recurrence import library
from madbench.papers.coefficients import Decision, Principle
from madbench.papers.coefficients.figures import point_decision
from madbench.papers.coefficients.verdicts import CONTRADICTED, OPEN, SUPPORTED, principle_table
from madbench.papers.complexity import REPEATS, pass_seconds, slope

FORMS = {
    "cd:id-sm-bd chunked": ("cd:id-sm-bd", "chunked", 1.0),
    "cd:id-sm-bd dense": ("cd:id-sm-bd", "dense", 2.0),
    "cd:exp-sum sdpa": ("cd:exp-sum", "sdpa", 2.0),
}
"""The layers that are timed: name to (label, path, expected exponent p of the time, which grows as T^p)."""
LENGTHS = {"cpu": (256, 512, 1024, 2048, 4096), "cuda": tuple(2**i for i in range(9, 17))}
WIDTH, HEADS = 64, 2
FLASH, SSD = "FlashAttention-2 kernel", "SSD kernel"
"""The names of the two kernels of Figure 5. They are timed alone, without a layer's projections.

The FlashAttention-2 kernel is PyTorch's. The SSD kernel is that of flash-linear-attention and needs a GPU.
"""
KERNELS = {FLASH: 2.0, SSD: 1.0}
"""The expected exponent p of each kernel's time, which grows as T^p for T tokens."""
NEAR = 0.35
"""The largest difference between a measured and an expected exponent at which they count as equal."""


def decide_time(principle: Principle, device: str, lengths: Sequence[int] | None = None) -> Decision:
    """Decide principle 1 by the time of forward passes of single layers, and of the kernels that can run here.

    There is one verdict per layer or kernel, on the exponent with which its time grows with the number of tokens.
    ``lengths`` are the numbers of tokens. None for the default numbers of the device.
    """
    lengths = lengths or LENGTHS[device.partition(":")[0]]
    verdicts, remarks, lines, cells, points = {}, {}, [], [], []
    for form, seconds, expected in _measure(lengths, device):
        exponent = slope(lengths, seconds)
        is_near = abs(exponent - expected) <= NEAR
        is_other = abs(exponent - (3 - expected)) <= NEAR
        verdicts[form] = SUPPORTED if is_near else CONTRADICTED if is_other else OPEN.replace("significant", "clear")
        remarks[form] = f"slope {exponent:.2f}, expected about {expected:.0f}"
        lines.append([form, *(f"{1000 * duration:.1f}" for duration in seconds), f"{exponent:.2f}"])
        for n, duration in zip(lengths, seconds):
            cells.append({"form": form, "length": n, "seconds": duration, "slope": exponent})
            points.append({"panel": "forward pass", "series": form, "label": form, "x": float(n), "y": 1000 * duration})
    caption = (
        f"Milliseconds of a forward pass at each length on {device}, the shortest of {REPEATS} (on a CPU"
        " the processor time of one thread); slope of log time on log T over the upper half."
    )
    table = principle_table(caption, ["Form", *map(str, lengths), "Slope"], lines, cells)
    protocol = f"One layer, d_model {WIDTH}, {HEADS} heads, batch 1, {device}; kernels are of attention alone."
    axes_of = {"forward pass": {"xscale": "log", "yscale": "log", "xlabel": "length T", "ylabel": "ms"}}
    return point_decision(principle, verdicts, table, points, protocol, axes_of, remarks, is_line=True)


def _measure(lengths: Sequence[int], device: str) -> Iterator[tuple[str, list[float], float]]:
    """Yield (name, seconds at each length, expected exponent) for each layer in ``FORMS`` and each available kernel."""
    for form, (label, path, expected) in FORMS.items():
        passes = {length: _layer_pass(label, path, length, device) for length in lengths}
        yield form, pass_seconds(f"{label} by path {path}", passes, device), expected
    for name, expected in KERNELS.items():
        if name == FLASH or has_ssd(device):
            passes = {length: kernel_runner(name, length, device) for length in lengths}
            yield name, pass_seconds(name, passes, device), expected


def _layer_pass(label: str, path: str, length: int, device: str) -> Callable[[], Tensor]:
    mixer = build(parse(label), WIDTH, length, n_head=HEADS, budget="paper", path=path).to(device).eval()
    return partial(mixer, torch.randn(1, length, WIDTH, device=device))


def has_ssd(device: str) -> bool:
    """True if the SSD kernel can run: on a GPU, with flash-linear-attention installed."""
    return device != "cpu" and importlib.util.find_spec("fla") is not None


def kernel_runner(name: str, length: int, device: str) -> Callable[[], Tensor]:
    """A function that runs a kernel, :data:`FLASH` or :data:`SSD`, once on random q, k and v of ``length`` tokens.

    There are 2 heads of width 32, and one sequence. The inputs are bfloat16 on a GPU and float32 on a CPU. SSD has one
    random decay per head and token.
    """
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v = torch.randn(3, 1, HEADS, length, WIDTH // HEADS, device=device, dtype=dtype)
    if name == FLASH:

        def attend() -> Tensor:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        return attend
    chunk_simple_gla = library.operator("chunk_simple_gla")  # needs a GPU
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in (q, k, v))
    log_decay = F.logsigmoid(torch.randn(1, length, HEADS, device=device))
    return lambda: chunk_simple_gla(q, k, v, g=log_decay)[0]
