"""The S/R/G grammar: a label names one HyperMLP-style mixer completely, and each mixer has exactly one label.

::

    label    = base, [ "-" features ], [ "-" rank ], [ "-" mixing ], [ "!" ]
    base     = "S" | "R" | "G"
    features = "p"? "c"? "g"?              at least one letter
    rank     = "q" | "v"
    mixing   = ("1" | "2" | "12"), ["o"]

Three rules hold beyond the syntax. ``q`` and ``v`` pay for a matched budget and ``!`` lifts it, so they exclude each
other. A label that adds parameters (``g``, ``1``, ``2``) says what pays for them: ``q``, ``v`` or ``!``. A label that
adds none has nothing for ``!`` to lift. That leaves 504 labels. All of it derives from the letters of
:mod:`madbench.labels.factors`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable

from madbench.errors import LabelError
from madbench.labels.factors import CHOICES, DEFAULTS, LETTERS, SEGMENTS, Variant

ALIASES = {
    "SoftmaxAttn": "S",
    "ReLUAttn": "R",
    "HyperMLP": "R-cg-q-12o",
    "HyperGLU": "G-cg-q-12o",
}
"""Names the paper uses for four of the labels; ``parse`` takes them in any case."""

_ALIASES_IN_LOWER_CASE = {name.lower(): label for name, label in ALIASES.items()}


def _syntax() -> re.Pattern[str]:
    """The segments as one pattern, a group a field."""
    pattern = ""
    for segment, how_many in SEGMENTS.items():
        rows = [row for row in LETTERS if row.segment == segment]
        first = "".join(row.letter for row in rows if not row.needs)
        if how_many == "one":
            letters = f"(?P<{rows[0].field}>[{first}])"
        else:
            letters = "".join(f"(?P<{row.field}>{row.letter}?)" for row in rows)
        bare = segment in ("base", "budget")
        pattern += letters if bare else f"(?:-(?=[{first}]){letters})?"
    return re.compile(pattern)


SYNTAX = _syntax()


class InvalidLabel(LabelError):
    """A text outside the grammar. The message is worked out when it is shown, so that rejecting a label is cheap."""

    def __str__(self) -> str:
        from madbench.labels.diagnosis import describe  # only a message needs every label

        return describe(self.args[0])


def parse(label: str) -> Variant:
    """The variant a label or an alias names; ``str`` of it is the canonical label.

    Raises ``LabelError``, whose message points at the character and names the nearest label.
    """
    label = _ALIASES_IN_LOWER_CASE.get(label.lower(), label)
    match = SYNTAX.fullmatch(label)
    if match is None:
        raise InvalidLabel(label)
    try:
        return from_letters(filter(None, match.groupdict().values()))
    except LabelError:
        raise InvalidLabel(label) from None


def from_letters(letters: Iterable[str]) -> Variant:
    """The variant with these letters; raises ``LabelError`` where no label has all of them."""
    given = "".join(letters)
    fields = dict(DEFAULTS)
    for row in LETTERS:
        if row.letter in given:
            if fields[row.field] != DEFAULTS[row.field]:
                raise LabelError(f"{given!r} has two letters of {row.segment}")
            fields[row.field] = row.value
    return Variant(**fields)


@functools.cache
def all_variants() -> tuple[Variant, ...]:
    """Every valid variant: by base, then features, mixing, and what pays for them."""
    groups = (("base",), ("features",), ("mixing",), ("rank", "budget"))
    slowest_first = [
        name
        for group in groups
        for name in reversed(dict.fromkeys(row.field for row in LETTERS if row.segment in group))
    ]
    found = []
    for values in itertools.product(*(CHOICES[name] for name in slowest_first)):
        try:
            found.append(Variant(**dict(zip(slowest_first, values))))
        except LabelError:
            continue
    return tuple(found)


@functools.cache
def all_labels() -> tuple[str, ...]:
    """The 504 labels of the grammar, in the order of ``all_variants``."""
    return tuple(map(str, all_variants()))
