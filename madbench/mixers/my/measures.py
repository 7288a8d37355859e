"""Measurements of a user's module before training: parameters, output shape, causality, FLOPs and traits."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor, nn

from madbench.errors import MadbenchError, ModuleError, UnknownStateError
from madbench.mixers import Size, Traits
from madbench.mixers.decoding import held_numbers
from madbench.mixers.my.arguments import dotted
from madbench.mixers.my.operations import count_flops
from madbench.mixers.my.operator import (
    ModuleMixer,
    make,
    states_cost,
    takes_heads,
    takes_steps,
    wrap_user_errors,
    wrong_output,
)
from madbench.mixers.my.sources import working_folder_on_path
from madbench.mixers.random_state import kept_random_state
from madbench.mixers.traits import output_names

TOKENS = 96  # length of the test input, longer than a block of most modules that work in blocks
CHANGED = (1, 4, 7, 17, 33, 65)
"""Positions of test inputs. For each position, one input is made whose tokens from this position on are changed."""
STEPS = 8  # decoding steps before the first measurement of the state, so that short windows are full
LEAK = 1e-4  # largest accepted change of an earlier row by a later token, relative to the output
SMALL = Size(d_model=64, n_head=2, max_len=16, budget="paper")
"""Size at which the traits of a module are measured."""


@dataclass(frozen=True)
class ModuleAllocation:
    """The measured cost of a user's module. No rank is chosen, so that the cost may be far from the budget."""

    label: Any
    size: Size
    terms: Mapping[str, int]
    """The number of parameters by part of the module. A part is an attribute of the module, such as a submodule."""
    target: int
    leak: str = ""
    """A violation of causality or independence, as a predicate such as "is not causal: ...". Empty if there is none."""

    @property
    def ranks(self) -> dict[str, int]:
        """Always empty, because no rank is chosen for a user's module."""
        return {}

    @property
    def total(self) -> int:
        """The number of parameters of the module."""
        return sum(self.terms.values())

    @property
    def ratio(self) -> float:
        """The number of parameters divided by the budget: ``total / target``."""
        return self.total / self.target

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a sequence of ``seq_len`` tokens.

        If the module has a method ``flops_per_token(seq_len)``, its result is returned. Otherwise the FLOPs are counted
        as :mod:`madbench.mixers.my.operations` describes.
        """
        return flops(self.label.path, self.size, seq_len)

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to the decoding cache, for numbers of ``bytes_per_element`` bytes.

        They are measured as the growth of the state that the module's method ``step`` returns. If it has no such
        method, decoding keeps all inputs of the module.
        """
        return kept_per_token(self.label.path, self.size) * bytes_per_element

    def state(self, seq_len: int) -> int:
        """The count of numbers in the decoding state, which the module's own method ``state(seq_len)`` returns.

        Raises ``UnknownStateError`` if the module has no such method, and ``ModuleError`` if the result is not a whole
        number of at least 0.
        """
        found = stated(self.label.path, self.size, "state", seq_len)
        if found is None:
            raise UnknownStateError(
                f"{self.label} does not state what decoding carries from token to token; give the module a method "
                "state(seq_len) that returns the number of numbers"
            )
        if found != int(found):
            raise ModuleError(f"{self.label}: its state({seq_len}) must be a whole number, got {found!r}")
        return int(found)


@functools.lru_cache(maxsize=1000)
def measure_cost(label: Any, size: Size) -> ModuleAllocation:
    """Measure the cost of a label's module at a size: build it twice, and run it on the CPU.

    Raises ``ModuleError`` if the module cannot be built or run, if its output has another shape or dtype than its input
    or is not finite, if it changes its input, or if the two modules share parameters.
    """
    with kept_random_state(), torch.device("cpu"), torch.no_grad():
        torch.manual_seed(0)
        module, other = make(label.path, size), make(label.path, size)
        theirs = set(map(id, other.parameters()))
        if module is other or any(id(parameter) in theirs for parameter in module.parameters()):
            raise ModuleError(
                f"{label}: two calls return modules that share parameters, so all blocks of a model would share them; "
                "make a new module in every call"
            )
        terms: dict[str, int] = {}
        for name, parameter in module.named_parameters():
            term = name.partition(".")[0]
            terms[term] = terms.get(term, 0) + parameter.numel()
        leak = _leak(label, other, torch.randn(2, min(TOKENS, size.max_len), size.d_model))
    return ModuleAllocation(label, size, terms, 4 * size.d_model**2, leak)


def _leak(label: Any, module: nn.Module, x: Tensor) -> str:
    """Return a predicate such as "is not causal: ..." if output rows depend on more than the tokens up to their own.

    The further dependence may be on later tokens, on other examples of the batch or on earlier calls. The text is empty
    if there is none. The module is measured in training and in evaluation mode, and in both with the initial weights
    and with slightly changed weights, because an output map that starts at zero would hide every dependence. Raises
    ``ModuleError`` if the module fails or its output is invalid or not finite.
    """
    if not _run(label, module, x).isfinite().all():
        raise ModuleError(f"{label}: its output has NaN or infinity for normally distributed inputs {tuple(x.shape)}")
    for is_training in (True, False):
        module.train(is_training)
        if leak := _leak_of_mode(label, module, x):
            return leak
    for parameter in module.parameters():
        parameter.add_(0.02 * torch.randn_like(parameter))
    for is_training in (True, False):
        module.train(is_training)
        if leak := _leak_of_mode(label, module, x):
            return leak
    return ""


def _leak_of_mode(label: Any, module: nn.Module, x: Tensor) -> str:
    y = _run(label, module, x)

    def change(other: Tensor) -> Tensor:
        """The largest change of each output row of the first example, (T,), when ``other`` replaces the input."""
        return (_run(label, module, other) - y)[0].abs().amax(dim=-1)

    least = LEAK * y.abs().max()
    others = x.clone()
    others[1:] += 1
    change_by_others = change(others)
    if change(x).max() > least:
        return "keeps state between calls: the same input gives another output; keep no state outside of forward"
    if change_by_others.max() > least:
        return (
            "mixes the examples of a batch: rows of one example change with another; inputs are (B, T, D), batch first,"
            " and each example is independent"
        )
    for token in (token for token in CHANGED if token < x.shape[1]):
        later = x.clone()
        later[:, token:] += 1
        difference = change(later)[:token]
        if difference.max() > least:
            row = int(difference.argmax())
            return (
                f"is not causal: row {row} changes with the later token {token}; a row may depend only on the tokens up"
                " to its own"
            )
    return ""


def _run(label: Any, module: nn.Module, x: Tensor) -> Tensor:
    """Return the module's output for the input ``x``. Random numbers that the module draws are the same in every call.

    Raises ``ModuleError`` if the module raises an error, returns an invalid output or changes its input.
    """
    torch.manual_seed(1)
    own = x.clone()
    with working_folder_on_path(), wrap_user_errors(f"{label}: its forward fails on an input {tuple(x.shape)}"):
        y = module(own)  # may import modules of the working folder, which training does not search
    if not isinstance(y, Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        raise ModuleError(f"{label}: {wrong_output(y, x)}")
    if not torch.equal(own, x):
        raise ModuleError(
            f"{label}: its forward changes its input in place, but the model still needs the input; copy it first"
        )
    return y


@functools.lru_cache(maxsize=1000)
def flops(path: str, size: Size, seq_len: int) -> float:
    """Forward FLOPs per token of the module at a dotted path, for a sequence of ``seq_len`` tokens.

    If the module has a method ``flops_per_token(seq_len)``, its result is returned. Otherwise the operations of a
    forward pass are counted, on tensors without data if the module allows it.
    """
    if (found := stated(path, size, "flops_per_token", seq_len)) is not None:
        return found
    with kept_random_state(), torch.device("cpu"), torch.no_grad():
        module = make(path, size).eval()
        x = torch.zeros(1, seq_len, size.d_model)
        try:
            return count_flops(copy.deepcopy(module).to("meta"), x.to("meta")) / seq_len
        except Exception:  # it reads values, or has tensors that are not registered as buffers
            return count_flops(module, x) / seq_len


@functools.lru_cache(maxsize=1000)
def stated(path: str, size: Size, name: str, seq_len: int) -> float | None:
    """The number that the method ``name(seq_len)`` of a user's module returns. None if there is no such method.

    Raises ``ModuleError`` if the method fails, or if its result is not a finite number of at least 0.
    """
    with kept_random_state(), torch.device("cpu"), torch.no_grad(), working_folder_on_path():
        module = make(path, size)
        if not states_cost(module, name):
            return None
        with wrap_user_errors(f"my:{dotted(path)}: its {name}"):
            found = getattr(module, name)(seq_len=seq_len)
    is_number = isinstance(found, Real) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or found < 0:
        raise ModuleError(f"my:{dotted(path)}: its {name}({seq_len}) must be a finite number >= 0, got {found!r:.100}")
    return float(found)


@functools.lru_cache(maxsize=1000)
def kept_per_token(path: str, size: Size) -> float:
    """The count of numbers that each token adds to the decoding cache of the module at a dotted path.

    It is the measured growth of the state that the module's method ``step`` returns. If there is no such method, or if
    it fails, decoding keeps all inputs, and the count is ``d_model``.
    """
    with kept_random_state(), torch.device("cpu"), torch.no_grad(), working_folder_on_path():
        module = make(path, size).eval()
        if not takes_steps(module):
            return float(size.d_model)
        state, kept = None, []
        try:
            for _ in range(2 * STEPS):
                _, state = cast(Any, module).step(torch.zeros(1, size.d_model), state)
                kept.append(held_numbers(state))
        except Exception:  # the step fails; ``madbench verify`` reports why
            return float(size.d_model)
    return (kept[-1] - kept[STEPS - 1]) / STEPS


@functools.lru_cache(maxsize=1000)
def traits(label: Any) -> Traits:
    """The traits of a user's module.

    Weights that write to the residual stream are found by measurement, and the module's initial values are kept.
    """
    with kept_random_state(), torch.device("cpu"):
        try:
            mixer = ModuleMixer(measure_cost(label, SMALL))
        except MadbenchError:
            return Traits(trains_alone=True, has_heads=takes_heads(label.path))
        try:
            outputs = tuple(output_names(mixer, SMALL.d_model))
        except Exception:  # no output map was found, or the module needs float32: nothing is scaled down
            outputs = ()
    start = ("module",) if mixer.allocation.total else ()
    has_heads = takes_heads(label.path)
    return Traits(outputs=outputs, keeps_init=start, has_heads=has_heads, trains_alone=True)
