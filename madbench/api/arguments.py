"""The arguments that several public functions share.

Each group of arguments is a ``TypedDict``, from which editors and type checkers read the types. The defaults, and the
sentences of ``help``, are those of the dataclasses that declare the options of the command line.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypedDict, TypeVar, get_args, get_type_hints

from madbench.api.calls import Changes, changes_of, words_of
from madbench.config import field_docs
from madbench.config.options import Parameter
from madbench.jobs import Fidelity
from madbench.suites.options import BudgetName, canonical_budget

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChoiceArguments(TypedDict, total=False):
    """The arguments that choose stored runs (:class:`madbench.analysis.choice.Choice`)."""

    profile: str | None
    overrides: Changes
    tasks: str | Iterable[str] | None
    fidelity: Fidelity
    budget: BudgetName | None
    protocol: str | None
    corpus: str | None


@dataclass(frozen=True)
class PythonArguments:
    """The arguments that the command line reads in another form, as words or for all verbs."""

    labels: str | Sequence[str] = ()
    """Labels or sets of labels, such as "G-cg-q-12o" or ["{S,R}-c", "@table1"]."""
    overrides: Changes = ()
    """Changes to the profile, such as "training.epochs=20" or {"training.epochs": 20}."""
    rename: Mapping[str, str] | None = None
    """Display names of labels, such as {"cd:gdn-cg": "Gated DeltaNet"}."""


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "profile": str,
    "overrides": changes_of,
    "tasks": words_of,
    "budget": canonical_budget,
}
"""The functions that turn an argument of Python into the value of the field with the same name."""


def field_values(declaration: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The ``arguments`` that are fields of a dataclass, as values of these fields. None stays None."""
    names = [field.name for field in dataclasses.fields(declaration) if field.name in arguments]
    values = {name: arguments[name] for name in names}
    converted = {name: _CONVERSIONS[name](values[name]) for name in _CONVERSIONS if values.get(name) is not None}
    return values | converted


def shows_arguments(group: type[Any], *declarations: type[Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A decorator for a function with an argument ``**NAME: Unpack[group]``.

    ``help`` then shows the arguments in the group like other arguments. The types are those of the group. The defaults
    and sentences are those of :class:`PythonArguments` and of the dataclasses ``declarations``. If several of them have
    a field of this name, the first counts. Other arguments also get such a sentence if the docstring has none.
    """
    sources: list[type[Any]] = [PythonArguments, *declarations]
    defaults = {field.name: field.default for source in reversed(sources) for field in dataclasses.fields(source)}
    sentences = {name: text for source in reversed(sources) for name, text in _sentences(source).items()}

    def show(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)
        *own, variadic = signature.parameters.values()
        assert variadic.annotation == f"Unpack[{group.__name__}]"
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(name, keyword, default=defaults[name], annotation=hint)
            for name, hint in get_type_hints(group).items()
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *shared])
        docstring = inspect.cleandoc(function.__doc__ or "")
        names = [parameter.name for parameter in (*own, *shared) if f"\n    {parameter.name}: " not in docstring]
        lines = [_HANGING.fill(f"{name}: {sentences[name]}") for name in names if name in sentences]
        function.__doc__ = "\n".join([docstring, "", "Shared arguments:", *lines])
        return function

    return show


_HANGING = textwrap.TextWrapper(
    width=100, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
)


def _sentences(declaration: type[Any]) -> dict[str, str]:
    """The help of each option of a dataclass, and the string below each field, by the name of the field."""
    sentences = dict(field_docs(declaration))
    for name, hint in get_type_hints(declaration, include_extras=True).items():
        if option := next((detail for detail in get_args(hint)[1:] if isinstance(detail, Parameter)), None):
            default = option.settings.get("show_default")
            sentences[name] = " ".join(
                filter(None, [option.help, sentences.get(name), f"Default: {default}." if default else ""])
            )
    return sentences
