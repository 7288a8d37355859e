"""Decoding with an S/R/G mixer: a prompt at once, then token by token.

``y, cache = mixer.prefill(x)`` reads a prompt x (B, T, D) with the forward pass and keeps the part that later tokens
need. ``y, cache = mixer.step(x, cache)`` reads one token (B, D) per sequence. A step reads the keys, values and mixing
tables of the t visible slots, without copying them. The keys and values are t (H_q K + H V) numbers per sequence, for
H_q keys of width K and H values of width V. The tables of a mixing of rank R are 2 t R numbers per head.

Both layouts store keys and values by position, so that a step adds rows behind them and reorders none. In the lag
layout, where slot l is the token l steps back, a step with :class:`madbench.mixers.srg.step_weights.StepWeights` reads
reversed mixing tables. Other steps reverse their one row of scores and their one row of weights instead.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.errors import TrainingError
from madbench.mixers.decoding import decode_rest
from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.ops.linear_maps import weight_of
from madbench.mixers.ops.rope import rotary_angles
from madbench.mixers.ranks import CONV_TAPS
from madbench.mixers.srg.parts import Projected
from madbench.mixers.srg.step_weights import StepWeights, Token, step_weights

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP
    from madbench.mixers.srg.grammar import SrgLabel

LETTERS_OF_SDPA = "Sw"
"""The letters with ``acts_on_scores`` for which torch's own attention can compute a decoding step.

Labels with other such letters need the attention of this package.
"""
ANGLES = 64  # number of positions whose angles are computed together


@dataclass
class Storage:
    """Memory for the keys and values of C tokens. Several caches can share it, since each row is written only once."""

    k: Tensor
    """The keys (B, H_q, C, K). If heads share keys, there is one head per group of heads instead of H_q."""
    v: Tensor
    """The values (B, H, C, V). If heads share values, there is one head per group of heads instead of H."""
    used: int
    """Number of rows in use. The rows after them are free."""


@dataclass(frozen=True)
class Cache:
    """The state of decoding B sequences after some tokens. It is immutable: a step returns a new cache."""

    storage: Storage
    rows: slice
    """The rows of ``storage`` that belong to this cache."""
    inputs: Tensor | None
    """The newest three inputs (B, 3, D), which a convolution reads. Zeros before the first token. None without a
    convolution."""
    position: int
    """Number of tokens decoded so far. It exceeds the number of ``rows`` if old tokens have left the cache, either
    because the label has a window (w) or because the cache slides."""
    left: int = 0
    """Number of tokens that have left the window of a label with w. In the position layout they keep their slots."""
    angles: tuple[Tensor, Tensor] | None = None
    """Cosines and sines of RoPE for a block of ``ANGLES`` positions, in which the newest is. None before the first
    step, and without RoPE."""
    weights: StepWeights | None = None
    """Weights that are prepared for decoding steps. None if steps read the mixer's own weights."""

    @property
    def k(self) -> Tensor:
        """The cached keys (B, H_q, length, K), after RoPE, in order of position.

        If heads share keys, there is one per group of heads instead of H_q.
        """
        return self.storage.k[:, :, self.rows]

    @property
    def v(self) -> Tensor:
        """The cached values (B, H, length, V), in order of position.

        If heads share values, there is one per group of heads instead of H.
        """
        return self.storage.v[:, :, self.rows]

    @property
    def numbers(self) -> int:
        """The number of elements in the cached keys, values and inputs of the convolution, over all sequences.

        Free rows of the storage, angles and weights are not counted.
        """
        return self.k.numel() + self.v.numel() + (0 if self.inputs is None else self.inputs.numel())


def prefill(mixer: DynamicMLP, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
    """Decode a prompt x (B, T, D) at once. Return its outputs (B, T, D) and the cache for the next token.

    See :meth:`DynamicMLP.prefill`.
    """
    _check_causal(mixer)
    check_sequences(x, mixer.label, mixer.allocation.size.d_model)
    whole = x[:, : mixer.max_len] if slide else x  # each later row sees another window, and takes a step of its own
    projected = mixer.project(whole, 0)
    rows = mixer(whole, projected)
    cache = _with_weights(_empty_cache(mixer, whole), mixer)
    inputs = whole if cache.inputs is None else torch.cat((cache.inputs, whole), dim=1)
    cache = _extend(cache, mixer, inputs, projected, slide)
    return decode_rest(functools.partial(step, mixer), rows, cache, x[:, whole.shape[1] :], slide)


def step(mixer: DynamicMLP, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
    """Decode one token x (B, D) per sequence. Return its output (B, D) and the cache for the next token.

    See :meth:`DynamicMLP.step`.
    """
    _check_causal(mixer)
    check_tokens(x, mixer.label, mixer.allocation.size.d_model)
    if cache and len(x) != len(cache.storage.k):
        raise TrainingError(f"{mixer.label}: {len(x)} tokens, but the cache is of {len(cache.storage.k)} sequences")
    cache = _with_weights(_with_angles(cache or _empty_cache(mixer, x[:, None]), mixer), mixer)
    at = cache.position % ANGLES
    angles = cache.angles and (cache.angles[0][at : at + 1], cache.angles[1][at : at + 1])
    if weights := cache.weights:
        token = weights.project(mixer, x, cache.inputs, cache.position, angles)
        cache = _extend(cache, mixer, token.inputs, token, slide)
        return weights.attend(mixer, token, cache.k, cache.v), cache
    row = x[:, None]
    inputs = row if cache.inputs is None else torch.cat((cache.inputs, row), dim=1)
    projected = mixer.project(row, cache.position, cache.inputs, angles)
    cache = _extend(cache, mixer, inputs, projected, slide)
    k, v = cache.k, cache.v
    if cache.left and mixer.label.has_mixing and not mixer.has_slots_of_window:
        k, v = (F.pad(t, (0, 0, cache.left, 0)) for t in (k, v))  # tokens that have left keep their slots
    seen = mixer.for_each_head(replace(projected, k=k, v=v))
    if mixer.has_sdpa_steps:
        o = F.scaled_dot_product_attention(seen.q, seen.k, seen.v)
    else:
        o = mixer.attend(seen, seen.k.shape[2] - 1, is_step=True)
    return mixer.read_out(mixer.exclude(o, mixer.for_each_head(projected)), row)[:, 0], cache


def has_sdpa_steps(label: SrgLabel) -> bool:
    """True if torch's own attention computes a label's decoding steps whenever no weights are prepared for steps.

    :mod:`madbench.mixers.srg.step_weights` explains prepared weights.
    """
    return not label.not_on_scores(LETTERS_OF_SDPA)


def _check_causal(mixer: DynamicMLP) -> None:
    if not mixer.causal:
        raise TrainingError(f"{mixer.label}: a mixer of all tokens cannot decode; build it with causal=True")


def _empty_cache(mixer: DynamicMLP, x: Tensor) -> Cache:
    """A cache without tokens, for sequences of the batch size, width, dtype and device of x (B, T, D)."""
    nothing = mixer.project(x[:, :0], 0)
    inputs = x.new_zeros(x.shape[0], CONV_TAPS - 1, x.shape[2]) if mixer.k_conv else None
    return Cache(Storage(nothing.k, nothing.v, 0), slice(0, 0), inputs, 0)


def _with_angles(cache: Cache, mixer: DynamicMLP) -> Cache:
    """Return the cache with the RoPE angles of the next position.

    Return the same cache if it has these angles already, or if the label has no RoPE.
    """
    if not mixer.label.rope or (cache.angles and cache.position % ANGLES):
        return cache
    with torch.inference_mode(False):  # so that autograd can save them
        rows = weight_of(mixer.q).new_empty(ANGLES, mixer.allocation.rotated)
        return replace(cache, angles=rotary_angles(rows, cache.position // ANGLES * ANGLES))


def _with_weights(cache: Cache, mixer: DynamicMLP) -> Cache:
    """Return the cache with current prepared weights for steps, or with None if steps read the mixer's own weights.

    Steps read the mixer's own weights in three cases:

    - gradients are enabled, and prepared weights would get no gradients;
    - the mixer computes in float16, in which scores may be too small
      (:func:`madbench.mixers.srg.block_attention.attend`);
    - the label or its linear maps do not allow prepared weights.
    """
    if torch.is_grad_enabled() or not mixer.has_short_steps or _is_float16(mixer):
        return replace(cache, weights=None) if cache.weights else cache
    if cache.weights and cache.weights.fit(mixer):
        return cache
    return replace(cache, weights=step_weights(mixer))


def _is_float16(mixer: DynamicMLP) -> bool:
    weight = weight_of(mixer.q)
    device = weight.device.type
    is_cast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16
    return is_cast or weight.dtype == torch.float16


def _extend(cache: Cache, mixer: DynamicMLP, inputs: Tensor, new: Projected | Token, slide: bool) -> Cache:
    """Return the cache after M more tokens, whose keys and values are those of ``new``.

    ``inputs`` (B, M or more, D) ends with these tokens. If ``slide`` is true, only the newest ``max_len`` tokens are
    kept. For labels with w, only the tokens of the window are kept. Raises ``TrainingError`` if there are more tokens
    than the mixing tables allow.
    """
    k, v = new.k, new.v
    storage, start, end, added = cache.storage, cache.rows.start, cache.rows.stop, k.shape[2]
    kept, total = end - start, cache.left + end - start + added
    total = min(total, mixer.max_len) if slide else total
    mixer.check_length(total)
    if mixer.window:
        k, v = k[:, :, -mixer.window :], v[:, :, -mixer.window :]
    count, most = k.shape[2], mixer.window or total
    kept = min(kept, total - count, most - count)
    # rows are written in place only if no other cache and no gradient uses them
    is_writable = torch.is_inference_mode_enabled() or not (torch.is_grad_enabled() or storage.k.is_inference())
    is_free = storage.used == end and storage.k.shape[2] - end >= count
    if not (is_free and is_writable and storage.k.dtype == k.dtype):
        # room for twice the kept rows, so that copying costs O(1) rows per token; with gradients every step copies
        usual = min(mixer.max_len, 2 * most) if mixer.window else mixer.max_len
        room = kept + count if torch.is_grad_enabled() else max(usual, kept + count, 2 * kept)
        new_k, new_v = (t.new_empty(*t.shape[:2], room, t.shape[3]) for t in (k, v))
        for into, rows in ((new_k, storage.k), (new_v, storage.v)):
            into[:, :, :kept] = rows[:, :, end - kept : end]
        storage, end = Storage(new_k, new_v, kept), kept
    storage.used = end + count
    storage.k[:, :, end : storage.used], storage.v[:, :, end : storage.used] = k, v
    before = None if cache.inputs is None else inputs[:, -cache.inputs.shape[1] :]
    rows, position = slice(end - kept, storage.used), cache.position + added
    return Cache(storage, rows, before, position, total - kept - count, cache.angles, cache.weights)
