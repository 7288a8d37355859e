"""FLOPs of a forward pass of any module, counted over the operations that torch executes.

- Matrix products, convolutions and attention count two per multiply-add, as torch's own counter does. Attention counts
  all pairs of tokens, because this is what its operations compute.
- Every other operation on floating-point numbers counts one per element of its largest input or output: elementwise
  operations, reductions, sums along the sequence, softmax and norms. A complex element counts as two.
- A Fourier transform of n complex points counts 5 n log2(n), and half of this if its inputs or outputs are real.
- Views, copies, constants, the indexing of elements, and operations on booleans and integers count nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

COPIES = frozenset(
    """
    alias arange as_strided_scatter cat clone constant_pad_nd copy detach diag_embed embedding empty empty_like
    empty_permuted empty_strided expand_copy eye fill flip full full_like gather im2col index index_copy index_put
    index_select lift_fresh lift_fresh_copy linspace new_empty new_empty_strided new_full new_ones new_zeros
    ones ones_like permute_copy repeat repeat_interleave resize roll scalar_tensor scatter select_scatter slice_scatter
    split_copy split_with_sizes_copy stack tril_indices triu_indices unfold_copy zero zeros zeros_like
    _local_scalar_dense _reshape_copy _to_copy _unsafe_view
    """.split()
)
"""Operations, besides views, that only move or set numbers. A name also stands for its in-place variant."""
FOURIER = ("_fft_r2c", "_fft_c2r", "_fft_c2c")


def count_flops(module: nn.Module, x: Tensor) -> float:
    """The FLOPs of one forward pass of a module on the input x. Both may be on the device ``meta``."""
    products = FlopCounterMode(display=False, custom_mapping=_ATTENTION_ON_CPU)
    others = _OtherOperations(products)
    with others, products:  # ``products`` splits composite operations for ``others``
        module(x)
    return products.get_total_flops() + others.flops


class _OtherOperations(TorchDispatchMode):
    """A mode that counts the FLOPs of all operations that torch's own counter does not count.

    ``products`` is torch's counter, which counts matrix products, convolutions and attention.
    """

    def __init__(self, products: FlopCounterMode):
        super().__init__()
        self.flops, self._products = 0.0, products.flop_registry

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        packet = getattr(function, "_overloadpacket", function)
        if packet not in self._products and not _is_copy(function, packet):
            self.flops += _flops(packet.__name__, args, result)
        return result


def _is_copy(function: Any, packet: Any) -> bool:
    """True for operations that only move or set numbers: views that do not write, and those in :data:`COPIES`."""
    schema = getattr(function, "_schema", None)  # higher-order operations have no schema
    aliases = [returned.alias_info for returned in schema.returns] if schema else []
    is_view = any(alias is not None and not alias.is_write for alias in aliases)
    return is_view or packet.__name__.removesuffix("_") in COPIES


def _flops(name: str, args: Any, result: Any) -> float:
    tensors = [
        tensor
        for tensor in tree_leaves((args, result))
        if isinstance(tensor, Tensor) and (tensor.is_floating_point() or tensor.is_complex())
    ]
    numbers = max((tensor.numel() * (1 + tensor.is_complex()) for tensor in tensors), default=0)
    if name not in FOURIER:
        return numbers
    points = max(math.prod(tensor.shape[axis] for axis in args[1]) for tensor in tensors)
    return 2.5 * numbers * math.log2(max(points, 2))


def _attention_flops(q: Sequence[int], k: Sequence[int], v: Sequence[int], *args: Any, **kwargs: Any) -> int:
    """The FLOPs of scores and weighted values for all pairs of tokens. q, k and v are shapes (B, H, T, channels)."""
    return 2 * math.prod(q[:-1]) * k[-2] * (k[-1] + v[-1])


_ATTENTION_ON_CPU = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}
