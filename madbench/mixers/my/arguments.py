"""Arguments in the label of a user's module, such as ``my:my_mixers.MyMixer(beta=2,mode=fast)``.

No user's module is imported here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from madbench.errors import LabelError
from madbench.labels.arguments import read_words
from madbench.labels.diagnosis import point_at

Value = int | float | bool | str | None
_NAME = r"[A-Za-z_]\w*"
_PLAIN = r"[A-Za-z_][\w.+-]*"


def dotted(path: str) -> str:
    """The dotted path without arguments, such as ``my_mixers.MyMixer`` for ``my_mixers.MyMixer(beta=2)``."""
    return path.partition("(")[0]


def arguments_of(path: str) -> dict[str, Value]:
    """The arguments at the end of a label's path, by name. Empty if the path has none.

    The path must be canonical, as in a parsed label.
    """
    _, opening, inner = path.partition("(")
    return dict(map(_argument, _words(inner[:-1]))) if opening else {}


def read_arguments(text: str, start: int) -> str:
    """Parse the arguments in the label ``text``, whose parenthesis opens at index ``start``.

    Return their canonical text with its parentheses, or an empty text if there are no arguments. A value is a number,
    true, false, null or a word. Raises ``LabelError`` with a caret at the error.
    """
    inner = text[start + 1 : -1]
    if not text.endswith(")") or "(" in inner or ")" in inner:
        raise LabelError(point_at(text, start, "expected arguments such as (beta=2,mode=fast) here"))
    found = read_words(text, start + 1, len(text) - 1, _argument)
    return f"({written(found)})" if found else ""


def written(arguments: Mapping[str, Value]) -> str:
    """Join arguments to a text such as ``beta=2,mode=fast``, sorted by name and in canonical spelling."""
    return ",".join(f"{name}={_text(arguments[name])}" for name in sorted(arguments))


def _words(inner: str) -> list[str]:
    return inner.split(",") if inner else []


def _argument(word: str) -> tuple[str, Value]:
    name, equals, text = (part.strip() for part in word.partition("="))
    if not equals or not re.fullmatch(_NAME, name) or not text:
        raise ValueError("expected name=value, such as beta=2")
    if text in ("null", "None"):
        return name, None
    value = _value(text)
    is_word = isinstance(value, str) and re.fullmatch(_PLAIN, value)
    if not (is_word or (isinstance(value, int | float) and math.isfinite(value))):
        raise ValueError(f"the value of {name!r} is a finite number, true, false, null or a word, not {text[:60]!r}")
    return name, value


def _value(text: str) -> Any:
    """The value of ``text``, read as YAML: a number, a boolean or a word. None for any other text."""
    if not re.fullmatch(r"[\w.+-]+", text):
        return None
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # such as ..., a wrong date, or too many digits
        return None
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?e[+-]?\d+", text, re.IGNORECASE):
        return float(text)
    return value


def _text(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, str) else repr(value)
