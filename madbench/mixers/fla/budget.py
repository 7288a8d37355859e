"""The cost of a layer of flash-linear-attention, counted on the built layer, and its widths at the budget."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from madbench.errors import BudgetError, MadbenchError, MissingExtraError, TrainingError
from madbench.mixers import Size
from madbench.mixers.fla.layers import LAYERS, Options
from madbench.mixers.ranks import CountedParameters, last_that_fits

if TYPE_CHECKING:
    import torch
    from torch import nn

NAME = "flash-linear-attention"
"""The name of the library in package indexes."""


@dataclass(frozen=True)
class Label:
    """A layer at the budget, or with the library's own widths if ``over``."""

    layer: str
    over: bool = False

    def __str__(self) -> str:
        return f"fla:{self.layer}{'!' if self.over else ''}"


@dataclass(frozen=True)
class LayerAllocation(CountedParameters):
    """The options and the cost of a mixer. All parameters are counted on the built layer."""

    label: Label
    size: Size
    options: Options  # arguments of the layer's class, except ``hidden_size``
    terms: Mapping[str, int]  # parameters by part of the layer; ``conv`` are convolution taps
    ranks: Mapping[str, int]  # widths summed over heads, and ``state``, all numbers carried from token to token
    recurrent: int  # numbers of ``state`` that the recurrence updates; the others are only stored
    cache: int  # numbers that each further token adds to the cache

    def flops_per_token(self, seq_len: int) -> float:
        """Approximate forward FLOPs per token: two per parameter, five per number of the recurrent state, and pairs.

        For each pair of tokens, key channels count in the score and in the update of the key, and value channels in the
        sum.
        """
        pairs = 6 * self.cache * (seq_len + 1) / 2
        return 2.0 * self.total + 5 * self.recurrent + pairs

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to the decoding cache. Zero for layers with a state of fixed size."""
        return float(self.cache * bytes_per_element)

    def state(self, seq_len: int) -> int:
        """The numbers carried from token to token: state, windows of convolutions, last tokens and cache."""
        return self.ranks["state"] + self.cache * seq_len


@functools.cache
def solve(label: Label, size: Size) -> LayerAllocation:
    """The widest layer with at most 4 d^2 parameters plus taps. With ``!`` or budget ``paper`` the library's widths.

    Raises ``MissingExtraError`` if the package is not installed, and ``BudgetError`` if no width fits or the layer
    rejects the size.
    """
    layer, d, heads = LAYERS[label.layer], size.d_model, size.n_head
    is_over = label.over or not size.rule.chooses_ranks
    candidates = [layer.defaults(d, heads)] if is_over else layer.candidates(d, heads)

    def at(options: Options) -> LayerAllocation:
        return LayerAllocation(label, size, options, *_count(label, d, options))

    def room(options: Options) -> float:
        return size.rule.room(at(options))

    fitting = candidates[0] if is_over else last_that_fits(candidates, room)
    if fitting is None:
        raise BudgetError(
            f"{label}: the smallest layer at d_model {d} with {heads} heads is {-room(candidates[0]):,} parameters "
            f"over the budget of {4 * d * d:,}; use a larger d_model, fewer heads, or {label}!"
        )
    candidate = at(fitting)
    key = candidate.ranks.get("qk", 0) // heads
    if layer.most_key and key > layer.most_key:
        enough = heads * -(-key // layer.most_key)
        most = f"its kernels support at most {layer.most_key}; set model.n_head to {enough} or more"
        raise BudgetError(f"{label}: keys have {key} channels per head at d_model {d} with {heads} heads, but {most}")
    return candidate


def _count(label: Label, d: int, options: Options) -> tuple[dict[str, int], dict[str, int], int, int]:
    """Terms, ranks, recurrent numbers and cache of a :class:`LayerAllocation` for these options."""
    layer, row = make(label, d, options, "meta"), LAYERS[label.layer]
    terms: dict[str, int] = {}
    windows = 0
    for name, parameter in layer.named_parameters():
        is_tap = "conv1d" in name and name.endswith("weight")
        part = "conv" if is_tap else name.split(".")[0]
        terms[part] = terms.get(part, 0) + parameter.numel()
        if is_tap:  # (C, 1, W): each channel keeps its newest W - 1 inputs
            windows += parameter.numel() - len(parameter)
    ranks = row.state(layer)
    recurrent = ranks["state"]
    return terms, ranks | {"state": recurrent + windows + row.carried(layer)}, recurrent, row.cache(layer)


def make(label: Label, d: int, options: Options, device: str | torch.device) -> nn.Module:
    """Builds the library's layer, for counting on the device ``meta``. Raises the errors of :func:`solve`."""
    import torch

    kind = getattr(library(), LAYERS[label.layer].module)
    try:
        with silence(), torch.device(device):
            return kind(hidden_size=d, **options)
    except (AssertionError, ValueError, ZeroDivisionError) as error:
        raise BudgetError(f"{label}: flash-linear-attention rejects d_model {d} with {options}: {error}") from None


@contextmanager
def silence() -> Iterator[None]:
    """Hides the library's warnings during import and construction, such as advice to install faster packages."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@functools.cache
def is_missing() -> bool:
    """True if the library cannot be imported here."""
    try:
        library()
    except MadbenchError:
        return True
    return False


def library() -> Any:
    """Imports ``fla.layers``. Raises ``MissingExtraError`` if it is missing, ``TrainingError`` if the import fails."""
    try:
        with silence():
            return import_module("fla.layers")
    except ImportError as error:
        if (error.name or "").split(".")[0] == "fla":
            raise MissingExtraError("a label of flash-linear-attention", "fla") from None
        raise TrainingError(f"flash-linear-attention cannot be imported: {error}") from None
