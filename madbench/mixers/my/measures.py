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
from madbench.mixers.my.operator import ModuleMixer, asks_for, failing, make, wrong_output
from madbench.mixers.my.sources import working_folder_on_path
from madbench.mixers.random_state import kept_random_state
from madbench.mixers.traits import output_names

TOKENS = 96  # of the input that is tried, more than one block of a module that works in blocks
CHANGED = (1, 4, 7, 17, 33, 65)
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
    leak: str = ""  # which row sees what it may not, as the rest of a sentence about the module

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
    with kept_random_state(), torch.device("cpu"), torch.no_grad():
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
    """What of the module sees what it may not, in training or in evaluation; empty for nothing.

    Seen of it are later tokens, other examples of the batch and earlier calls, each with the weights as drawn and with
    all of them moved a little, as an output map that starts at zero would hide all.
    """
    if not _run(label, module, x).isfinite().all():
        raise BudgetError(f"{label}: its output has NaN or infinity on an input of normal numbers {tuple(x.shape)}")
    for is_training in (True, False):
        module.train(is_training)
        if leak := _leak_of_mode(label, module, x):
            return leak
    for parameter in module.parameters():
        parameter += 0.02 * torch.randn_like(parameter)
    for is_training in (True, False):
        module.train(is_training)
        if leak := _leak_of_mode(label, module, x):
            return leak
    return ""


def _leak_of_mode(label: Any, module: nn.Module, x: Tensor) -> str:
    y = _run(label, module, x)

    def change(other: Tensor) -> Tensor:
        """The largest change of a row of the first example."""
        return (_run(label, module, other) - y)[0].abs().amax(dim=-1)

    least = LEAK * y.abs().max()
    others = x.clone()
    others[1:] += 1
    change_by_others = change(others)
    if change(x).max() > least:
        return "keeps something between calls: the same input gives another output; keep no state outside of forward"
    if change_by_others.max() > least:
        return (
            "mixes the examples of a batch: rows of one change with another; inputs are (B, T, D), batch first, and "
            "each of the B is alone"
        )
    for token in (token for token in CHANGED if token < x.shape[1]):
        later = x.clone()
        later[:, token:] += 1
        difference = change(later)[:token]
        if difference.max() > least:
            row = int(difference.argmax())
            return (
                f"is not causal: row {row} changes with token {token}, which comes later; a row may see the tokens up "
                "to its own alone"
            )
    return ""


def _run(label: Any, module: nn.Module, x: Tensor) -> Tensor:
    """The module's output, random numbers being the same at every call."""
    torch.manual_seed(1)
    own = x.clone()
    with working_folder_on_path(), failing(f"{label}: its forward fails on an input {tuple(x.shape)}"):
        y = module(own)  # which may import more; later, in training, no module of the working folder is found
    if not isinstance(y, Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        raise BudgetError(f"{label}: {wrong_output(y, x)}")
    if not torch.equal(own, x):
        raise BudgetError(
            f"{label}: its forward changes its input in place, which the model still needs; copy it first"
        )
    return y


@functools.lru_cache(maxsize=1000)
def flops(path: str, size: Size, seq_len: int) -> float:
    """Forward FLOPs per token of the module, counted on tensors without data, or with where it needs them."""
    with kept_random_state(), torch.device("cpu"), torch.no_grad():
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
    with kept_random_state(), torch.device("cpu"):
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
