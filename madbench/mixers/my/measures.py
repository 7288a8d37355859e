"""What is measured of a user's module before it trains: parameters, shape of the output, causality, FLOPs, traits."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import BudgetError, MadbenchError
from madbench.mixers import Size, Traits
from madbench.mixers.my.operator import ModuleMixer, asks_for, make, told, wrong_output
from madbench.mixers.traits import output_names

TOKENS = 8  # of the input that is tried
CHANGED = (1, 4, 7)
"""Tokens from which on it is changed."""
LEAK = 1e-4  # most that a later token may change of an earlier row, relative to the output
SMALL = Size(d_model=64, n_head=2, max_len=16, budget="paper")
"""Where traits are measured."""


@dataclass(frozen=True)
class Allocation:
    """What a user's module costs, as measured; nothing is solved, so that it may be far from the budget."""

    label: Any
    size: Size
    terms: Mapping[str, int]  # parameters by the part of the module that has them
    target: int
    leak: str = ""  # what is not causal of it, in a sentence

    ranks = property(lambda self: {})
    total = property(lambda self: sum(self.terms.values()))
    ratio = property(lambda self: self.total / self.target)

    def flops_per_token(self, seq_len: int) -> float:
        """Matrix products, convolutions and attention, as torch counts them; nothing else."""
        return flops(self.label.path, self.size, seq_len)

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """The module's inputs, of which decoding computes all rows again."""
        return float(self.size.d_model * bytes_per_element)


@functools.lru_cache(maxsize=1000)
def measured(label: Any, size: Size) -> Allocation:
    """The cost of a label's module at a size, made and run once on the CPU.

    Raises ``BudgetError`` for a module that cannot be made or run, gives another shape, or is shared between blocks.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad():
        torch.manual_seed(0)
        module, other = make(label.path, size), make(label.path, size)
        theirs = set(map(id, other.parameters()))
        if module is other or any(id(parameter) in theirs for parameter in module.parameters()):
            raise BudgetError(
                f"{label}: two calls give modules that share parameters, so that the blocks of a model would be one; "
                "make a new module at every call"
            )
        terms: dict[str, int] = {}
        for name, parameter in module.named_parameters():
            term = name.partition(".")[0]
            terms[term] = terms.get(term, 0) + parameter.numel()
        leak = _leak(label, other, torch.randn(2, min(TOKENS, size.max_len), size.d_model))
    return Allocation(label, size, terms, 4 * size.d_model**2, leak)


def _leak(label: Any, module: nn.Module, x: Tensor) -> str:
    """Which row sees a later token, in training or in evaluation; empty for none. All weights are moved a little."""
    for parameter in module.parameters():
        parameter += 0.02 * torch.randn_like(parameter)  # an output map that starts at zero would hide all
    for is_training in (True, False):
        module.train(is_training)
        y = _run(label, module, x)
        for token in CHANGED:
            changed = x.clone()
            changed[:, token:] += 1
            difference = (_run(label, module, changed) - y)[:, :token].abs().amax(dim=(0, 2))
            if token < x.shape[1] and difference.max() > LEAK * y.abs().max():
                row = int(difference.argmax())
                return f"row {row} changes with token {token}, which comes later"
    return ""


def _run(label: Any, module: nn.Module, x: Tensor) -> Tensor:
    """The module's output, random numbers being the same at every call."""
    torch.manual_seed(1)
    try:
        y = module(x)
    except Exception as error:
        raise BudgetError(f"{label}: its forward fails on an input {tuple(x.shape)}: {told(error)}") from error
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise BudgetError(f"{label}: {wrong_output(y, x)}")
    return y


@functools.lru_cache(maxsize=1000)
def flops(path: str, size: Size, seq_len: int) -> float:
    """Forward FLOPs per token of the module, counted on tensors without data, or with where it needs them."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad():
        module = make(path, size).eval()
        x = torch.zeros(1, seq_len, size.d_model)
        try:
            return _counted(copy.deepcopy(module).to("meta"), x.to("meta")) / seq_len
        except Exception:  # it looks at values, or has tensors that are no buffers
            return _counted(module, x) / seq_len


def _counted(module: nn.Module, x: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        module(x)
    return counter.get_total_flops()


@functools.lru_cache(maxsize=1000)
def traits(label: Any) -> Traits:
    """What models and optimisers have to know: the output maps as measured, and that its start is its own."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        try:
            mixer = ModuleMixer(measured(label, SMALL))
        except MadbenchError:
            return Traits(trains_alone=True, has_heads=asks_for(label.path, "n_head"))
        try:
            outputs = tuple(output_names(mixer, SMALL.d_model))
        except Exception:  # none shows, or it computes in single precision alone: nothing is scaled down
            outputs = ()
    start = ("module",) if mixer.allocation.total else ()
    has_heads = asks_for(label.path, "n_head")
    return Traits(outputs=outputs, own_start=start, has_heads=has_heads, trains_alone=True)
