"""Softmax attention without mixing and registers, by torch's own attention or in blocks on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops import softmax
from madbench.mixers.ops.derivatives import refuse_second
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.srg.parts import in_window

LETTERS_ON_SCORES = "SDws"
"""The letters with ``acts_on_scores`` that this module computes. Labels with other such letters are refused."""


def attend(
    path: str, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, window: int, causal: bool,
    by_head: Callable[..., Tensor],
) -> Tensor:  # fmt: skip
    """Softmax attention without mixing, (B, heads, T, V), on the path ``sdpa`` or ``tiled``.

    q and k are (B, heads, T, K), v is (B, heads, T, V), and sink is (heads,) or None. A row sees the tokens at a
    distance below ``window``, or all tokens if ``window`` is 0. If ``causal`` is true, it sees no later tokens. The
    path ``tiled`` ignores ``causal``: it is always causal. ``by_head`` is ``DynamicMLP._by_head``, which calls an
    operator with q, k, v and two further arguments, also for stacked models.
    """
    if path == "tiled":
        of_heads = None if sink is None else sink[:, None, None].expand(len(q), -1, 1, 1)
        return by_head(functools.partial(_in_blocks, window), q, k, v, of_heads, None)
    length, width = q.shape[2], v.shape[3]
    if window and not is_symbolic(length) and length <= window:
        window = 0
    if sink is not None:
        q, k, v = append_sink(q, k, v, sink)
    refuse_second(path, (q, k, v))
    o = by_head(functools.partial(_by_torch, window, causal, sink is not None), q, k, v, None, None)
    return o if sink is None else o[:, :, 1:, :width]


def append_sink(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convert q, k and v so that attention without a sink gives the result of attention with the sink.

    A token with a value of zero is put before the others. An added channel makes its score with every query equal to
    the sink. The first row of the attention's output has no meaning; the other rows are those of attention with the
    sink. Values that are narrower than keys are padded to their width, since some kernels need equal widths.

    Return q and k (B, heads, T + 1, K + 1), and v (B, heads, T + 1, max(V, K + 1)).
    """
    width = q.shape[-1]
    q = F.pad(q * ((width + 1) / width) ** 0.5, (0, 1), value=1.0)  # attention divides by the square root of the width
    score = (sink * (width + 1) ** 0.5).to(k.dtype)[:, None, None].expand(*k.shape[:2], 1, 1)
    first = F.pad(score, (width, 0))
    k = torch.cat((first, F.pad(k, (0, 1))), dim=2)
    return F.pad(q, (0, 0, 1, 0)), k, F.pad(v, (0, max(0, width + 1 - v.shape[-1]), 1, 0))


def _by_torch(
    window: int, causal: bool, has_sink: bool, base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, *_: None
) -> Tensor:
    if not window:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    visible = in_window(q.shape[2], q.shape[2], 0, window, causal, q.device)
    if has_sink:
        visible[:, 0] = True
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)


def _in_blocks(
    window: int, base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, *_: None
) -> Tensor:
    return softmax.attend(q, k, v, window, sink)
