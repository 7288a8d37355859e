"""A user's module as a mixer. It is built with the arguments that it accepts, and every output is validated."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import BudgetError, TrainingError
from madbench.mixers import Size
from madbench.mixers.decoding import decode_rest
from madbench.mixers.inputs import check_sequences
from madbench.mixers.my.sources import source, working_folder_on_path

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "d_model": ("d_model", "dim", "width", "hidden_size", "embed_dim", "n_embd"),
    "n_head": ("n_head", "n_heads", "num_heads", "nhead", "heads"),
    "max_len": ("max_len", "seq_len", "max_seq_len", "block_size", "context_length"),
}
"""Accepted argument names for the sizes, by size. The first name that the module has is used."""
LAYER_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "index": ("layer_idx", "layer_index", "layer_id"),
    "count": ("n_layer", "n_layers", "num_layers", "num_hidden_layers"),
}
"""Names of required arguments for the place in the model: the block's index, from 0, and the number of blocks."""


class ModuleMixer(nn.Module):
    """A user's module as a mixer. Its output must have the shape of its input, (B, T, D)."""

    def __init__(self, allocation: Any, path: str = "auto"):
        super().__init__()
        if path not in ("auto", "dense"):
            raise TrainingError(f"path {path!r} is not known: {allocation.label} has only the path dense")
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
        """Decodes x (B, D). Returns the row (B, D) and all inputs so far (B, T, D), as the cache.

        All rows are recomputed. The result is the last row of :meth:`forward` on the inputs so far.
        """
        seen = x[:, None] if cache is None else torch.cat((cache, x[:, None]), dim=1)
        seen = seen[:, -self.allocation.size.max_len :] if slide else seen
        return self(seen)[:, -1], seen

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Tensor]:
        """Decodes a prompt (B, T, D). Returns its rows (B, T, D) and its inputs, as the cache.

        The last row equals that of T steps. The other rows do too, unless they depend on the length of the input.
        """
        most = self.allocation.size.max_len if slide else x.shape[1]
        start = x[:, :most]
        return decode_rest(self.step, self(start), start, x[:, most:], slide)

    def resolve_path(self, batch: int, length: int) -> str:
        """Returns the only path, ``dense``."""
        return "dense"


def wrong_output(y: Any, x: Tensor) -> str:
    """The error message for an output that is invalid for a mixer with input ``x``."""
    expected = f"a mixer must return the shape of its input, {tuple(x.shape)} of batch, tokens and d_model"
    if isinstance(y, Tensor) and y.shape == x.shape:
        return f"its output has dtype {y.dtype} and its input {x.dtype}; both must be equal: end with .to(x.dtype)"
    if isinstance(y, Tensor):
        return f"its output has the shape {tuple(y.shape)}; {expected}"
    hint = "; return only the first value" if isinstance(y, tuple) and y and isinstance(y[0], Tensor) else ""
    return f"its output is a {type(y).__name__}; {expected}, as a tensor{hint}"


def make(path: str, size: Size) -> nn.Module:
    """Builds a new module from a user's class or function at a size.

    It is built on the CPU, so that the code may read tensor values, and then moved to torch's current device. Raises
    ``BudgetError`` if it needs arguments other than sizes, fails, or returns no module.
    """
    factory = source(path).make
    with torch.device("cpu"), working_folder_on_path(), wrap_user_errors(f"my:{path} at d_model {size.d_model}"):
        module = factory(**arguments(path, size))
    if not isinstance(module, nn.Module):
        raise BudgetError(f"my:{path}: expected a torch.nn.Module, got {type(module).__name__}")
    if lazy := [name for name, parameter in module.named_parameters() if nn.parameter.is_lazy(parameter)]:
        raise BudgetError(
            f"my:{path}: {lazy[0]!r} has no shape before the first input; use the sizes that the module receives, "
            "nn.Linear(d_model, ...) instead of nn.LazyLinear(...)"
        )
    if any(not parameter.is_floating_point() for parameter in module.parameters()):
        raise BudgetError(f"my:{path}: all parameters of a mixer must be floating-point numbers")
    here = torch.empty(0).device  # get_default_device ignores `with torch.device(...)` in torch 2.6
    return module.to(here) if here.type == "meta" else module


def arguments(path: str, size: Size) -> dict[str, int]:
    """The arguments of a class or function: the sizes that it accepts, by its own names for them.

    The place in the model is passed only if it is required: an argument with a default keeps its default. Raises
    ``BudgetError`` if other arguments are required.
    """
    parameters = _parameters(path)
    if parameters is None:
        return {"d_model": size.d_model}
    own = {field: next((name for name in names if name in parameters), "") for field, names in SPELLINGS.items()}
    sizes = {name: getattr(size, field) for field, name in own.items() if name}
    if not own["d_model"] and any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        sizes["d_model"] = size.d_model
    sizes |= {name: getattr(size.layer, field) for name, field in _layer_arguments(path).items()}
    if missing := [name for name in _required(parameters) if name not in sizes]:
        short = path.rpartition(".")[2]
        raise BudgetError(
            f"my:{path}: {short} needs {', '.join(map(repr, missing))}, but only sizes are passed: d_model, n_head, "
            f"max_len, layer_idx and n_layer; give it a default, or write a function: "
            f"def my_mixer(d_model): return {short}(...)"
        )
    return sizes


def takes_layer(path: str) -> bool:
    """True if a class or function requires its place in the model."""
    return bool(_layer_arguments(path))


def _layer_arguments(path: str) -> dict[str, str]:
    """The required arguments for the place in the model, each with the field of ``Layer`` that it stands for."""
    fields = {name: field for field, names in LAYER_SPELLINGS.items() for name in names}
    return {name: fields[name] for name in _required(_parameters(path) or {}) if name in fields}


def _parameters(path: str) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(source(path).make).parameters
    except (TypeError, ValueError):  # a class of a compiled library has no signature
        return None


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    return [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


def asks_for(path: str, name: str) -> bool:
    """True if the module accepts a size as an argument."""
    return bool(set(SPELLINGS[name]) & set(arguments(path, Size(1, 1, 1))))


@contextmanager
def wrap_user_errors(where: str) -> Iterator[None]:
    """Turns any exception of a user's code in the block, even an exit, into a one-line ``BudgetError``."""
    try:
        yield
    except (KeyboardInterrupt, BudgetError):
        raise
    except BaseException as error:
        raise BudgetError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
