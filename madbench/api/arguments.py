"""The arguments that several public functions share.

Each group of arguments is a ``TypedDict``, from which editors and type checkers read the types. The default of an
argument and its sentence in ``help`` come from the dataclass that declares the command line's option of this name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, get_type_hints

from madbench.api.calls import Changes, changes_of, words_of
from madbench.config import check_seeds, field_docs, parse_seeds
from madbench.config.allowed import check_argument, parameter_types
from madbench.config.options import declared_parameter
from madbench.errors import ConfigError
from madbench.execute.base import ForceOption, Policy, seconds_of
from madbench.execute.options import Compile, MachineOptions, RunOptions, parse_group
from madbench.grid import Mode
from madbench.jobs import Fidelity
from madbench.labels import Labels
from madbench.suites.options import BudgetName, canonical_budget
from madbench.trackers.options import TrackOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChoiceArguments(TypedDict, total=False):
    """The arguments that choose stored runs (:class:`madbench.analysis.choice.Choice`)."""

    profile: Path | str | None
    overrides: Changes
    tasks: str | Iterable[str] | None
    fidelity: Fidelity
    budget: BudgetName | None
    protocol: str | None
    corpus: str | None


class ExecutionArguments(TypedDict, total=False):
    """The arguments that say how and where jobs run, and when training stops (:data:`EXECUTION`)."""

    slots: int | None
    threads: int | None
    micro_batch: int | None
    group: int | Literal["auto"] | None
    no_cuda_graph: bool
    compile: Compile
    keep_weights: bool
    on: str | None
    devices: str | int | Sequence[int] | None
    max_failures: int | None
    time_limit: str | float | None
    track: str | Sequence[str] | None
    track_project: str | None
    track_name: str | None


EXECUTION = (RunOptions, MachineOptions, Policy, TrackOptions)
"""The dataclasses that declare the options of :class:`ExecutionArguments`."""


class CorpusArguments(TypedDict, total=False):
    """The arguments that name a corpus (:class:`madbench.experiment.options.TrainingCorpus`)."""

    corpus: Path | str | None
    tokenizer: str | None
    dtype: str | None


class SharedArguments(CorpusArguments, total=False):
    """The arguments of every function that plans or trains (:class:`madbench.experiment.options.SharedOptions`)."""

    overrides: Changes
    device: str
    results: Path | str


class PlanArguments(SharedArguments, total=False):
    """The arguments of ``plan`` (:class:`madbench.experiment.options.GridOptions`)."""

    profile: Path | str | None
    tasks: str | Iterable[str] | None
    seeds: str | int | Sequence[int]
    fidelity: Fidelity
    budget: BudgetName


class RunArguments(PlanArguments, ExecutionArguments, total=False):
    """The arguments of ``run``."""


class LanguageArguments(SharedArguments, ExecutionArguments, total=False):
    """The arguments of ``run_language_model``."""

    seeds: str | int | Sequence[int]
    budget: BudgetName


class GridArguments(TypedDict, total=False):
    """The keys of a grid (:class:`madbench.grid.GridFile`).

    None stands for the value in the grid file or, without a file, for the default.
    """

    vary: Mapping[str, Any] | str | Sequence[str] | None
    tasks: str | Iterable[str] | None
    seeds: str | int | Sequence[int] | None
    profile: Path | str | None
    fidelity: Fidelity | None
    budget: BudgetName | None
    set: Mapping[str, Any] | None
    mode: Mode | None
    baseline: Mapping[str, Any] | None
    rows: Sequence[Mapping[str, Any]] | None


class SweepArguments(GridArguments, SharedArguments, ExecutionArguments, total=False):
    """The arguments of ``sweep``."""


@dataclass(frozen=True)
class PythonArguments:
    """The arguments of public functions that are not fields of a dataclass of options.

    :func:`with_arguments` takes their defaults and sentences from here.
    """

    labels: Labels = ()
    """Labels or sets of labels, such as "G-cg-q-12o" or ["{S,R}-c", "@table1"]."""
    overrides: Changes = ()
    """Changes to the profile, such as "training.epochs=20" or {"training.epochs": 20}."""
    force: ForceOption = False
    rename: Mapping[str, str] | None = None
    """Display names of labels, such as {"cd:gdn-cg": "Gated DeltaNet"}."""


def seeds_of(seeds: str | int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds as a tuple. ``seeds`` is a number, a sequence of numbers, or a text such as ``0-4``.

    Raises ``ConfigError`` for anything else, and for repeated seeds.
    """
    return tuple(parse_seeds(seeds)) if isinstance(seeds, str) else check_seeds(seeds)


def tasks_of(tasks: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of tasks as a tuple. Raises ``ConfigError`` if there are none."""
    if not (names := words_of(tasks)):
        raise ConfigError("tasks=[]: names no task; without tasks the default tasks are used")
    return names


def _group_of(group: int | str) -> int | None:
    """Convert the argument ``group``, a number of jobs or ``auto``, like ``--group``. None for ``auto``.

    Raises ``ConfigError`` for any other value (:func:`parse_group`).
    """
    try:
        return parse_group(str(group))
    except ValueError as error:
        raise ConfigError(f"group: {error}") from None


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "profile": str,
    "overrides": changes_of,
    "tasks": tasks_of,
    "seeds": seeds_of,
    "budget": canonical_budget,
    "group": _group_of,
    "devices": lambda devices: ",".join(map(str, [devices] if isinstance(devices, str | int) else devices)),
    "time_limit": lambda limit: seconds_of(limit) if isinstance(limit, str) else limit,
    "track": lambda trackers: [*words_of(trackers)],
}
"""The functions that turn an argument of Python into the value of the field with the same name."""


def field_values(declaration: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of ``arguments`` that are named like fields of the dataclass ``declaration``.

    Arguments that Python functions accept in other forms are converted to the field's type: ``"0-4"`` to a tuple of
    seeds, for example. None stays None.
    """
    names = [field.name for field in dataclasses.fields(declaration) if field.name in arguments]
    values = {name: arguments[name] for name in names}
    converted = {name: _CONVERSIONS[name](values[name]) for name in _CONVERSIONS if values.get(name) is not None}
    return values | converted


def with_arguments(
    group: type[Any], *declarations: type[Any], unset: Collection[str] = ()
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A decorator for a function with an argument ``**NAME: Unpack[group]``.

    ``help`` then shows each argument in the ``TypedDict`` ``group`` like an ordinary argument, with a type, a default
    and a sentence:

    - The type comes from ``group``.
    - The default and the sentence come from the field of the same name in :class:`PythonArguments`, or else in the
      first of ``declarations``, dataclasses of options, that has such a field.
    - Arguments in ``unset`` have the default None instead, and their sentence ends with the default of the field.

    Arguments of the function that are not in ``group`` also get a sentence, unless the docstring describes them.

    A call of the function raises ``ConfigError`` if a keyword-only argument has a value of a wrong type, or a number
    outside of the bounds that its field declares (:func:`madbench.config.allowed.check_argument`).
    """
    sources: list[type[Any]] = [PythonArguments, *declarations]
    defaults = {field.name: field.default for source in reversed(sources) for field in dataclasses.fields(source)}
    sentences = {name: text for source in reversed(sources) for name, text in _sentences(source).items()}
    options = {
        name: declared_parameter(hint)
        for source in reversed(sources)
        for name, hint in get_type_hints(source, include_extras=True).items()
    }
    for name in unset:
        default, sentence = defaults[name], sentences.get(name, "")
        if isinstance(default, str | int) and default != "" and "Default: " not in sentence:
            sentences[name] = f"{sentence} Default: {default}."
    defaults |= dict.fromkeys(unset)

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)
        *own, variadic = signature.parameters.values()
        assert variadic.annotation == f"Unpack[{group.__name__}]"
        keyword, own_types = inspect.Parameter.KEYWORD_ONLY, parameter_types(function)
        own = [each.replace(annotation=own_types[each.name]) if each.kind == keyword else each for each in own]
        shared = [
            inspect.Parameter(name, keyword, default=defaults[name], annotation=hint)
            for name, hint in get_type_hints(group).items()
        ]
        hints = {each.name: each.annotation for each in (*own, *shared) if each.kind == keyword}

        @functools.wraps(function)
        def checked(*arguments: _P.args, **settings: _P.kwargs) -> _R:
            for name, value in settings.items():
                if name in hints:
                    check_argument(name, value, hints[name], options.get(name))
            return function(*arguments, **settings)

        vars(checked)["__signature__"] = signature.replace(parameters=[*own, *shared])
        docstring = inspect.cleandoc(function.__doc__ or "")
        names = [parameter.name for parameter in (*own, *shared) if f"\n    {parameter.name}: " not in docstring]
        lines = [_HANGING.fill(f"{name}: {sentences[name]}") for name in names if name in sentences]
        checked.__doc__ = "\n".join([docstring, "", "Shared arguments:", *lines])
        return checked

    return decorate


_HANGING = textwrap.TextWrapper(
    width=100, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
)


def _sentences(declaration: type[Any]) -> dict[str, str]:
    """The text that ``help`` shows for each field of a dataclass of options: field name to text.

    It joins the help of the option that the field declares, the string below the field, and the default that the option
    shows. Fields with neither an option nor a string are left out.
    """
    sentences = dict(field_docs(declaration))
    for name, hint in get_type_hints(declaration, include_extras=True).items():
        if option := declared_parameter(hint):
            default = option.settings.get("show_default")
            parts = [option.help, sentences.get(name, ""), f"Default: {default}." if default else ""]
            sentences[name] = " ".join(" ".join(parts).split())
    return sentences
