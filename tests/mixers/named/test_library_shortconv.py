"""The gated short convolution beside transformers' layer of LFM2."""

from __future__ import annotations

import sys

import pytest

from library_layers import load_both_ways
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def theirs(monkeypatch):
    """Make the layer of transformers. It takes kernels of flash-linear-attention if they can be imported."""
    monkeypatch.setitem(sys.modules, "fla", None)
    lfm2 = pytest.importorskip("transformers.models.lfm2.modeling_lfm2")

    def of_width(layer):
        config = lfm2.Lfm2Config(hidden_size=layer.dims.d, num_hidden_layers=1, layer_types=["conv"])
        return lfm2.Lfm2ShortConv(config, 0)

    return of_width


def test_a_state_dict_is_loaded_in_both_directions(theirs):
    load_both_ways("ShortConv", theirs)


def test_the_layer_equals_that_of_transformers(theirs):
    layer, x = filled_mixer(lambda: build("ShortConv", 32, 65, n_head=2))
    other = theirs(layer).double()
    other.load_state_dict(layer.state_dict())
    assert difference(layer(x), other(x)) < 1e-13
