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

from madbench.errors import LabelError
from madbench.labels.factors import FIELDS, LETTERS, SEGMENTS, Variant

ALIASES = {
    "SoftmaxAttn": "S",
    "ReLUAttn": "R",
    "HyperMLP": "R-cg-q-12o",
    "HyperGLU": "G-cg-q-12o",
}
"""Names the paper uses for four of the labels; they are read in any case."""


def _syntax() -> re.Pattern[str]:
    pattern = ""
    for segment, how_many in SEGMENTS.items():
        rows = [row for row in LETTERS if row.segment == segment]
        first = "".join(row.letter for row in rows if not row.needs)
        letters = f"[{first}]" if how_many == "one" else "".join(f"{row.letter}?" for row in rows)
        pattern += letters if segment in ("base", "budget") else f"(?:-(?=[{first}]){letters})?"
    return re.compile(pattern)


SYNTAX = _syntax()


def from_letters(given: str) -> Variant:
    """The variant with these letters in any order; raises ``LabelError`` where no label has all of them."""
    rows = [row for row in LETTERS if row.letter in given]
    fields = {row.field: row.value for row in rows}
    if len(fields) < len(rows) or not set(given) <= {"-", *(row.letter for row in rows)}:
        raise LabelError(f"no label has the letters {given!r}")
    return Variant(**{"base": None, **fields})


@functools.cache
def all_variants() -> tuple[Variant, ...]:
    """Every valid variant: by base, then features, mixing, and what pays for them."""
    names: list[str] = []  # those that change slowest first
    for segments in ("base",), ("features",), ("mixing",), ("rank", "budget"):
        names += reversed(dict.fromkeys(row.field for row in LETTERS if row.segment in segments))
    found = []
    for values in itertools.product(*(FIELDS[name] for name in names)):
        try:
            found.append(Variant(**dict(zip(names, values))))
        except LabelError:
            continue
    return tuple(found)


@functools.cache
def all_labels() -> tuple[str, ...]:
    """The 504 labels of the grammar, in the order of ``all_variants``."""
    return tuple(map(str, all_variants()))
