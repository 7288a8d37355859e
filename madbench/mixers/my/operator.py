"""The mixer that wraps a user's module. It builds the module with the arguments it accepts, and validates outputs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FunctionType, MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn

from madbench.errors import BudgetError, ModuleError, TrainingError
from madbench.labels.budgets import softmax_flops, softmax_state
from madbench.mixers import Size
from madbench.mixers.decoding import decode_rest
from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.my.arguments import arguments_of, dotted, written
from madbench.mixers.my.sources import source, working_folder_on_path

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "d_model": ("d_model", "dim", "width", "hidden_size", "embed_dim", "n_embd"),
    "n_head": ("n_head", "n_heads", "num_heads", "nhead", "heads"),
    "max_len": ("max_len", "seq_len", "max_seq_len", "block_size", "context_length"),
}
"""By size: the names of arguments through which a module can receive the size. If a module has several of them, the
first is used."""
LAYER_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "index": ("layer_idx", "layer_index", "layer_id"),
    "count": ("n_layer", "n_layers", "num_layers", "num_hidden_layers"),
}
"""Names of arguments for the layer's place in the model: ``index`` is that of its block, from 0, and ``count`` is the
number of blocks. They are passed only if the module requires them."""
WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word", "None": "null"}
"""By annotation of an argument: the values that the argument accepts, in words. An argument with any other annotation
accepts every value."""


class ModuleMixer(nn.Module):
    """A mixer that wraps a user's module, which must map (B, T, D) to the same shape."""

    def __init__(self, allocation: Any, path: str = "auto"):
        super().__init__()
        if path not in ("auto", "dense"):
            raise TrainingError(f"path {path!r} is not known: {allocation.label} has only the path dense")
        self.allocation = allocation
        self.module = make(allocation.label.path, allocation.size)
        self.has_own_step = takes_steps(self.module)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the module to x (B, T, D).

        Raises ``TrainingError`` if the input is invalid, or the output has another shape.
        """
        check_sequences(x, self.allocation.label, self.allocation.size.d_model)
        y = self.module(x)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            raise TrainingError(f"{self.allocation.label}: {wrong_output(y, x)}")
        return y

    def step(self, x: Tensor, cache: Tensor | None = None, slide: bool = False) -> tuple[Tensor, Tensor]:
        """Decode one token x (B, D). Return the output (B, D) and the next cache.

        If the module has ``step(x, state) -> (y, state)``, this method is called, and the cache is its state. The first
        state is None. Otherwise the cache is all inputs so far, or the last ``max_len`` inputs if ``slide`` is true,
        and the output is the last row of :meth:`forward` for these.
        """
        check_tokens(x, self.allocation.label, self.allocation.size.d_model)
        if self.has_own_step:
            answer = cast(Any, self.module).step(x, cache)
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise TrainingError(
                    f"{self.allocation.label}: its step must return (y, state), got {type(answer).__name__}"
                )
            y, state = answer
            if not isinstance(y, Tensor) or y.shape != x.shape:
                raise TrainingError(f"{self.allocation.label}: its step: {wrong_output(y, x)}")
            return y, state
        seen = x[:, None] if cache is None else torch.cat((cache, x[:, None]), dim=1)
        seen = seen[:, -self.allocation.size.max_len :] if slide else seen
        return self(seen)[:, -1], seen

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Tensor]:
        """Compute a prompt x (B, T, D). Return the outputs (B, T, D) and the next cache, as in :meth:`step`.

        The last row equals that of T calls of :meth:`step`. The other rows equal those of the calls too, unless the
        module's rows depend on the length of the input.
        """
        if self.has_own_step:
            first, state = self.step(x[:, 0])
            return decode_rest(self.step, first[:, None], state, x[:, 1:], slide)
        most = self.allocation.size.max_len if slide else x.shape[1]
        start = x[:, :most]
        return decode_rest(self.step, self(start), start, x[:, most:], slide)

    def resolve_path(self, batch: int, length: int) -> str:
        """Return the name of the only path (implementation), ``dense``."""
        return "dense"


def wrong_output(y: Any, x: Tensor) -> str:
    """The error message for an output ``y`` with another type, shape or dtype than the input ``x`` of a mixer."""
    expected = f"a mixer must return the shape of its input, {tuple(x.shape)} of batch, tokens and d_model"
    if isinstance(y, Tensor) and y.shape == x.shape:
        return f"its output has dtype {y.dtype} and its input {x.dtype}; both must be equal: end with .to(x.dtype)"
    if isinstance(y, Tensor):
        return f"its output has the shape {tuple(y.shape)}; {expected}"
    hint = "; return only the first value" if isinstance(y, tuple) and y and isinstance(y[0], Tensor) else ""
    return f"its output is a {type(y).__name__}; {expected}, as a tensor{hint}"


def make(path: str, size: Size) -> nn.Module:
    """Build a new module at a size, from the user's class or function that ``path`` names, with its arguments.

    The module is built on the CPU, so that the code may read tensor values. If torch's current device is ``meta``, the
    module is then moved there. Raises ``ModuleError`` if the code needs arguments other than sizes, fails, or does not
    return a module whose parameters all have a shape and a floating-point dtype.
    """
    factory = source(path).make
    with torch.device("cpu"), working_folder_on_path(), wrap_user_errors(f"my:{path} at d_model {size.d_model}"):
        module = factory(**arguments(path, size))
    if not isinstance(module, nn.Module):
        raise ModuleError(f"my:{path}: expected a torch.nn.Module, got {type(module).__name__}")
    if lazy := [name for name, parameter in module.named_parameters() if nn.parameter.is_lazy(parameter)]:
        raise ModuleError(
            f"my:{path}: {lazy[0]!r} has no shape before the first input; use the sizes that the module receives, "
            "nn.Linear(d_model, ...) instead of nn.LazyLinear(...)"
        )
    if any(not parameter.is_floating_point() for parameter in module.parameters()):
        raise ModuleError(f"my:{path}: all parameters of a mixer must be floating-point numbers")
    here = torch.empty(0).device  # get_default_device ignores `with torch.device(...)` in torch 2.6
    return module.to(here) if here.type == "meta" else module


def arguments(path: str, size: Size) -> dict[str, Any]:
    """The keyword arguments with which the class or function of a label's path is called, under the names it uses.

    - The arguments of the label, which take precedence over all others.
    - The sizes that the class accepts, such as ``d_model``.
    - The layer's index and the number of layers, if they are required. An argument with a default keeps its default.
    - The arguments that the class's ``fit`` returns. Under the budget ``paper``, ``fit`` is called only if a required
      argument is missing.

    Raises ``ModuleError`` if the class requires other arguments, or lacks an argument of the label or of ``fit``.
    """
    parameters, of_label = _parameters(path), arguments_of(path)
    if parameters is None:
        return {"d_model": size.d_model} | of_label
    check_arguments(path)
    sizes = {name: getattr(size, field) for name, field in _size_arguments(parameters).items()}
    sizes |= {name: getattr(size.layer, field) for name, field in _layer_arguments(path).items()}
    short = dotted(path).rpartition(".")[2]
    needs_fit = any(name not in sizes | of_label for name in _required(parameters))
    sizes |= _fitted(path, size, parameters, needs_fit) | of_label
    if missing := [name for name in _required(parameters) if name not in sizes]:
        raise ModuleError(
            f"my:{path}: {short} needs {', '.join(map(repr, missing))}, but only sizes are passed: d_model, n_head, "
            f"max_len, layer_idx and n_layer; give it in the label, my:{dotted(path)}({missing[0]}=...), or a default"
        )
    return sizes


def check_arguments(path: str) -> None:
    """Raise ``ModuleError`` if an argument in a label is invalid for the module's class or function.

    An argument is invalid if the class does not have it, cannot take it by name, or gets it from the model, as a size.
    Its value is invalid if the annotation of the argument excludes it. Only annotations that are types in ``WORDS`` or
    unions of these are understood; all others allow every value.
    """
    parameters, of_label = _parameters(path), arguments_of(path)
    if parameters is None:
        return
    sizes = [*_size_arguments(parameters), *_layer_arguments(path)]
    short = dotted(path).rpartition(".")[2]
    if unnamed := [name for name in (*sizes, *of_label) if name in parameters and _is_unnamed(parameters[name])]:
        raise ModuleError(f"my:{path}: {short} must take {unnamed[0]!r} by name; remove the '/' from its arguments")
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [name for name, each in parameters.items() if each.kind not in kinds and name not in sizes]
    for name, value in of_label.items():
        if name in sizes:
            raise ModuleError(f"{short}: {name!r} is set by the model; leave it out of the label")
        if name not in names and not _takes_any(parameters):
            options = f"; its arguments: {', '.join(names)}" if names else "; it has none besides sizes"
            raise ModuleError(f"{short} has no argument {name!r}{options}")
        if name in names and (expected := _expected(value, parameters[name])):
            signature = f"{name}: {inspect.formatannotation(parameters[name].annotation)}".replace("'", "")
            raise ModuleError(
                f"{short}({written({name: value})}): its signature has '{signature}'; expected {expected}"
            )


def _expected(value: Any, parameter: inspect.Parameter) -> str:
    """The values that an argument's annotation allows, in words for a message.

    Empty if the annotation allows ``value``, or has types that are not in ``WORDS``.
    """
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    kinds = [kind.strip() for kind in text.split("|")]
    own = "None" if value is None else type(value).__name__
    is_allowed = own in kinds or (own == "int" and "float" in kinds) or (value is None and parameter.default is None)
    return "" if is_allowed or not WORDS.keys() >= {*kinds} else " or ".join(WORDS[kind] for kind in kinds)


def _size_arguments(parameters: Mapping[str, inspect.Parameter]) -> dict[str, str]:
    """The parameters of a class that stand for sizes: name of the parameter to name of the field of ``Size``."""
    own = {field: next((name for name in names if name in parameters), "") for field, names in SPELLINGS.items()}
    if not own["d_model"] and _takes_any(parameters):
        own["d_model"] = "d_model"
    return {name: field for field, name in own.items() if name}


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """True if a class or function has ``**kwargs``."""
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _fitted(path: str, size: Size, parameters: Mapping[str, inspect.Parameter], is_needed: bool) -> dict[str, Any]:
    """Call the method ``fit(d_model, n_head, max_len, budget)`` of a class, and return the arguments that it chooses.

    The result is empty if the class has no ``fit``. It is also empty under the budget ``paper``, where arguments keep
    their defaults, unless ``is_needed`` is true. ``is_needed`` is true if the class cannot be built without these
    arguments. ``parameters`` are those of the class.

    ``fit`` receives the budget as a number of parameters. If another quantity is matched, such as FLOPs, the budget is
    in this quantity, and ``fit`` also receives the name of the quantity as ``match``.

    Raises ``BudgetError`` if another quantity is matched and no ``fit`` accepts ``match``. Raises ``ModuleError`` if
    ``fit`` fails, or returns anything else than arguments of the class.
    """
    fit, quantity, budget = own_fit(source(path).make), size.rule.quantity, 4 * size.d_model**2
    match = {} if quantity == "parameters" else {"match": quantity}
    if match and (fit is None or "match" not in inspect.signature(fit).parameters):
        name = dotted(path).rpartition(".")[2]
        has = "its fit matches parameters only" if fit else "it has no fit"
        raise BudgetError(
            f"my:{dotted(path)} cannot match {size.rule.name}: {has}; write a classmethod {name}.fit(cls, d_model, "
            f"n_head, max_len, budget, match) that returns arguments, where match is {quantity!r} and budget is the "
            f"{size.rule.name} of softmax attention, or use --match parameters"
        )
    if fit is None or not (size.rule.chooses_ranks or is_needed):
        return {}
    if match:
        budget = math.floor(softmax_flops(size) if quantity == "flops" else softmax_state(size))
    with working_folder_on_path(), wrap_user_errors(f"my:{dotted(path)}: its fit"):
        fitted = fit(d_model=size.d_model, n_head=size.n_head, max_len=size.max_len, budget=budget, **match)
    if not isinstance(fitted, Mapping) or not all(
        isinstance(name, str) and (name in parameters or _takes_any(parameters)) for name in fitted
    ):
        raise ModuleError(f"my:{dotted(path)}: its fit must return a dict of its own arguments, got {fitted!r:.100}")
    return dict(fitted)


def own_fit(made: Callable[..., Any]) -> Callable[..., Any] | None:
    """The method ``fit`` of a class, which chooses the class's arguments for a budget. None if there is none.

    A property ``fit`` does not count, because it may mean something else. An instance method counts only if it has an
    argument ``budget``, a classmethod or static method always.
    """
    fit: Callable[..., Any] | None = getattr(made, "fit", None)
    is_plain = isinstance(inspect.getattr_static(made, "fit", None), FunctionType)
    if not callable(fit) or (is_plain and "budget" not in inspect.signature(fit).parameters):
        return None
    return fit


def takes_steps(module: nn.Module | Callable[..., Any]) -> bool:
    """True if a module or class has a method that can be called as ``step(x, state)``."""
    return _has_method(module, "step", None, None)


def states_cost(module: nn.Module, name: str) -> bool:
    """True if a module has a method ``name`` that can be called with ``seq_len`` alone, as ``flops_per_token``."""
    return _has_method(module, name, seq_len=1)


def _has_method(owner: Any, name: str, *positional: Any, **named: Any) -> bool:
    """True if a module or class has a method ``name`` that accepts these arguments.

    A property and a submodule of this name do not count.
    """
    method = inspect.getattr_static(owner, name, None)
    if not isinstance(method, FunctionType | MethodType | classmethod | staticmethod):
        return False
    own = (owner,) if isinstance(owner, type) and isinstance(method, FunctionType) else ()
    with suppress(TypeError, ValueError):
        inspect.signature(getattr(owner, name)).bind(*own, *positional, **named)
        return True
    return False


def takes_layer(path: str) -> bool:
    """True if the class or function at a path requires its layer's index, or the number of layers, as an argument."""
    return bool(_layer_arguments(path))


def _layer_arguments(path: str) -> dict[str, str]:
    """The required arguments for the layer's index and the number of layers, by name.

    The value is the name of the field of :class:`madbench.labels.family.Layer`: ``index`` or ``count``.
    """
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


def _is_unnamed(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.POSITIONAL_ONLY


def takes_heads(path: str) -> bool:
    """True if the class or function at a path has an argument for the number of heads, by any of its ``SPELLINGS``."""
    return bool(set(SPELLINGS["n_head"]) & set(_parameters(path) or {}))


@contextmanager
def wrap_user_errors(where: str) -> Iterator[None]:
    """A context for a user's code that replaces every exception, even an exit, by a ``ModuleError``.

    The message is one line and begins with ``where``. ``KeyboardInterrupt`` and ``BudgetError`` are not replaced.
    """
    try:
        yield
    except (KeyboardInterrupt, BudgetError):
        raise
    except BaseException as error:
        raise ModuleError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
