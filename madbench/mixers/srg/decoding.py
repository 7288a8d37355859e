"""Decoding with an S/R/G mixer: a prompt at once, then token by token; keys and values are written once, never moved.

``y, cache = mixer.prefill(x)`` reads x (B, T, D) by the forward pass and keeps what later tokens see of it;
``y, cache = mixer.step(x, cache)`` reads one token (B, D). A step reads the keys, values and mixing tables of the slots
at hand, t (H_q K + H V) numbers of each sequence and 2 t R a mixed head, and copies none of them.

Slots stand in the order of the mixing tables. By position the newest token comes last, and the free rows of a storage
are behind it; by lag the newest comes first, slot l being the token l steps back, and the free rows are before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.errors import TrainingError
from madbench.mixers.srg.budget import CONV_TAPS
from madbench.mixers.srg.parts import activate, rotary_angles

ANGLES = 64  # positions whose angles are computed at a time

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP, Projected


@dataclass
class Storage:
    """Memory for the keys and values of C tokens. A row is written once, so caches that share it stay as they were."""

    k: Tensor  # (B, H_q, C, K)
    v: Tensor  # (B, H, C, V)
    edge: int  # border of the rows in use: by lag those before it are free, by position those from it on


@dataclass(frozen=True)
class Cache:
    """What the next token sees of those before it. A value: the step that takes it does not change it."""

    storage: Storage
    first: int  # row of slot 0
    length: int  # slots
    inputs: Tensor | None  # (B, 3, D), the newest ones, for a convolution; zeros before the first token
    position: int  # tokens decoded so far; with a sliding window more than ``length``
    angles: tuple[Tensor, Tensor] | None = None  # (ANGLES, K) each, of the positions around the newest, for RoPE

    @property
    def k(self) -> Tensor:
        """(B, H_q, length, K), rotated, in the order of slots."""
        return self.storage.k[:, :, self.first : self.first + self.length]

    @property
    def v(self) -> Tensor:
        """(B, H, length, V), in the order of slots."""
        return self.storage.v[:, :, self.first : self.first + self.length]


def prefill(mixer: DynamicMLP, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
    """Rows of a prompt and the cache after it: see :meth:`DynamicMLP.prefill`."""
    if x.dim() != 3:
        raise TrainingError(f"{mixer.variant}: a prompt is (B, T, D), not {tuple(x.shape)}")
    whole = x[:, : mixer.max_len] if slide else x  # rows beyond see a window each
    projected = mixer._project(whole, 0)
    rows = [mixer(whole, projected)]
    cache = _extended(_empty(mixer, whole), mixer, whole, projected, slide)
    for token in x[:, whole.shape[1] :].unbind(1):
        row, cache = step(mixer, token, cache, slide)
        rows.append(row[:, None])
    return torch.cat(rows, dim=1), cache


def step(mixer: DynamicMLP, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
    """The row of a token and the cache after it: see :meth:`DynamicMLP.step`."""
    if x.dim() != 2:
        raise TrainingError(f"{mixer.variant}: a step takes one token of each sequence, (B, D), not {tuple(x.shape)}")
    if cache and len(x) != len(cache.storage.k):
        raise TrainingError(f"{mixer.variant}: {len(x)} tokens, but the cache is of {len(cache.storage.k)} sequences")
    row, cache = x[:, None], _with_angles(cache or _empty(mixer, x[:, None]), mixer)
    at = cache.position % ANGLES
    angles = cache.angles and tuple(each[at : at + 1] for each in cache.angles)
    projected = mixer._project(row, cache.position, cache.inputs, angles)
    cache = _extended(cache, mixer, row, projected, slide)
    return mixer._read_out(_attend(mixer, replace(projected, k=cache.k, v=cache.v)), row)[:, 0], cache


def _attend(mixer: DynamicMLP, p: Projected) -> Tensor:
    """One row, which sees all slots of its keys and values: (B, H, 1, V)."""
    if mixer.uses_sdpa and not mixer.contrast:
        return F.scaled_dot_product_attention(p.q, p.k, p.v)
    z = (p.q * mixer.scale) @ p.k.mT
    if p.to_registers is not None:
        z = torch.cat((p.to_registers * mixer.scale, z), dim=-1)
    h = _mixed(mixer.mix1.right, z, p.s1) if mixer.mix1 else z
    a, norm = activate(mixer.variant.base, h, h.shape[-1] - 1, mixer.contrast and mixer.contrast())
    w = _mixed(mixer.mix2.right_transposed, a, p.s2) if mixer.mix2 else a
    o = w[..., mixer.register_slots :] @ p.v
    if p.to_registers is not None:
        o = o + w[..., : mixer.register_slots] @ mixer._register_values()
    return o if norm is None else (o / norm).to(o.dtype)


def _mixed(mix: Callable[[Tensor, Tensor], Tensor], y: Tensor, s: Tensor) -> Tensor:
    """One row of each sequence mixed as rows of one sequence, so that the tables are read once whatever the batch."""
    return mix(y.transpose(0, 2), s.transpose(0, 2)).transpose(0, 2)


def _empty(mixer: DynamicMLP, x: Tensor) -> Cache:
    """The cache before the first token of x (B, T, D)."""
    nothing = mixer._project(x[:, :0], 0)
    inputs = x.new_zeros(x.shape[0], CONV_TAPS - 1, x.shape[2]) if mixer.k_conv else None
    return Cache(Storage(nothing.k, nothing.v, 0), 0, 0, inputs, 0)


def _with_angles(cache: Cache, mixer: DynamicMLP) -> Cache:
    """The cache with the angles of its next position, where there is RoPE."""
    if not mixer.variant.rope or (cache.angles and cache.position % ANGLES):
        return cache
    with torch.inference_mode(False):  # so that autograd may keep them
        rows = mixer.q.weight.new_empty(ANGLES, mixer.allocation.qk_width)
        return replace(cache, angles=rotary_angles(rows, cache.position // ANGLES * ANGLES))


def _extended(cache: Cache, mixer: DynamicMLP, x: Tensor, new: Projected, slide: bool) -> Cache:
    """The cache with the tokens x (B, M, D) too, which became ``new``; sliding, without the oldest of its own."""
    count, storage, by_lag = x.shape[1], cache.storage, mixer.by_lag
    kept = min(cache.length, mixer.max_len - count) if slide else cache.length
    mixer._check_length(kept + count)
    first = cache.first if by_lag else cache.first + cache.length - kept
    if not _has_room(storage, first if by_lag else first + kept, count, new, by_lag):
        storage, first = _moved(storage, first, kept, count, mixer.max_len, new, by_lag)
    start = first - count if by_lag else first + kept
    rows = slice(start, start + count)
    k, v = (new.k.flip(2), new.v.flip(2)) if by_lag and count > 1 else (new.k, new.v)
    storage.k[:, :, rows], storage.v[:, :, rows] = k, v
    storage.edge = rows.start if by_lag else rows.stop
    inputs = cache.inputs
    if inputs is not None:
        inputs = torch.cat((inputs, x), dim=1)[:, -inputs.shape[1] :]
    first = start if by_lag else first
    return Cache(storage, first, kept + count, inputs, cache.position + count, cache.angles)


def _has_room(storage: Storage, edge: int, count: int, new: Projected, by_lag: bool) -> bool:
    """Whether ``count`` rows can be written at ``edge``: free, used by no other cache and not by autograd."""
    free = edge if by_lag else storage.k.shape[2] - edge
    is_writable = torch.is_inference_mode_enabled() or not (torch.is_grad_enabled() or storage.k.is_inference())
    return storage.edge == edge and free >= count and is_writable and storage.k.dtype == new.k.dtype


def _moved(
    storage: Storage, first: int, kept: int, count: int, max_len: int, new: Projected, by_lag: bool
) -> tuple[Storage, int]:
    """A storage of its own for ``kept`` rows from ``first`` on, their new first row, and room for as many as may come.

    Twice what is kept, so that moving costs each token O(1) rows; with gradients no more than ``count``, as every step
    needs a storage of its own then.
    """
    room = kept + count if torch.is_grad_enabled() else max(max_len, kept + count, 2 * kept)
    begin = room - kept if by_lag else 0
    k, v = (t.new_empty(*t.shape[:2], room, t.shape[3]) for t in (new.k, new.v))
    k[:, :, begin : begin + kept] = storage.k[:, :, first : first + kept]
    v[:, :, begin : begin + kept] = storage.v[:, :, first : first + kept]
    return Storage(k, v, begin if by_lag else kept), begin
