"""The path ``fused``: the Triton kernels as torch operators, with gradients and autocast.

torch.compile keeps each operator as one call in its graph.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any, List, cast  # noqa: UP035 (torch 2.6 accepts only List[Tensor] as a type of an operator)

import torch
from torch import Tensor

from madbench.errors import TrainingError
from madbench.mixers.ops.derivatives import gradients
from madbench.mixers.srg import plain
from madbench.mixers.srg.allocation import SrgAllocation
from madbench.mixers.srg.parts import Tables

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LEAST_CAPABILITY = (8, 0)  # compute capability of the first CUDA devices with products of bfloat16
MOST_QK_WIDTH, MOST_VO_WIDTH, MOST_RANK = 128, 512, 32
LETTERS_ON_SCORES = "SRG12o"
"""The letters with ``acts_on_scores`` that the kernels compute. Labels with other such letters are refused."""
Mixing = tuple[Tensor, Tensor, Tensor, Tensor]
"""The strengths s and the tables A, B and p of a mixing matrix."""


def refusal(allocation: SrgAllocation) -> str:
    """The reason why the kernels cannot compute a mixer with this allocation. Empty if they can."""
    label = allocation.label
    if why := label.not_on_scores(LETTERS_ON_SCORES):
        return why
    if label.has_softmax and not label.has_mixing:
        return "softmax without mixing uses torch's own attention, path 'sdpa'"
    widths = (allocation.qk_width, allocation.vo_width, allocation.r if label.has_mixing else 1)
    if any(width > most for width, most in zip(widths, (MOST_QK_WIDTH, MOST_VO_WIDTH, MOST_RANK))):
        most = f"QK up to {MOST_QK_WIDTH}, VO up to {MOST_VO_WIDTH}, mixing rank up to {MOST_RANK}"
        return f"kernels support head widths of {most}, but {label} has {', '.join(map(str, widths))}"
    return "" if has_triton() else "it needs Triton, which comes with torch for CUDA"


def is_fast(device: torch.device, dtype: torch.dtype) -> bool:
    """True if the kernels are the fastest path: in 16-bit arithmetic, on a CUDA GPU of ``LEAST_CAPABILITY`` or more."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def arithmetic(x: Tensor) -> torch.dtype:
    """The dtype in which matrix products with ``x`` are computed: that of autocast if it is on, else that of ``x``."""
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


def attend(
    base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, s1: Tensor | None, s2: Tensor | None,
    mix1: Tables | None, mix2: Tables | None,
) -> Tensor:  # fmt: skip
    """Causal attention by Triton kernels: the output of the heads (B, H, T, V), in the dtype of the products.

    The bases S, R and G are supported. q and k are (B, H_q, T, K), and v is (B, H, T, V). For base S, q must already be
    scaled by 1/sqrt(K). R(1) mixes scores over slots: ``s1`` (B, H_q, T, R) are its strengths and ``mix1`` its tables.
    R(2) mixes activations: ``s2`` (B, H, T, R) are its strengths and ``mix2`` its tables. Both are None without this
    mixing. If ``by_lag`` is true, table rows are ordered by lag, otherwise by position.

    q, k and v are multiplied in autocast's dtype, or in that of q without autocast. Strengths and tables are converted
    to float32. Raises ``TrainingError`` on other devices than CUDA (unless Triton interprets the kernels), and for
    dtypes outside of ``DTYPES``.
    """
    dtype, length = arithmetic(q), q.shape[2]
    if q.device.type != "cuda" and not (q.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
        raise TrainingError(f"path 'fused' runs on a CUDA device, not on {q.device.type!r}; use 'auto'")
    if dtype not in DTYPES:
        raise TrainingError(f"path 'fused' computes in bfloat16, float16 or float32, not {dtype}; use 'auto'")

    def tensors(s: Tensor | None, tables: Tables | None) -> list[Tensor | None]:
        if s is None or tables is None:
            return [None] * 4
        return [tensor.float().contiguous() for tensor in (s, *(table[:, :length] for table in tables))]

    q, k, v = (tensor.to(dtype).contiguous() for tensor in (q, k, v))
    o: Tensor = attention(base, by_lag, q, k, v, *tensors(s1, mix1), *tensors(s2, mix2))[0]
    return o


@torch.library.custom_op("madbench::attention", mutates_args=())
def attention(
    base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, s1: Tensor | None, a1: Tensor | None, b1: Tensor | None,
    p1: Tensor | None, s2: Tensor | None, a2: Tensor | None, b2: Tensor | None, p2: Tensor | None,
) -> List[Tensor]:  # fmt: skip  # noqa: UP006
    """Return a list of the attention output o (B, H, T, V) and the tensors that the backward pass needs.

    These are the results of ``forward`` in the module of the layout: :mod:`madbench.mixers.srg.kernels.lag` if
    ``by_lag`` is true, otherwise :mod:`madbench.mixers.srg.kernels.position`. s, a, b and p are the strengths and
    tables of the mixing matrices R(1) and R(2). They are None without this mixing.
    """
    with torch.cuda.device_of(q):  # Triton launches on the current device
        o, saved = _layout(by_lag).forward(base, q, k, v, *_mixings(s1, a1, b1, p1, s2, a2, b2, p2))
    return [o, *saved]


@attention.register_fake
def _(base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, *mixings: Tensor | None) -> list[Tensor]:
    norm = v.new_empty(v.shape[:3], dtype=torch.float32)
    return [torch.empty_like(v), norm, *(torch.empty_like(s) for s in mixings[::4] if s is not None)]


@torch.library.custom_op("madbench::attention_backward", mutates_args=())
def attention_backward(
    base: str, by_lag: bool, do: Tensor, q: Tensor, k: Tensor, v: Tensor, s1: Tensor | None, a1: Tensor | None,
    b1: Tensor | None, p1: Tensor | None, s2: Tensor | None, a2: Tensor | None, b2: Tensor | None, p2: Tensor | None,
    o: Tensor, saved: List[Tensor],  # noqa: UP006
) -> List[Tensor]:  # fmt: skip  # noqa: UP006
    """Return a list of the gradients of q, k and v, and then of s, a, b and p of each mixing that is not None.

    ``do`` is the gradient of o. ``o`` and ``saved`` are the results of :func:`attention`.
    """
    mix1, mix2 = _mixings(s1, a1, b1, p1, s2, a2, b2, p2)
    with torch.cuda.device_of(q):
        *gradients, of_mix1, of_mix2 = _layout(by_lag).backward(base, do, q, k, v, mix1, mix2, o, tuple(saved))
    return [*gradients, *(of_mix1 or ()), *(of_mix2 or ())]


@attention_backward.register_fake
def _(
    base: str, by_lag: bool, do: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Tensor | list[Tensor] | None
) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (q, k, v, *others[:8]) if isinstance(tensor, Tensor)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.base, ctx.by_lag, *tensors = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, of_output: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    inputs, (o, *saved) = ctx.saved_tensors[:11], ctx.saved_tensors[11:]

    def by_hand(of_o: Tensor) -> list[Tensor | None]:
        remaining = iter(attention_backward(ctx.base, ctx.by_lag, of_o.contiguous(), *inputs, o, saved))
        return [None if tensor is None else next(remaining) for tensor in inputs]

    by_torch = functools.partial(plain_attention, ctx.base, ctx.by_lag)
    return None, None, *gradients(by_hand, by_torch, cast(Tensor, of_output[0]), inputs)


def plain_attention(base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, *mixings: Tensor | None) -> Tensor:
    """The output o of :func:`attention`, computed with torch operators.

    ``mixings`` are the arguments s1, a1, b1, p1, s2, a2, b2 and p2 of :func:`attention`.
    """
    mix1, mix2 = (part and plain.Mixing(part[0], part[1], part[2], 1 + part[3][:, None]) for part in _mixings(*mixings))
    return plain.attend(base, by_lag, q, k, v, mix1, mix2)


attention.register_autograd(_gradients, setup_context=_keep)


def _mixings(
    s1: Tensor | None, a1: Tensor | None, b1: Tensor | None, p1: Tensor | None,
    s2: Tensor | None, a2: Tensor | None, b2: Tensor | None, p2: Tensor | None,
) -> tuple[Mixing | None, Mixing | None]:  # fmt: skip
    return _mixing(s1, a1, b1, p1), _mixing(s2, a2, b2, p2)


def _mixing(s: Tensor | None, a: Tensor | None, b: Tensor | None, p: Tensor | None) -> Mixing | None:
    return None if s is None or a is None or b is None or p is None else (s, a, b, p)


def _layout(by_lag: bool) -> ModuleType:
    return importlib.import_module(f"madbench.mixers.srg.kernels.{'lag' if by_lag else 'position'}")
