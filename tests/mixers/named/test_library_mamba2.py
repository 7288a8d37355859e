"""Mamba-2 beside the whole layer of flash-linear-attention."""

from __future__ import annotations

import pytest
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, in_float64, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

pytestmark = NEEDS_LIBRARY


def theirs(layer, **options):
    from fla.layers import mamba2

    dims = layer.dims
    options |= {"head_dim": dims.value, "expand": dims.value_dim / dims.d, "state_size": dims.key}
    return mamba2.Mamba2(hidden_size=dims.d, **options)


@pytest.mark.parametrize("label", ["Mamba-2", "Mamba-2!"])
def test_a_state_dict_is_loaded_in_both_directions(label):
    load_both_ways(label, theirs)


def test_the_layer_equals_the_librarys_whole_layer():
    from fla.layers import mamba2

    layer, x = filled_mixer(lambda: build("Mamba-2", 32, 65, n_head=2))
    other = theirs(layer, chunk_size=16).double()
    other.load_state_dict(layer.state_dict())
    gain = other.norm.weight
    del other.norm, other.act
    other.norm, other.act = (lambda y, z: rms_norm(y * F.silu(z), gain)), F.silu  # for kernels that need a GPU
    expected = in_float64(mamba2, mamba2.Mamba2.torch_forward)(other, x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert difference(layer(x), expected) < 1e-13
