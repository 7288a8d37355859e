"""The notation of hybrids: a pattern of labels over the layers of a model, such as ``3xKDA/S-p``.

``/`` separates layers, and a count before an ``x`` repeats a label. The pattern is repeated over the depth of the
model. The depth must be a multiple of the pattern's length, unless the pattern ends in ``/...``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from madbench.errors import LabelError
from madbench.labels.diagnosis import point_at

OF_PATTERNS = "hybrid"  # name of the family whose labels are patterns
PREFIX = f"{OF_PATTERNS}:"
"""The optional prefix of a pattern: ``hybrid:``."""
SEPARATOR = "/"
REST = "..."
MOST_LAYERS = 1000
_COUNTED = re.compile(r"([0-9]+)x(.*)", re.DOTALL)

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class PatternPart:
    """One part of a pattern: a label, its number of consecutive layers, and the index at which the label begins."""

    text: str
    count: int
    position: int


def is_pattern(text: str) -> bool:
    """True if a text is written as a pattern over layers, such as ``3xKDA/S-p``. The labels in it may be invalid."""
    return SEPARATOR in text or bool(_COUNTED.match(text))


def split_pattern(text: str) -> tuple[list[PatternPart], bool]:
    """The parts of a pattern, and whether it ends in ``/...``: the last repetition may then be incomplete.

    Raises ``LabelError`` for an invalid part or count, and for more than ``MOST_LAYERS`` layers. Labels are not parsed.
    """
    parts, position = [], 0
    words = text.split(SEPARATOR)
    is_cut = len(words) > 1 and words[-1] == REST
    for word in words[:-1] if is_cut else words:
        match = _COUNTED.fullmatch(word)
        count, label, start = (int(match[1][:9]), match[2], match.start(2)) if match else (1, word, 0)
        if not label or label == REST:
            raise LabelError(point_at(text, position + start, "expected a label here, as in 3xKDA/S-p"))
        if is_pattern(label) or label.startswith(PREFIX):
            what = "each part is one label with one count, as in 3xKDA/S-p; a pattern has no patterns inside"
            raise LabelError(point_at(text, position + start, what))
        if count < 1:
            raise LabelError(point_at(text, position, "a count is at least 1"))
        parts.append(PatternPart(label, count, position + start))
        if sum(part.count for part in parts) > MOST_LAYERS:
            raise LabelError(point_at(text, position, f"a pattern has at most {MOST_LAYERS} layers"))
        position += len(word) + len(SEPARATOR)
    return parts, is_cut


def part_texts(text: str) -> list[str]:
    """The different labels in a pattern, as text, in order. ``[text]`` if ``text`` is no valid pattern.

    The prefix ``hybrid:`` is removed.
    """
    text = text.removeprefix(PREFIX)
    if not is_pattern(text):
        return [text]
    try:
        parts, _ = split_pattern(text)
    except LabelError:
        return [text]
    return list(dict.fromkeys(part.text for part in parts))


def period(layers: Sequence[T]) -> tuple[T, ...]:
    """The shortest sequence that, repeated a whole number of times, gives ``layers``."""
    sizes = (size for size in range(1, len(layers) + 1) if len(layers) % size == 0)
    return next(tuple(layers[:size]) for size in sizes if list(layers) == list(layers[:size]) * (len(layers) // size))


def join_pattern(layers: Sequence[object], is_cut: bool = False) -> str:
    """The pattern of layers: ``("KDA", "KDA", "S")`` gives ``2xKDA/S``, or ``2xKDA/S/...`` if ``is_cut``."""
    runs = [(len(list(run)), text) for text, run in itertools.groupby(map(str, layers))]
    words = [f"{count}x{text}" if count > 1 else text for count, text in runs]
    return SEPARATOR.join([*words, REST] if is_cut else words)
