"""The choice of the path by which an S/R/G mixer computes its rows.

``mixer`` is the :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`, whose docstring lists the paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.ops import softmax
from madbench.mixers.ops.linear_maps import weight_of
from madbench.mixers.ops.tracing import is_symbolic, is_traced, is_transformed, needs_plain_operators
from madbench.mixers.srg import softmax_paths, tiled
from madbench.mixers.srg.block_attention import skips_hidden_keys
from madbench.mixers.srg.kernels import fused, proof

if TYPE_CHECKING:
    from madbench.mixers.srg.allocation import SrgAllocation
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

PATHS = ("auto", "reference", "dense", "chunked", "tiled", "sdpa", "fused")
DENSE_LIMIT_LENGTH = 512  # for longer inputs, path chunked is faster: it skips masked slots, but recomputes its blocks
DENSE_LIMIT_BYTES = 2**30  # largest (B, H, T, T) float32 tensor of the dense path
TILED_FROM_BYTES = 2**22  # size of the same tensor from which tiles are faster; a smaller one fits in the cache anyway
MIXED_TILED_FROM_BYTES = 2**18  # the same with mixing, for which tiles need fewer passes
SOFTMAX_TILED_FROM_BYTES = 2**23  # the same for softmax without mixing, where torch's attention needs fewer calls


def refusal(path: str, allocation: SrgAllocation, causal: bool) -> str:
    """The reason why ``path``, one of ``PATHS``, cannot compute a mixer with this allocation. Empty if it can."""
    label = allocation.label
    if path in ("tiled", "fused") and not causal:
        return "it computes causal mixers only"
    if path == "fused":
        return fused.refusal(allocation)
    if path == "sdpa" or (path == "tiled" and label.has_softmax and not label.has_mixing):
        return label.not_on_scores(softmax_paths.LETTERS_ON_SCORES)
    return label.not_on_scores(tiled.LETTERS_ON_SCORES) if path == "tiled" else ""


def check(path: str, allocation: SrgAllocation, causal: bool) -> None:
    """Raise ``TrainingError`` if the path is not known or cannot compute the mixer."""
    if path not in PATHS:
        raise TrainingError(f"path {path!r} is not known{did_you_mean(path, PATHS)}")
    if why := refusal(path, allocation, causal):
        raise TrainingError(f"path {path!r} cannot compute {allocation.label}: {why}; use 'auto'")


def choose(mixer: DynamicMLP, batch: int, length: int) -> str:
    """The path by which ``mixer`` computes an input of ``batch`` sequences of ``length`` tokens: one of ``PATHS``.

    See :meth:`madbench.mixers.srg.dynamic_mlp.DynamicMLP.resolve_path`.
    """
    if mixer.path != "auto":
        return mixer.path
    if is_symbolic(batch, length):
        return "sdpa" if mixer.uses_sdpa else "dense"
    if mixer.uses_sdpa and (mixer.is_stacked or not needs_plain_operators()):
        return "tiled" if _is_faster_in_tiles(mixer, batch, length) else "sdpa"
    weight = weight_of(mixer.q)
    transformed = is_transformed() and not mixer.is_stacked  # stacked models are computed as more heads of one call
    if mixer.has_kernel and not transformed and fused.is_fast(weight.device, fused.arithmetic(weight)):
        if _kernels_are_right(mixer, length):
            return "fused"
    scores = batch * mixer.query_heads * length * length * 4
    traced = is_traced() and not mixer.is_stacked
    enough = MIXED_TILED_FROM_BYTES if mixer.label.has_mixing else TILED_FROM_BYTES
    if mixer.has_tiles and scores >= enough and weight.device.type == "cpu" and not traced:
        return "tiled"
    skips = skips_hidden_keys(mixer) and weight.device.type == "cpu" and not traced
    is_small = length <= (mixer.chunk if skips else DENSE_LIMIT_LENGTH) and scores <= DENSE_LIMIT_BYTES
    return "dense" if is_small or length <= mixer.chunk else "chunked"


def _is_faster_in_tiles(mixer: DynamicMLP, batch: int, length: int) -> bool:
    """True if the path ``tiled`` computes softmax attention without mixing faster than torch's attention does."""
    weight, heads = weight_of(mixer.q), mixer.query_heads
    if not (mixer.has_tiles and weight.device.type == "cpu" and fused.arithmetic(weight) == torch.float32):
        return False
    if is_traced() and not mixer.is_stacked:
        return False
    if not (torch.is_grad_enabled() or mixer.window):  # torch's attention also computes what a window hides
        return False
    is_large = batch * heads * length * length * 4 >= SOFTMAX_TILED_FROM_BYTES and length > softmax.BLOCK_ROWS
    return is_large and softmax.keeps_weights(batch, heads, length, mixer.window)


def _kernels_are_right(mixer: DynamicMLP, length: int) -> bool:
    """True if the Triton kernels compute correct numbers on the mixer's device.

    The check runs once per compiled program. It stores the problem that it finds in ``mixer.kernel_problem``, or an
    empty text. While a graph is traced or captured there is no check, and the result is True.
    """
    weight = weight_of(mixer.q)
    if is_traced() or (weight.is_cuda and torch.cuda.is_current_stream_capturing()):
        return True  # no additional computation is possible here
    program = proof.Program.from_allocation(mixer.allocation, fused.arithmetic(weight), length)
    mixer.kernel_problem = proof.problem(program, weight.device)
    return not mixer.kernel_problem
