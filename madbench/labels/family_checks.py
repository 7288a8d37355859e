"""Checks of the members of a family when it is loaded, and of the results of its methods."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from madbench.errors import FamilyError, MadbenchError, suggestion
from madbench.labels.family import Explanation, Family
from madbench.labels.traits import Traits
from madbench.plugins.registry import fault_of_class, member_of, wrap_errors

MEMBERS = {name: member for name, member in vars(Family).items() if not name.startswith("_")}
"""The members of :class:`Family` by name: an abstract member, or the default of an optional one."""


def label_of(family: str, answer: Any) -> Any:
    """Return ``answer``, the label that the method ``parse`` of a family returned.

    Raises ``TypeError`` unless ``answer`` is hashable and its text begins with the name ``family`` and a colon. The
    text of a label must determine its family.
    """
    hash(answer)
    if answer is None or not str(answer):
        raise TypeError(f"expected a label, got {answer!r:.100}")
    if not str(answer).startswith(f"{family}:"):
        raise TypeError(f"expected a label of this family, {family}:..., got {str(answer)!r:.100}")
    return answer


def _text(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"expected a text, got {answer!r:.100}")
    return answer


def _texts_by_name(answer: Any) -> dict[str, str]:
    texts = dict(answer)
    if not _are_texts((*texts, *texts.values())):
        raise TypeError(f"expected a mapping of names to texts, got {texts!r:.60}")
    return texts


def _explanations(answer: Any) -> tuple[Explanation, ...]:
    rows = tuple(answer)
    for row in rows:
        if not isinstance(row, Explanation):
            raise TypeError(f"expected rows of madbench.mixers.Explanation, got {row!r:.60}")
    return rows


def _allocation(answer: Any) -> Any:
    """Return an allocation after reading all its numbers once.

    An error in a number is then raised here, where the message names the family that caused it.
    """
    dict(answer.terms), dict(answer.ranks), str(answer.label)
    for number in (
        answer.total, answer.target, answer.ratio, answer.flops_per_token(answer.size.max_len),
        answer.state_bytes_per_token(),
    ):  # fmt: skip
        float(number)
    return answer


def _traits(answer: Any) -> Traits:
    if not isinstance(answer, Traits):
        raise TypeError(f"expected madbench.mixers.Traits, got {answer!r:.100}")
    return answer


def _unless_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda answer: None if answer is None else check(answer)


ANSWERS: dict[str, Callable[[Any], Any]] = {
    name: lambda answer: answer for name, member in MEMBERS.items() if inspect.isfunction(member)
} | {
    "factors": _texts_by_name, "neighbors": tuple, "explain": _explanations, "solve": _allocation, "checks": iter,
    "effective": dict, "levels": _texts_by_name, "labels": tuple, "identity": _unless_none(_text),
    "preset_spelling": _text, "traits": _traits, "begins": bool, "missing_package": _text, "blocks": tuple,
    "block_period": int, "takes_layer": bool, "may_import": bool, "own_modules": tuple,
}  # fmt: skip
"""For each method of a family, a function that validates the method's result, and converts it or raises."""


class GuardedFamily:
    """A wrapper for a family of another package. Exceptions of the family's code become ``FamilyError``.

    The message begins with ``where`` and names the method. Results of methods are validated and converted as
    ``ANSWERS`` says. Other members are passed on unchanged. Errors of madbench are not converted, nor is
    ``MemoryError``, because the package did not cause it.
    """

    def __init__(self, family: Any, where: str):
        self._family, self._where = family, where
        self._answers: Mapping[str, Callable[[Any], Any]] = {
            **ANSWERS,
            "parse": functools.partial(label_of, family.name),
        }
        self.__module__ = type(family).__module__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        with self._errors_of(name, AttributeError):
            member = getattr(self._family, name)
        if name in self._answers:
            member = self.__dict__[name] = self._method(name, member)
        return member

    def _errors_of(self, name: str, *own: type[BaseException]) -> AbstractContextManager[None]:
        return wrap_errors(f"{self._where}: {name}", FamilyError, (MadbenchError, MemoryError, *own))

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        answer_of = self._answers[name]

        def call(*arguments: Any, **choices: Any) -> Any:
            try:
                answer = answer_of(method(*arguments, **choices))
            except BaseException as error:  # not a context manager around every call, for speed
                with self._errors_of(f"{name}({', '.join(map(_short_text, arguments[:1]))})"):
                    raise error
            return self._steps(name, answer) if isinstance(answer, Iterator) else answer

        return call

    def _steps(self, name: str, answer: Iterator[Any]) -> Iterator[Any]:
        """Yield the items of the iterator ``answer``, which the method ``name`` returned.

        Exceptions are converted as in a call.
        """
        with self._errors_of(name, GeneratorExit):
            yield from answer


def _short_text(argument: Any) -> str:
    """The text of an argument for a message, cut after 60 characters.

    If the argument has a label, the text of the label.
    """
    try:
        return repr(str(getattr(argument, "label", argument)))[:60]
    except Exception:
        return type(argument).__name__


def fault_of(family: Any) -> str:
    """The reason why a value cannot be used as a family, as a sentence. Empty if it can."""
    if not isinstance(family, Family):
        if fault := fault_of_class(family, Family):
            return fault
        return "its class must derive from madbench.mixers.Family, which has the defaults of optional members"
    for name in MEMBERS:
        if getattr(inspect.getattr_static(family, name), "__isabstractmethod__", False):
            hint = suggestion(name, {other for other in dir(family) if not other.startswith("_")} - MEMBERS.keys())
            return f"it has no {name!r}, which every family needs{hint}"
    for name in MEMBERS:
        if name != "Settings" and (kind := _other_kind(MEMBERS[name], value := member_of(family, name))):
            return f"its {name!r} must be {kind}, got {value!r:.100}"
    return _fault_of_settings(member_of(family, "Settings"))


def _other_kind(default: Any, value: Any) -> str:
    """The kind of value that a member must have, given its default. Empty if ``value`` is of this kind."""
    if inspect.isfunction(default):
        return "" if callable(value) else "a method"
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, Mapping):
        return "" if isinstance(value, Mapping) and _are_texts((*value, *value.values())) else "texts by name"
    if isinstance(default, tuple):
        return "" if isinstance(value, Sequence) and not isinstance(value, str) and _are_texts(value) else "names"
    return "" if isinstance(value, str) else "a text"


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _fault_of_settings(settings: Any) -> str:
    is_frozen = getattr(getattr(settings, "__dataclass_params__", None), "frozen", False)
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings) and is_frozen):
        return f"its 'Settings' must be a frozen dataclass, got {settings!r:.100}"
    missing = dataclasses.MISSING
    without_default = [
        field.name for field in dataclasses.fields(settings) if field.default is field.default_factory is missing
    ]
    return f"its 'Settings' have no default for {without_default[0]!r}" if without_default else ""
