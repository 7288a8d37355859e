"""Declarations of the parts of a layer that have parameters, from which parameters can be counted without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from madbench.mixers.ranks import CONV_TAPS

if TYPE_CHECKING:
    from madbench.mixers.named.widths import Dims

Init = Literal["rates", "rates from zero", "steps", "zeros", "ones"]
"""Names of initial values of a vector. :func:`madbench.mixers.named.layer.draw` defines them."""
LinearInit = Literal["normal", "small", "by depth", "zeros"]
"""Names of initial weights of a linear map. :func:`madbench.mixers.named.layer.draw` defines them."""


@dataclass(frozen=True)
class Linear:
    """A linear map with a weight (outputs, inputs).

    ``bias`` is False for no bias, and True for a bias that is initially zero. Two numbers stand for a bias whose
    initial values are evenly spaced from the first number to the second. ``init`` names the initial weights.
    """

    inputs: int
    outputs: int
    bias: bool | tuple[float, float] = False
    init: LinearInit = "normal"

    @property
    def count(self) -> int:
        """The number of parameters."""
        return (self.inputs + bool(self.bias)) * self.outputs


@dataclass(frozen=True)
class Taps:
    """A depthwise causal convolution with a weight (channels, 1, taps), and a bias (channels,) if ``bias`` is true."""

    channels: int
    bias: bool = False
    taps: int = CONV_TAPS

    @property
    def count(self) -> int:
        """The number of parameters."""
        return (self.taps + self.bias) * self.channels

    @property
    def window(self) -> int:
        """The count of numbers that decoding keeps for the next token: the last taps - 1 inputs of each channel."""
        return (self.taps - 1) * self.channels


@dataclass(frozen=True)
class LowRank:
    """Two linear maps in a row: submodule ``lora.0`` to ``rank`` channels, and ``lora.2`` to ``outputs`` channels.

    ``bias`` is True if the second map has a bias.
    """

    inputs: int
    rank: int
    outputs: int
    bias: bool = True

    @property
    def count(self) -> int:
        """The number of parameters."""
        return self.rank * self.inputs + (self.rank + self.bias) * self.outputs


@dataclass(frozen=True)
class Gain:
    """The gain of a norm over ``width`` channels, initially 1.

    If ``bias`` is true, the norm also has a bias. If ``is_offset`` is true, the parameter is the gain minus 1.
    """

    width: int
    is_offset: bool = False
    bias: bool = False

    @property
    def count(self) -> int:
        """The number of parameters."""
        return (1 + self.bias) * self.width


@dataclass(frozen=True)
class Vector:
    """A parameter of the layer itself, outside of its submodules.

    ``init`` names its initial values. Two numbers stand for values that are evenly spaced from the first number to the
    second. ``shape`` is a whole number if the parameter has one dimension, else a tuple.
    """

    shape: int | tuple[int, ...]
    init: Init | tuple[float, float]

    @property
    def count(self) -> int:
        """The number of parameters."""
        return self.shape if isinstance(self.shape, int) else math.prod(self.shape)


Part = Linear | Taps | LowRank | Gain | Vector | tuple[Linear, ...]
"""A declared part of a layer. A tuple declares linear maps that are applied one after the other."""


def count(part: Part) -> int:
    """The number of parameters of a part of a layer."""
    return sum(linear.count for linear in part) if isinstance(part, tuple) else part.count


def qkv_maps(dims: Dims) -> dict[str, Part]:
    """The linear maps ``q_proj``, ``k_proj`` and ``v_proj`` from the model's width to the channels of all heads."""
    keys, values = Linear(dims.d, dims.key_dim), Linear(dims.d, dims.value_dim)
    return {"q_proj": keys, "k_proj": keys, "v_proj": values}


def qkv_taps(dims: Dims) -> dict[str, Part]:
    """The convolutions ``q_conv1d``, ``k_conv1d`` and ``v_conv1d`` over the channels of all heads."""
    return {"q_conv1d": Taps(dims.key_dim), "k_conv1d": Taps(dims.key_dim), "v_conv1d": Taps(dims.value_dim)}


def qk_gains(width: int) -> dict[str, Part]:
    """The gains ``q_norm`` and ``k_norm`` for the norms of queries and keys, with ``width`` numbers each."""
    return {"q_norm": Gain(width), "k_norm": Gain(width)}


def insert_after(parts: Mapping[str, Part], name: str, added: Mapping[str, Part]) -> dict[str, Part]:
    """Return a copy of ``parts`` in which the parts ``added`` follow the part ``name``."""
    items = list(parts.items())
    place = list(parts).index(name) + 1
    return dict([*items[:place], *added.items(), *items[place:]])
