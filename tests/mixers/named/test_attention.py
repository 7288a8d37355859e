"""Every named operator with a growing cache: sliding windows, memory of blocks, and the choice of a path."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.checks.residuals import decode_tokens, difference, filled_mixer
from madbench.mixers.named.attention import Attention
from madbench.mixers.named.operators import OPERATORS

NAMES = [name for name, operator in OPERATORS.items() if issubclass(operator, Attention)]
OF_ITS_OWN_TOKENS = [name for name in NAMES if name not in ("PaTH", "DeltaFormer")]
"""The operators whose cached values do not depend on earlier tokens."""


@pytest.mark.parametrize("name", OF_ITS_OWN_TOKENS)
def test_past_the_context_a_row_sees_the_newest_tokens(name):
    layer, x = filled_mixer(lambda: build(name, 16, 5, n_head=2))
    x = torch.cat((x, x.flip(1)), dim=1)
    expected = torch.stack([layer(x[:, max(0, t - 4) : t + 1])[:, -1] for t in range(10)], dim=1)
    rows = decode_tokens(layer, x, slide=True)
    assert difference(rows, expected) < 1e-13
    prompt, cache = layer.prefill(x, slide=True)
    assert difference(prompt, rows) < 1e-13 and cache.position == 10
    assert all(part.shape[-2] == 5 for part in cache.cached.values())
    assert layer.prefill(x)[1].cached["v" if name != "MLA" else "latent"].shape[-2] == 10


@pytest.mark.parametrize("name", NAMES)
def test_memory_of_blocks_grows_with_the_length_and_not_with_its_square(name):
    kept = []
    for length in (64, 128):
        layer, x = build(name, 16, length, n_head=2, path="blocks"), torch.randn(1, length, 16)
        layer.chunk, storages = 8, {}

        def keep(tensor, storages=storages):
            storages[tensor.untyped_storage().data_ptr()] = tensor  # parts of one tensor count once
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            layer(x)
        kept.append(sum(tensor.untyped_storage().nbytes() for tensor in storages.values()))
    assert kept[1] < 2.1 * kept[0]


def test_paths_are_chosen_by_device_dtype_and_length():
    layer = build("MLA", 128, 1024, n_head=4)
    assert layer.resolve_path(32, 128) == "tiled" and layer.resolve_path(4, 1024) == "sdpa"
    with torch.no_grad():
        assert layer.resolve_path(32, 128) == "sdpa"
    assert layer.double().resolve_path(32, 128) == "sdpa"
    layer = build("StickBreaking", 128, 1024, n_head=4)
    assert layer.resolve_path(4, 512) == "dense" and layer.resolve_path(4, 513) == "blocks"
    assert build("PaTH", 128, 1024, n_head=4).resolve_path(4, 65) == "blocks"
    with pytest.raises(TrainingError, match="'sdpa' is not known; expected one of: auto, reference, dense, blocks"):
        build("StickBreaking", 16, 8, path="sdpa")
