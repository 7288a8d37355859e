"""What families of mixers and what finds them share: the row of an explanation, and what a family has to have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.errors import did_you_mean

TEXTS = ("name", "version")
OPTIONAL_TEXTS = ("syntax", "example", "description", "needs")
OPTIONAL_NAMES = {
    "mixers": "labels by name",
    "factor_names": "names by name",
    "factor_order": "names",
    "level_order": "names",
}
METHODS = ("parse", "factors", "neighbours", "explain", "solve", "build", "checks")
OPTIONAL_METHODS = (
    "traits", "effective", "levels", "labels", "factors_of_other", "text_of", "identity", "preset_spelling", "begins",
    "missing_package",
)  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """One letter of a label, or with an empty ``letter`` one thing that follows from those it does not have."""

    letter: str
    name: str
    what: str  # what it does
    equation: str  # the one it touches, t being the current token and i a token of its prefix
    source: str  # name and place in the paper


def label_of(family: str, answer: Any) -> Any:
    """What ``parse`` of the family of this name gave, which can be used; else raises ``TypeError``.

    By its text a label is found to be its family's, so that of another family it would be taken for one of that.
    """
    hash(answer)
    if answer is None or not str(answer):
        raise TypeError(f"a label is expected, not {answer!r}")
    if not str(answer).startswith(f"{family}:"):
        raise TypeError(f"a label of this family is expected, {family}:..., not {str(answer)!r}")
    return answer


def _text(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"a text is expected, not {answer!r}")
    return answer


def _texts_by_name(answer: Any) -> dict[str, str]:
    texts = dict(answer)
    if not _are_texts(texts, by_name=True):
        raise TypeError(f"texts by name are expected, not {texts!r:.60}")
    return texts


def _explanations(answer: Any) -> tuple[Explanation, ...]:
    rows = tuple(answer)
    for row in rows:
        if not isinstance(row, Explanation):
            raise TypeError(f"rows of madbench.mixers.Explanation are expected, not {row!r:.60}")
    return rows


def _allocation(answer: Any) -> Any:
    """An allocation whose numbers can be had: they are asked for far from where it was made."""
    dict(answer.terms), dict(answer.ranks), str(answer.label)
    for number in (
        answer.total, answer.target, answer.ratio, answer.flops_per_token(answer.size.max_len),
        answer.state_bytes_per_token(),
    ):  # fmt: skip
        float(number)
    return answer


def _traits(answer: Any) -> Any:
    if not hasattr(answer, "start_settings"):
        raise TypeError(f"madbench.mixers.Traits are expected, not {answer!r:.60}")
    return answer


ANSWERS: dict[str, Callable[[Any], Any]] = {
    name: lambda answer: answer for name in (*METHODS, *OPTIONAL_METHODS)
} | {
    "factors": _texts_by_name, "neighbours": tuple, "explain": _explanations, "solve": _allocation, "checks": iter,
    "effective": dict, "levels": _texts_by_name, "labels": tuple, "identity": _text, "preset_spelling": _text,
    "traits": _traits, "begins": bool, "missing_package": _text,
}  # fmt: skip
"""Of each method of a family what makes its answer one that can be used, or raises."""


def fault_of(family: Any) -> str:
    """What keeps a value from being a family, of :class:`madbench.mixers.Family`, in a sentence; empty for nothing."""
    members = [name for name in dir(family) if not name.startswith("_")]
    for name in (*TEXTS, "Settings", *METHODS):
        if name not in members:
            hint = did_you_mean(name, set(members) - {*TEXTS, "Settings", *METHODS, *OPTIONAL_METHODS})
            return f"it has no {name!r}, which every family has{hint if 'did you mean' in hint else ''}"
    for name in TEXTS:
        if not isinstance(getattr(family, name), str):
            return f"its {name!r} is no text but {getattr(family, name)!r}"
    for name in (*METHODS, *OPTIONAL_METHODS):
        if name in members and not callable(getattr(family, name)):
            return f"its {name!r} is no method but {getattr(family, name)!r}"
    for name in OPTIONAL_TEXTS:
        if name in members and not isinstance(text := getattr(family, name), str):
            return f"its {name!r} is no text but {text!r}"
    for name, what in OPTIONAL_NAMES.items():
        if name in members and not _are_texts(value := getattr(family, name), by_name=what.endswith("by name")):
            return f"its {name!r} are no {what} but {value!r}"
    if not isinstance(getattr(family, "is_bidirectional", False), bool):
        return f"its 'is_bidirectional' is neither true nor false but {family.is_bidirectional!r}"
    return _fault_of_settings(family.Settings)


def _are_texts(value: Any, by_name: bool) -> bool:
    """Whether a value is a mapping from text to text, or a sequence of texts."""
    if by_name:
        return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


def _fault_of_settings(settings: Any) -> str:
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings) and settings.__dataclass_params__.frozen):
        return f"its 'Settings' is no frozen dataclass but {settings!r}"
    missing = dataclasses.MISSING
    without = [
        field.name for field in dataclasses.fields(settings) if field.default is field.default_factory is missing
    ]
    return f"its 'Settings' have no default for {without[0]!r}" if without else ""
