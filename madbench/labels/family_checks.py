"""Checks of a family when it is loaded and called: its members, and what its methods return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.errors import suggestion

TEXTS = ("name", "version")
OPTIONAL_TEXTS = ("syntax", "example", "description", "needs")
OPTIONAL_NAMES = {
    "mixers": "labels by name",
    "factor_names": "names by name",
    "factor_order": "names",
    "matches": "names",
    "level_order": "names",
}
METHODS = ("parse", "factors", "neighbours", "explain", "solve", "build", "checks")
OPTIONAL_METHODS = (
    "traits", "effective", "levels", "labels", "factors_of_other", "text_of", "identity", "preset_spelling", "begins",
    "missing_package", "blocks", "block_period", "takes_layer", "own_modules",
)  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """One row of the explanation of a label: the meaning of a letter.

    If ``letter`` is empty, the row says what follows from a letter that the label does not have.
    """

    letter: str
    name: str
    what: str  # effect of the letter
    equation: str  # equation that the letter affects; t is the current token and i a token of its prefix
    source: str  # name and place in the paper


def label_of(family: str, answer: Any) -> Any:
    """Returns ``answer``, which the method ``parse`` of a family returned. Raises ``TypeError`` if it is no label.

    ``family`` is the family's name. The label's text must begin with this prefix, because the text of a label
    determines its family.
    """
    hash(answer)
    if answer is None or not str(answer):
        raise TypeError(f"expected a label, got {answer!r}")
    if not str(answer).startswith(f"{family}:"):
        raise TypeError(f"expected a label of this family, {family}:..., got {str(answer)!r}")
    return answer


def _text(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"expected a text, got {answer!r}")
    return answer


def _texts_by_name(answer: Any) -> dict[str, str]:
    texts = dict(answer)
    if not _are_texts(texts, by_name=True):
        raise TypeError(f"expected a mapping of names to texts, got {texts!r:.60}")
    return texts


def _explanations(answer: Any) -> tuple[Explanation, ...]:
    rows = tuple(answer)
    for row in rows:
        if not isinstance(row, Explanation):
            raise TypeError(f"expected rows of madbench.mixers.Explanation, got {row!r:.60}")
    return rows


def _allocation(answer: Any) -> Any:
    """Returns an allocation after computing its numbers once. A later error would not show which family caused it."""
    dict(answer.terms), dict(answer.ranks), str(answer.label)
    for number in (
        answer.total, answer.target, answer.ratio, answer.flops_per_token(answer.size.max_len),
        answer.state_bytes_per_token(),
    ):  # fmt: skip
        float(number)
    return answer


def _traits(answer: Any) -> Any:
    if not hasattr(answer, "start_settings"):
        raise TypeError(f"expected madbench.mixers.Traits, got {answer!r:.60}")
    return answer


ANSWERS: dict[str, Callable[[Any], Any]] = {
    name: lambda answer: answer for name in (*METHODS, *OPTIONAL_METHODS)
} | {
    "factors": _texts_by_name, "neighbours": tuple, "explain": _explanations, "solve": _allocation, "checks": iter,
    "effective": dict, "levels": _texts_by_name, "labels": tuple, "identity": _text, "preset_spelling": _text,
    "traits": _traits, "begins": bool, "missing_package": _text, "blocks": tuple, "block_period": int,
    "takes_layer": bool, "own_modules": tuple,
}  # fmt: skip
"""For each method of a family, a function that validates the method's result, and converts it or raises."""


def fault_of(family: Any) -> str:
    """The reason why a value is no :class:`madbench.mixers.Family`, as a sentence. Empty if it is a family."""
    members = [name for name in dir(family) if not name.startswith("_")]
    for name in (*TEXTS, "Settings", *METHODS):
        if name not in members:
            hint = suggestion(name, set(members) - {*TEXTS, "Settings", *METHODS, *OPTIONAL_METHODS})
            return f"it has no {name!r}, which every family needs{hint}"
    for name in TEXTS:
        if not isinstance(getattr(family, name), str):
            return f"its {name!r} must be a text, got {getattr(family, name)!r}"
    for name in (*METHODS, *OPTIONAL_METHODS):
        if name in members and not callable(getattr(family, name)):
            return f"its {name!r} must be a method, got {getattr(family, name)!r}"
    for name in OPTIONAL_TEXTS:
        if name in members and not isinstance(text := getattr(family, name), str):
            return f"its {name!r} must be a text, got {text!r}"
    for name, what in OPTIONAL_NAMES.items():
        if name in members and not _are_texts(value := getattr(family, name), by_name=what.endswith("by name")):
            return f"its {name!r} must be {what}, got {value!r}"
    if not isinstance(getattr(family, "is_bidirectional", False), bool):
        return f"its 'is_bidirectional' must be true or false, got {family.is_bidirectional!r}"
    return _fault_of_settings(family.Settings)


def _are_texts(value: Any, by_name: bool) -> bool:
    """True if a value is a sequence of texts, or if ``by_name`` is true, a mapping from text to text."""
    if by_name:
        return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


def _fault_of_settings(settings: Any) -> str:
    is_frozen = getattr(getattr(settings, "__dataclass_params__", None), "frozen", False)
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings) and is_frozen):
        return f"its 'Settings' must be a frozen dataclass, got {settings!r}"
    missing = dataclasses.MISSING
    without = [
        field.name for field in dataclasses.fields(settings) if field.default is field.default_factory is missing
    ]
    return f"its 'Settings' have no default for {without[0]!r}" if without else ""
