"""Checks that the Triton kernels and torch operators agree on this GPU, before path ``auto`` uses the kernels.

Each compiled program is checked once. An assembler can generate wrong machine code for a valid kernel: ptxas of CUDA
12.8, which Triton ships, generates code that reads uninitialized registers. Gradients then have errors as large as
themselves, but the loss of a run still falls.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from madbench.mixers.srg.allocation import SrgAllocation
from madbench.mixers.srg.kernels import fused

BOUND = 3e-2  # largest relative error of an output or a gradient, as a norm; rounding to bfloat16 gives 3e-3
LONG = (272, 259)  # lengths in tokens, a multiple of 16 and another; longer inputs run more tiles of the same program
LEAST = 1e-2  # errors of small tensors are relative to this share of the largest norm instead of their own


class Program(NamedTuple):
    """The properties for which Triton compiles the kernels. Mixers with equal programs run the same machine code."""

    base: str
    by_lag: bool
    has_mixing: tuple[bool, bool]
    widths: tuple[int, int, int]  # head widths of QK and VO, and the rank of the mixings
    dtype: torch.dtype
    heads: int
    length: int

    @classmethod
    def from_allocation(cls, allocation: SrgAllocation, dtype: torch.dtype, length: int) -> Program:
        """The program that a mixer of this allocation runs for inputs of ``length`` tokens.

        ``heads`` and ``length`` of the result are small values that Triton compiles to the same code: it distinguishes
        1, multiples of 16 and other numbers, and kernels use tiles of 16 to 64 rows. A length of 1 becomes 13, because
        the gradients of the scores of a single token are zero but for rounding errors.
        """
        label, heads = allocation.label, allocation.size.n_head
        mixings = (label.mix1, label.mix2)
        widths = (allocation.qk_width, allocation.vo_width, allocation.r if any(mixings) else 1)
        few = 1 if heads == 1 else 2 if heads % 16 else 16
        tile = max(16, 1 << (length - 1).bit_length())
        whole, odd = (tile, tile - 3) if tile <= 64 else LONG
        return cls(label.base, label.layout == "lag", mixings, widths, dtype, few, odd if length % 16 else whole)


@functools.cache
def problem(program: Program, device: torch.device) -> str:
    """The reason why path ``auto`` must not use the kernels of this program on this device. Empty if it may.

    The reason is an error that the kernels raise, or wrong numbers.
    """
    try:
        found = largest_error(program, device)
    except Exception as error:  # a compiler, an assembler or a driver may raise anything
        return f"the kernels fail here ({type(error).__name__}: {str(error).strip().partition(chr(10))[0]})"
    if found <= BOUND:
        return ""
    return f"the kernels compute wrong numbers here: relative error {found:.1e}, but rounding gives at most {BOUND:.0e}"


def largest_error(program: Program, device: torch.device) -> float:
    """The largest relative error of the kernels' output and of its gradients, for random inputs.

    Kernels are compared with torch operators in float64. An error is the norm of the difference of two tensors, divided
    by the norm of the exact tensor, or by ``LEAST`` of the largest norm of all exact tensors if this is larger.
    """
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        inputs = [x if x is None else x.requires_grad_() for x in _draw(program, device)]
        exact_inputs = [x if x is None else x.detach().double().requires_grad_() for x in inputs]
        o, *_ = fused.attention(program.base, program.by_lag, *inputs)
        exact = fused.plain_attention(program.base, program.by_lag, *cast("list[Any]", exact_inputs))
        of_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(o)
        pairs = [(o, exact)]
        leaves, exact_leaves = ([x for x in each if x is not None] for each in (inputs, exact_inputs))
        pairs += zip(torch.autograd.grad(o, leaves, of_o), torch.autograd.grad(exact, exact_leaves, of_o.double()))
        norms = torch.stack([expected.norm() for _, expected in pairs]).detach()
        errors = torch.stack([(found.double() - expected).norm() for found, expected in pairs]).detach()
        return float((errors / norms.clamp(min=LEAST * float(norms.max()))).max())


def _draw(program: Program, device: torch.device) -> list[Tensor | None]:
    """Random inputs of :func:`madbench.mixers.srg.kernels.fused.attention`: q, k, v, and s, A, B, p of each mixing.

    The four tensors of an absent mixing are None. The state of torch's global generator is not changed.
    """
    k_width, v_width, rank = program.widths
    heads, length, generator = program.heads, program.length, torch.Generator().manual_seed(0)
    query_heads = 2 * heads if program.base == "G" else heads

    def randn(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(device)

    q, k = randn(1, query_heads, length, k_width) / k_width**0.5, randn(1, query_heads, length, k_width)
    tensors: list[Tensor | None] = [x.to(program.dtype) for x in (q, k, randn(1, heads, length, v_width))]
    for has_mixing, count in zip(program.has_mixing, (query_heads, heads)):
        tables = ((count, length, rank), (count, length, rank), (count, length))
        drawn = (randn(1, count, length, rank).sigmoid(), *(0.1 * randn(*size) for size in tables))
        tensors += drawn if has_mixing else [None] * 4
    return tensors
