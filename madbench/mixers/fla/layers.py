"""The layers of flash-linear-attention 0.6 that have a label: class, options, and the width that the budget sets.

Each layer is built as its authors define it, with their ratio of key and value widths. One of the widths is then chosen
so that the layer has the parameters of softmax attention. ``note`` mentions any other difference from the library's
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Options = dict[str, Any]


def _outer(layer: Any) -> dict[str, int]:
    """Widths of a layer whose state is an outer product of key and value per head."""
    return {"qk": layer.key_dim, "vo": layer.value_dim, "state": layer.key_dim * layer.value_dim // layer.num_heads}


@dataclass(frozen=True)
class Layer:
    """One layer. ``candidates`` and ``defaults`` are functions of d_model and the number of heads H."""

    module: str  # class in fla.layers
    what: str  # description in a sentence
    source: str
    candidates: Callable[[int, int], list[Options]]  # options in ascending order of parameters
    defaults: Callable[[int, int], Options] = lambda d, heads: {"num_heads": heads}
    """Options with the library's own widths, for ``!``."""
    state: Callable[[Any], dict[str, int]] = _outer
    """Widths of a built layer, summed over heads, and ``state``, the size of its recurrent state in numbers."""
    carried: Callable[[Any], int] = lambda layer: 0
    """Further numbers carried from token to token, except the windows of convolutions."""
    note: str = ""
    counterpart: str = ""  # label of the same operator that runs on a CPU
    keeps_init: bool = False  # True if the layer initializes its weights as in its paper
    cache: Callable[[Any], int] = lambda layer: 0  # numbers that each further token adds to the cache
    most_key: int = 0  # largest key width per head that the kernels support; 0 for no limit
    has_heads: bool = True
    output: str = "o_proj"  # name of the linear map that writes to the residual stream
    needs: str = ""  # name in the layer's Python module that is None without the kernels of state-spaces/mamba


def _steps(d: int, most: int) -> range:
    """Widths of one head that the kernels support without padding."""
    step = 8 if d >= 256 else 4
    return range(step, max(most, step) + 1, step)


def _values(d: int, heads: int, **fixed: Any) -> list[Options]:
    """Options with every value width of a head up to 2 d / H, given as ``expand_v``."""
    return [fixed | {"num_heads": heads, "expand_v": heads * w / d} for w in _steps(d, 2 * d // heads)]


def _retnet_heads(keys: int, heads: int) -> int:
    """``heads``, or its smallest multiple that gives at most 256 key channels per head, the library's limit."""
    multiples = range(heads, keys + 1, heads)
    return next((n for n in multiples if keys % n == 0 and keys // n <= 256), heads)


def _by_head(d: int, heads: int) -> list[Options]:
    """``head_dim`` d / (2 H), and ``expand_v`` for each value width, slightly increased as the library rounds down."""
    key = max(1, d // (2 * heads))
    return [{"num_heads": heads, "head_dim": key, "expand_v": w / key * (1 + 1e-9)} for w in _steps(d, 2 * d // heads)]


def _path(d: int, heads: int) -> list[Options]:
    """Options with shared heads of keys and values, from few to all heads."""
    shared = [n for n in range(1, heads) if heads % n == 0]
    options = [{"num_heads": heads, "num_kv_heads": n, "use_low_rank_w": False} for n in shared]
    return [*options, {"num_heads": heads, "num_kv_heads": heads}]


def _rwkv_defaults(d: int, heads: int) -> Options:
    return {"num_heads": heads, "head_dim": None, "layer_idx": 0, "num_hidden_layers": 2}


def _rwkv(d: int, heads: int) -> list[Options]:
    low = {"decay_low_rank_dim": d // 16, "a_low_rank_dim": d // 16, "gate_low_rank_dim": d // 8}
    return [_rwkv_defaults(d, heads) | low | {"value_dim": heads * w} for w in _steps(d, 2 * d // heads)]


def _ssm(d: int, heads: int) -> list[Options]:
    return [{"expand": 1, "head_dim": max(1, d // heads), "state_size": n} for n in _steps(d, 2 * d)]


def _of_ssm(layer: Any) -> dict[str, int]:
    state = layer.ssm_state_size * layer.intermediate_size
    return {"qk": layer.ssm_state_size * layer.n_groups, "vo": layer.intermediate_size, "state": state}


def _of_slots(layer: Any) -> dict[str, int]:
    slots = layer.num_slots * (layer.key_dim + layer.value_dim)
    return {"qk": layer.key_dim, "vo": layer.value_dim, "state": slots}


_NO_GAIN = "Without the gain of its output norm, whose d parameters would exceed the budget."

LAYERS: Mapping[str, Layer] = {
    "gla": Layer(
        "GatedLinearAttention",
        "Gated linear attention: a decay per key coordinate, low-rank in the input.",
        "Yang et al. 2024, arXiv 2312.06635",
        lambda d, heads: _values(d, heads, expand_k=0.5),
        counterpart="GLA",
    ),
    "retnet": Layer(
        "MultiScaleRetention",
        "Retention: a fixed decay per head, rotary positions, an output gate.",
        "Sun et al. 2023, arXiv 2307.08621",
        lambda d, heads: _values(d, _retnet_heads(d // 2, heads), expand_k=0.5),
        defaults=lambda d, heads: {"num_heads": _retnet_heads(d, heads)},
        note="Keys are half as wide as values, as in the paper. The number of heads is increased if keys would have "
        "more than 256 channels per head, the paper's width and the library's limit.",
        counterpart="RetNet",
    ),
    "hgrn": Layer(
        "HGRNAttention",
        "A gated recurrence, channel by channel.",
        "Qin et al. 2023, arXiv 2311.04823",
        lambda d, heads: [{"expand_ratio": 1, "elementwise_affine": False}],
        defaults=lambda d, heads: {},
        state=lambda layer: {"vo": layer.input_dim, "state": layer.input_dim},
        note=f"{_NO_GAIN} It has no heads.",
        has_heads=False,
    ),
    "hgrn2": Layer(
        "HGRN2Attention",
        "A gated recurrence whose state is expanded by outer products.",
        "Qin et al. 2024, arXiv 2404.07904",
        lambda d, heads: [{"num_heads": heads, "expand_ratio": None, "elementwise_affine": False}],
        defaults=lambda d, heads: {"num_heads": heads, "expand_ratio": None},
        state=lambda one: {"qk": one.forget_dim, "vo": one.input_dim, "state": one.forget_dim * one.head_i_dim},
        note=_NO_GAIN,
        counterpart="HGRN2",
    ),
    "gsa": Layer(
        "GatedSlotAttention",
        "Gated slot attention: softmax over slots that forget.",
        "Zhang et al. 2024, arXiv 2409.07146",
        lambda d, heads: [
            {"num_heads": heads, "expand_k": heads * w / d, "layer_idx": 0} for w in _steps(d, d // heads)
        ],
        defaults=lambda d, heads: {"num_heads": heads, "layer_idx": 0},
        state=_of_slots,
        note="The number of slots per head equals the key width of a head.",
    ),
    "deltanet": Layer(
        "DeltaNet",
        "Linear attention whose state is corrected by the delta rule.",
        "Yang et al. 2024, arXiv 2406.06484",
        lambda d, heads: _values(d, heads),
        counterpart="DeltaNet",
        most_key=256,
    ),
    "gated-deltanet": Layer(
        "GatedDeltaNet",
        "The delta rule with a decay per head.",
        "Yang et al. 2025, arXiv 2412.06464",
        _by_head,
        defaults=lambda d, heads: {"num_heads": heads, "head_dim": max(1, 3 * d // (4 * heads))},
        counterpart="GDN",
        most_key=256,
    ),
    "gated-deltaproduct": Layer(
        "GatedDeltaProduct",
        "The gated delta rule with two reflections per token.",
        "Siems et al. 2025, arXiv 2502.10297",
        lambda d, heads: [{"num_heads": heads, "head_dim": w} for w in _steps(d, min(256, d // heads))],
        defaults=lambda d, heads: {"num_heads": heads, "head_dim": max(1, 3 * d // (4 * heads))},
        counterpart="DeltaProduct",
        most_key=256,
    ),
    "rwkv7": Layer(
        "RWKV7Attention",
        "RWKV-7: a generalised delta rule with token shift.",
        "Peng et al. 2025, arXiv 2503.14456",
        _rwkv,
        defaults=_rwkv_defaults,
        note="The low ranks are d / 16, and d / 8 for the gate. Every layer acts as a first layer: values of the first "
        "layer are not mixed in.",
        keeps_init=True,
        counterpart="RWKV-7",
        carried=lambda layer: layer.hidden_size,  # the last token, for the token shift
    ),
    "mamba2": Layer(
        "Mamba2",
        "Mamba-2: a state-space model with one decay a head, keys and queries shared by the heads.",
        "Dao and Gu 2024, arXiv 2405.21060",
        _ssm,
        defaults=lambda d, heads: {"expand": 2, "head_dim": max(1, 2 * d // heads)},
        state=_of_ssm,
        note="The inner width is d.",
        counterpart="Mamba-2",
        output="out_proj",
    ),
    "mamba3": Layer(
        "Mamba3",
        "Mamba-3: trapezoidal steps and a rotating state.",
        "flash-linear-attention 0.6",
        _ssm,
        defaults=lambda d, heads: {"expand": 2, "head_dim": max(1, 2 * d // heads)},
        state=_of_ssm,
        note="The inner width is d.",
        counterpart="Mamba-3",
        output="out_proj",
        needs="mamba3_siso_combined",
        carried=lambda one: one.num_heads * (one.num_rope_angles + one.ssm_state_size + one.head_dim),
    ),
    "path": Layer(
        "PaTHAttention",
        "Softmax attention whose positions are products of Householder matrices.",
        "Yang et al. 2025, arXiv 2505.16381",
        _path,
        state=lambda layer: {"qk": layer.hidden_size, "vo": layer.kv_dim, "state": 0},
        note="The widths are fixed. Heads of keys and values are shared until the layer fits.",
        counterpart="PaTH",
        cache=lambda layer: 2 * layer.kv_dim,  # a key, which each step updates, and a value
    ),
    "kda": Layer(
        "KimiDeltaAttention",
        "The gated delta rule with a decay per key coordinate.",
        "Kimi Linear 2025, arXiv 2510.26692",
        lambda d, heads: [{"num_heads": heads, "head_dim": w} for w in _steps(d, min(256, 2 * d // heads))],
        defaults=lambda d, heads: {"num_heads": heads, "head_dim": max(1, d // heads)},
        counterpart="KDA",
        most_key=256,
    ),
}
"""All layers, by their name in a label."""
