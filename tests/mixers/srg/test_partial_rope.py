"""rope_share: partial RoPE compared with transformers and with loops."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import ConfigError
from madbench.mixers import build, effective_settings, own_settings, solve
from madbench.mixers.ops.rope import rotary_angles, rotate
from madbench.mixers.srg.family import Settings
from srg_rows import decode, fast_paths


@pytest.mark.parametrize("label", ["S-p", "D-pgm-q", "R-pcgk-q-12o", "G-pm-v-1"])
def test_every_path_and_decoding_equal_the_reference(label, make, randn):
    mixer, x = make(label, d_model=64, rope_share=0.5), randn(1, 5, 64)
    assert mixer.rotated < mixer.allocation.qk_width
    expected = mixer.reference(x)
    for path in fast_paths(mixer):
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected)
    torch.testing.assert_close(decode(mixer, x), expected)
    assert (make(label, d_model=64)(x) - expected).norm() > 1e-3 * expected.norm()


@pytest.mark.parametrize(("width", "share", "rotated"), [
    (64, 0.25, 16), (64, 0.5, 32), (10, 0.5, 4), (10, 0.1, 2), (2, 0.5, 2), (64, 1.0, 64), (30, 0.2, 6), (64, 0.99, 62),
])  # fmt: skip
def test_rope_share_rotates_whole_pairs_and_at_least_one(width, share, rotated):
    assert build("S-p", width, 8, n_head=1, rope_share=share).rotated == rotated


@pytest.mark.slow
def test_rotated_channels_equal_those_of_transformers(randn):
    """GPT-NeoX computes its angles in float32."""
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    how = {"hidden_size": 48, "num_attention_heads": 3, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}  # fmt: skip
    q, k = randn(2, 3, 9, 16), randn(2, 3, 9, 16, seed=2)
    cos, sin = neox.GPTNeoXRotaryEmbedding(neox.GPTNeoXConfig(**how))(q, torch.arange(9)[None])
    angles = rotary_angles(q[..., :8], 0)
    for mine, theirs in zip((rotate(q, 0, angles=angles), rotate(k, 0, angles=angles)), neox.apply_rotary_pos_emb(
        q, k, cos, sin
    )):  # fmt: skip
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_rope_share_is_a_setting_only_of_labels_with_rope():
    half = Settings(rope_share=0.5)
    assert "rope_share" not in own_settings("S", half) and own_settings("S-p", half)["rope_share"] == 0.5
    with pytest.raises(ConfigError, match="rope_share has no effect on 'S'"):
        build("S", 32, 8, rope_share=0.5)
    for share in (0.0, -1.0, 1.5):
        with pytest.raises(ConfigError, match="rope_share must be above 0 and at most 1"):
            build("S-p", 32, 8, rope_share=share)


def test_shares_that_rotate_the_same_channels_are_one_mixer():
    def effective(width, share):
        return effective_settings(solve("S-p", width, 1, 8, rope_share=share), vars(Settings(rope_share=share)))

    assert effective(10, 0.5) == effective(10, 0.4) != effective(10, 0.8)
    assert "rope_share" not in effective(2, 0.5) and "rope" not in effective(10, 0.2)
