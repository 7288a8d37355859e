"""The steps that all public functions share: arguments of other libraries, display names, and trust in code."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

import pandas as pd

from madbench.analysis.shown_frame import ShownFrame
from madbench.config import Override, override_text, plain_values, short_repr
from madbench.config.allowed import check_argument
from madbench.errors import MadbenchError, suggestion
from madbench.labels import trust
from madbench.labels.names import DisplayNames, row_display_name, using_names
from madbench.labels.sets import names_of
from madbench.mixers.random_state import kept_random_state
from madbench.suites.addressing import nearest_key, parse_overrides

Changes = str | Sequence[str] | Mapping[str, Any]
"""Changes to a profile: ``"training.epochs=20"``, several of them, or ``{"training.epochs": 20}``."""


_P = ParamSpec("_P")
_R = TypeVar("_R")

_LABELED = ("label", "row", "baseline")
"""Columns of a frame whose values are labels, or begin with a label."""
TRAINING = ("run", "plan", "run_language_model")
"""The functions that plan or train their argument ``labels``. Sets and files of labels in this argument may name code,
which is then imported. For :func:`madbench.sweep`, :func:`madbench.grid.load_grid` allows the import."""


def public(verb: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap ``verb`` with the steps that all public functions share.

    - Arguments of NumPy, torch and pandas are converted to Python's types, and iterators to lists.
    - The code of the labels in the arguments may be imported (:mod:`madbench.labels.trust`).
    - Figures and frames show the display names in the argument ``rename``, whose keys are labels in any spelling.
    - The caller's random state does not change.
    - An error about an option names the argument instead (:func:`named_as_arguments`).
    """
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def called(*arguments: _P.args, **settings: _P.kwargs) -> _R:
        if "names" in settings:
            raise TypeError(f"{verb.__name__}() has no argument 'names'; display names are given as rename={{...}}")
        rename: Any = settings.get("rename")
        check_argument("rename", rename, Mapping[str, str] | None)
        plain, plain_settings = plain_values(arguments), plain_values(settings)
        try:
            call = signature.bind(*plain, **plain_settings)
        except TypeError as error:
            unknown = next((name for name in settings if name not in signature.parameters), "")
            hint = suggestion(unknown, signature.parameters) if unknown else ""
            if unknown and not hint and "overrides" in signature.parameters:
                hint = _hint_on_settings(verb.__name__, unknown, settings)
            hint = hint or _hint_on_positions(verb.__name__, signature, arguments)
            raise TypeError(f"{verb.__name__}() {error}{hint}") from None
        labels: Any = call.arguments.get("labels", ())
        with suppress(TypeError):  # labels of a wrong type: the verb itself raises the error
            trust.allow_typed(labels, with_files=verb.__name__ in TRAINING)
        names = names_of(labels, DisplayNames().with_names(rename or {}))
        with using_names(names), kept_random_state():
            with named_as_arguments(signature.parameters):
                result = verb(*call.args, **call.kwargs)
            if rename and isinstance(result, pd.DataFrame):
                label_columns = {name: result[name] for name in _LABELED if name in result}
                columns = {
                    name: column.map(row_display_name, na_action="ignore") for name, column in label_columns.items()
                }
                return result.with_columns(**columns) if isinstance(result, ShownFrame) else result.assign(**columns)
            return result

    return called


def _hint_on_settings(name: str, unknown: str, settings: Mapping[str, Any]) -> str:
    """The way to give a setting of the profile to the function ``name``. Empty if ``unknown`` is near no setting."""
    from_tasks = "language_model" if name == "run_language_model" else settings.get("tasks")
    nearest = nearest_key(unknown, from_tasks)
    value = short_repr(settings[unknown])
    return f"; settings of the profile are given as overrides={{{nearest!r}: {value}}}" if nearest else ""


def _hint_on_positions(name: str, signature: inspect.Signature, arguments: Sequence[object]) -> str:
    """The correct call of the function ``name`` if it got too many positional ``arguments``. Otherwise empty."""
    parameters = signature.parameters.values()
    positions = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if len(arguments) <= len(positions):
        return ""
    if positions[:1] == ["self"]:
        positions, arguments = positions[1:], arguments[1:]
    *before, first = arguments[: len(positions)]
    labels = [first, *arguments[len(positions) :]]
    if positions[-1] in ("labels", "grid") and all(isinstance(label, str) for label in labels):
        return f"; labels are given as a list: {name}({', '.join(map(repr, [*before, labels]))})"
    return f"; by position it takes only {' and '.join(positions)}"


@contextmanager
def named_as_arguments(parameters: Container[str]) -> Iterator[None]:
    """A context in which errors about options name the arguments of a Python function instead.

    ``--baseline S-p: ...`` becomes ``baseline=S-p: ...`` if ``parameters`` has ``baseline``. Commands to type, such as
    ``madbench run S --group 2``, stay as they are.
    """
    try:
        yield
    except MadbenchError as error:
        texts = _COMMAND.split(str(error))
        texts[::2] = [_OPTION.sub(lambda option: _argument(option, parameters), text) for text in texts[::2]]
        if error.args == (str(error),):
            error.args = ("".join(texts),)
        raise


_COMMAND = re.compile(r"(madbench [^;\n]*)")
_OPTION = re.compile(r"--([a-z][a-z-]*)(?: ([A-Z0-9][^\s:;,]*|[^\s:;,]+(?=:|;|,|$| has no effect)))?")
"""Matches an option in a message together with its value: a word in capitals, a number, or the text before a colon, a
comma or ``has no effect``.
"""


def _argument(option: re.Match[str], parameters: Container[str]) -> str:
    name = option[1].replace("-", "_")
    if name not in parameters:
        return option[0]
    return f"{name}={option[2]}" if option[2] else name


def changes_of(overrides: Changes) -> tuple[Override, ...]:
    """Return changes to a profile as overrides. Raises ``ConfigError`` for a text that is not ``KEY=VALUE``."""
    if isinstance(overrides, Mapping):
        return parse_overrides(override_text(key, value, "overrides") for key, value in overrides.items())
    return parse_overrides(words_of(overrides))


def words_of(words: str | Iterable[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)
