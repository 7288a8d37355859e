"""A user's module as a mixer: made with the arguments that it asks for, and checked at every call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import BudgetError, TrainingError
from madbench.mixers import Size
from madbench.mixers.inputs import check_sequences
from madbench.mixers.my.sources import source, working_folder_on_path

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "d_model": ("d_model", "dim", "width", "hidden_size", "embed_dim", "n_embd"),
    "n_head": ("n_head", "n_heads", "num_heads", "nhead", "heads"),
    "max_len": ("max_len", "seq_len", "max_seq_len", "block_size", "context_length"),
}
"""What a user's module may call the sizes that it asks for; the first one that it has is it."""


class ModuleMixer(nn.Module):
    """A user's module, whose output has to have the shape of its input, (B, T, D)."""

    def __init__(self, allocation: Any, path: str = "auto"):
        super().__init__()
        if path not in ("auto", "dense"):
            raise TrainingError(f"path {path!r} is not known: {allocation.label} has its module's own way alone")
        self.allocation = allocation
        self.module = make(allocation.label.path, allocation.size)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D). Raises ``TrainingError`` for an input or an output of another shape."""
        check_sequences(x, self.allocation.label)
        y = self.module(x)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            raise TrainingError(f"{self.allocation.label}: {wrong_output(y, x)}")
        return y

    def step(self, x: Tensor, cache: Tensor | None = None, slide: bool = False) -> tuple[Tensor, Tensor]:
        """x (B, D) -> (B, D) and the inputs so far (B, T, D), of which all rows are computed again.

        The row is the last one of :meth:`forward` on the inputs so far.
        """
        seen = x[:, None] if cache is None else torch.cat((cache, x[:, None]), dim=1)
        seen = seen[:, -self.allocation.size.max_len :] if slide else seen
        return self(seen)[:, -1], seen

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Tensor]:
        """A prompt (B, T, D) -> its rows (B, T, D) and its inputs.

        The last row is that of T steps. So are the others, unless the module's rows depend on the length of the input.
        """
        most = self.allocation.size.max_len if slide else x.shape[1]
        rows, cache = [self(x[:, :most])], x[:, :most]
        for token in x[:, most:].unbind(1):
            row, cache = self.step(token, cache, slide)
            rows.append(row[:, None])
        return torch.cat(rows, dim=1), cache

    def resolve_path(self, batch: int, length: int) -> str:
        """Every input takes the module's own way."""
        return "dense"


def wrong_output(y: Any, x: Tensor) -> str:
    """What to say of an output that is none of a mixer."""
    expected = f"a mixer gives what it gets, {tuple(x.shape)} of batch, tokens and d_model"
    if isinstance(y, Tensor) and y.shape == x.shape:
        return (
            f"its output is of {y.dtype} and its input of {x.dtype}; a mixer gives what it gets: end with .to(x.dtype)"
        )
    if isinstance(y, Tensor):
        return f"its output has the shape {tuple(y.shape)}; {expected}"
    hint = "; return its first value alone" if isinstance(y, tuple) and y and isinstance(y[0], Tensor) else ""
    return f"its output is a {type(y).__name__}; {expected}, a tensor{hint}"


def make(path: str, size: Size) -> nn.Module:
    """A new module of a user's class or function at a size.

    It is made on the CPU and then moved to where torch makes tensors here, so that it may look at their values.
    Raises ``BudgetError`` where it needs more than sizes, fails or makes no module.
    """
    factory = source(path).make
    with torch.device("cpu"), working_folder_on_path(), failing(f"my:{path} at d_model {size.d_model}"):
        module = factory(**arguments(path, size))
    if not isinstance(module, nn.Module):
        raise BudgetError(f"my:{path}: expected a torch.nn.Module, got {type(module).__name__}")
    if lazy := [name for name, parameter in module.named_parameters() if nn.parameter.is_lazy(parameter)]:
        raise BudgetError(
            f"my:{path}: {lazy[0]!r} has no shape before the first input; make it of the sizes that the module gets, "
            "nn.Linear(d_model, ...) in place of nn.LazyLinear(...)"
        )
    if any(not parameter.is_floating_point() for parameter in module.parameters()):
        raise BudgetError(f"my:{path}: a mixer has parameters of floating-point numbers alone")
    here = torch.empty(0).device  # get_default_device of torch 2.6 does not see `with torch.device(...)`
    return module.to(here) if here.type == "meta" else module


def arguments(path: str, size: Size) -> dict[str, int]:
    """The sizes that a class or function asks for, by the names that it has for them.

    Raises ``BudgetError`` where it asks for something else.
    """
    try:
        parameters = inspect.signature(source(path).make).parameters
    except (TypeError, ValueError):  # of a class of a compiled library
        return {"d_model": size.d_model}
    own = {field: next((name for name in names if name in parameters), "") for field, names in SPELLINGS.items()}
    sizes = {name: getattr(size, field) for field, name in own.items() if name}
    kinds = inspect.Parameter
    wanted = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ]
    if not own["d_model"] and any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters.values()):
        sizes["d_model"] = size.d_model
    if missing := [name for name in wanted if name not in sizes]:
        short = path.rpartition(".")[2]
        raise BudgetError(
            f"my:{path}: {short} needs {', '.join(map(repr, missing))}, and gets sizes alone: d_model, n_head and "
            f"max_len; give it a default, or write a function: def my_mixer(d_model): return {short}(...)"
        )
    return sizes


def asks_for(path: str, name: str) -> bool:
    """Whether a size decides something of the module, by its signature."""
    return bool(set(SPELLINGS[name]) & set(arguments(path, Size(1, 1, 1))))


@contextmanager
def failing(where: str) -> Iterator[None]:
    """Raises whatever a user's code raises in the block, an exit too, as a ``BudgetError`` of a line."""
    try:
        yield
    except (KeyboardInterrupt, BudgetError):
        raise
    except BaseException as error:
        raise BudgetError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
