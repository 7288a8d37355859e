"""What a layer of flash-linear-attention costs, counted on the layer itself, and its widths at the budget."""

from __future__ import annotations

import functools
import logging
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from madbench.errors import BudgetError, MadbenchError, MissingExtraError, TrainingError
from madbench.mixers import Size
from madbench.mixers.fla.layers import LAYERS, Options

if TYPE_CHECKING:
    import torch
    from torch import nn

NAME = "flash-linear-attention"
"""The library as package indexes call it."""


@dataclass(frozen=True)
class Label:
    """A layer, at the budget or with the library's own widths."""

    layer: str
    over: bool = False

    def __str__(self) -> str:
        return f"fla:{self.layer}{'!' * self.over}"


@dataclass(frozen=True)
class Allocation:
    """What a mixer is built from and what it costs, every parameter counted on the layer."""

    label: Label
    size: Size
    options: Options  # of the layer's class, ``hidden_size`` apart
    terms: Mapping[str, int]  # parameters of the layer's parts, by their names; ``conv`` are taps
    ranks: Mapping[str, int]  # widths over all heads, and ``state``, all numbers carried from token to token
    recurrent: int  # numbers of ``state`` that the recurrence updates; the others are kept as they are
    cache: int  # numbers that each further token adds to what is carried

    total = property(lambda self: sum(self.terms.values()), doc="Every parameter of the mixer.")
    target = property(lambda self: 4 * self.size.d_model**2 + self.terms.get("conv", 0), doc="The budget.")
    ratio = property(lambda self: self.total / self.target, doc="``total / target``.")

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token, approximately: two per parameter, five per number of the recurrence, and pairs.

        Of a pair of tokens, each number of a key takes part in the score and in the rewriting of the key, and each
        number of a value in the sum.
        """
        pairs = 6 * self.cache * (seq_len + 1) / 2
        return 2.0 * self.total + 5 * self.recurrent + pairs

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes by which each token makes the decoding cache grow: none where the state has one size."""
        return float(self.cache * bytes_per_element)


@functools.cache
def solve(label: Label, size: Size) -> Allocation:
    """The widest layer of at most 4 d^2 parameters and its taps; with ``!`` or budget ``paper`` the library's widths.

    Raises ``MissingExtraError`` where the package is missing, ``BudgetError`` where no width fits or the layer takes
    none.
    """
    layer, d, heads = LAYERS[label.layer], size.d_model, size.n_head
    is_over = label.over or size.budget == "paper"
    candidates = [layer.defaults(d, heads)] if is_over else layer.candidates(d, heads)

    def at(options: Options) -> Allocation:
        return Allocation(label, size, options, *_count(label, d, options))

    def excess(options: Options) -> int:
        return at(options).total - at(options).target

    fitting = 1 if is_over else bisect_right(candidates, 0, key=excess)
    if not fitting:
        raise BudgetError(
            f"{label}: the smallest layer at d_model {d} with {heads} heads is {excess(candidates[0]):,} parameters "
            f"over the budget of {4 * d * d:,}; take a larger d_model, fewer heads, or {label}!"
        )
    candidate = at(candidates[fitting - 1])
    key = candidate.ranks.get("qk", 0) // heads
    if layer.most_key and key > layer.most_key:
        enough = heads * -(-key // layer.most_key)
        most = f"its kernels take {layer.most_key} at most; set model.n_head to {enough} or more"
        raise BudgetError(f"{label}: keys of {key} numbers a head at d_model {d} with {heads} heads, but {most}")
    return candidate


def _count(label: Label, d: int, options: Options) -> tuple[dict[str, int], dict[str, int], int, int]:
    """Terms, ranks, recurrent numbers and cache of :class:`Allocation` for the layer with these options."""
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
    """The library's layer, on ``meta`` for counting. Raises as :func:`solve` does."""
    import torch

    kind = getattr(library(), LAYERS[label.layer].module)
    try:
        with silence(), torch.device(device):
            return kind(hidden_size=d, **options)
    except (AssertionError, ValueError, ZeroDivisionError) as error:
        raise BudgetError(f"{label}: flash-linear-attention refuses d_model {d} with {options}: {error}") from None


@contextmanager
def silence() -> Iterator[None]:
    """Hides what the library says as it is imported and built: of packages that would make it faster."""
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
    """``fla.layers``. Raises ``MissingExtraError`` without it, ``TrainingError`` where it cannot be imported."""
    try:
        with silence():
            return import_module("fla.layers")
    except ImportError as error:
        if (error.name or "").split(".")[0] == "fla":
            raise MissingExtraError("a label of flash-linear-attention", "fla") from None
        raise TrainingError(f"flash-linear-attention cannot be imported: {error}") from None
