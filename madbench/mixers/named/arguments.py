"""Arguments of a named operator in its label: flags such as ``(neg)``, and integers such as ``(n=3)``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import Field, field, fields
from typing import Any

from madbench.errors import did_you_mean
from madbench.labels.arguments import read_words
from madbench.mixers.named.operator import Operator


def integer(default: int, least: int, most: int) -> Any:
    """A dataclass field for an integer argument of an operator, which a label sets as ``name=value``.

    All integers from ``least`` to ``most`` are allowed. The range must be short, because every value makes a further
    label in the list of all labels.
    """
    return field(default=default, metadata={"least": least, "most": most})


def read(operator: type[Operator], text: str, start: int, end: int) -> Operator:
    """Return an instance of ``operator`` with the arguments in ``text[start:end]`` of a label, such as ``neg,n=3``.

    Raises ``LabelError`` for an unknown argument or a wrong value.
    """
    return operator(**read_words(text, start, end, lambda word: _argument(operator, word)))


def written(operator: Operator) -> str:
    """The arguments of an operator as a label writes them, such as ``(neg,n=3)``.

    Arguments at their defaults are left out. Empty if all are at their defaults.
    """
    words = [_word(each, getattr(operator, each.name)) for each in fields(operator)]
    words = [word for word, each in zip(words, fields(operator)) if getattr(operator, each.name) != each.default]
    return f"({','.join(words)})" if words else ""


def levels(operator: Operator) -> dict[str, str]:
    """Map the name of each argument to its value as text.

    The text is the number of an integer argument, the argument's own name for a flag that is set, and empty for a flag
    that is not set.
    """
    values = ((each, getattr(operator, each.name)) for each in fields(operator))
    return {each.name: str(value) if each.metadata else (each.name if value else "") for each, value in values}


def choices(operator: type[Operator]) -> list[str]:
    """The arguments that a label of this operator may have, each as a text such as ``neg`` or ``n=1...4``."""
    return [f"{each.name}={_range(each)}" if each.metadata else each.name for each in fields(operator)]


def all_instances(operator: type[Operator]) -> Iterator[Operator]:
    """Yield one instance of the operator for each combination of argument values, first the one with all defaults."""
    values = [dict.fromkeys((each.default, *_values(each))) for each in fields(operator)]
    return (operator(*chosen) for chosen in itertools.product(*values))


def _values(each: Field[Any]) -> range | tuple[bool, bool]:
    return range(each.metadata["least"], each.metadata["most"] + 1) if each.metadata else (False, True)


def _range(each: Field[Any]) -> str:
    return f"{each.metadata['least']}...{each.metadata['most']}"


def _word(each: Field[Any], value: int) -> str:
    return f"{each.name}={value}" if each.metadata else each.name


def _argument(operator: type[Operator], word: str) -> tuple[str, int]:
    """Return the name and the value of the argument in ``word``, such as ``neg`` or ``n=3``.

    Raises ``ValueError`` with a hint if one of them is wrong.
    """
    name, equals, value = (part.strip() for part in word.partition("="))
    by_name = {each.name: each for each in fields(operator)}
    if name not in by_name:
        near = did_you_mean(name[:60], by_name) if by_name else ""
        near = "" if near.startswith("; expected") else near
        allowed = ", ".join(choices(operator)) or "none"
        raise ValueError(f"{operator.name} has no argument {name[:60]!r}{near}; its arguments: {allowed}")
    each = by_name[name]
    if not each.metadata:
        if equals:
            raise ValueError(f"{name!r} takes no value: write {operator.name}({name}), or leave it out")
        return name, True
    if not re.fullmatch("[0-9]{1,9}", value) or int(value) not in _values(each):
        got = f", not {value[:60]!r}" if value else ""
        example = f"{operator.name}({name}={each.default})"
        raise ValueError(f"{name!r} is an integer from {_range(each).replace('...', ' to ')}{got}, as in {example}")
    return name, int(value)
