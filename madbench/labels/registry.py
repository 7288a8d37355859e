"""Families of mixers: the text before a label's first colon names one, and no colon means S/R/G.

A family is a value of the protocol :class:`madbench.mixers.family.Family`. One that is not built in comes from an
installed package, as an entry point of the group ``madbench.families`` named like the family.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from madbench.config import source_identity
from madbench.errors import LabelError, did_you_mean
from madbench.labels.diagnosis import SHOWN, point_at, show
from madbench.labels.factors import Explanation

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "madbench.families"
BUILT_IN = {"": "madbench.mixers.srg.family:FAMILY"}

Family = Any  # of madbench.mixers.family, a room above this one
Label = Any  # what a family's parser returns: frozen, hashable, its str is the canonical label


def families() -> tuple[str, ...]:
    """Names of the built-in and the installed families, sorted; S/R/G is ``""``."""
    return tuple(sorted({**_installed(), **BUILT_IN}))


def family_of(label: str | Label) -> Family:
    """The family of a label or of its text; a ``LabelError`` where it is not installed or cannot be loaded."""
    text = str(label)
    name, colon, _ = text.partition(":")
    if not colon:
        return _load("")
    if name not in families():
        known = did_you_mean(name[:SHOWN], filter(None, families())) or "; no families are installed"
        raise LabelError(point_at(text, 0, f"unknown family {show(name[:SHOWN])!r} before the colon{known}"))
    return _load(name)


def parse(text: str) -> Label:
    """The label that a text names, by the parser of its family; ``str`` of it is the canonical text.

    Raises ``LabelError``, whose message points at the character at fault.
    """
    if not isinstance(text, str):
        raise LabelError(f"a label is text such as 'G-cg-q-12o', got {type(text).__name__}")
    return family_of(text).parse(text)


def factors(label: Label) -> Mapping[str, str]:
    """What the label is, factor by factor; a factor without a meaning for it is left out."""
    return family_of(label).factors(label)


def diff(a: Label, b: Label) -> tuple[str, ...]:
    """The factors that both labels have and in which they differ; of two families, the family and all their factors."""
    family, other = family_of(a), family_of(b)
    mine, theirs = family.factors(a), other.factors(b)
    if family is not other:
        return ("family", *dict.fromkeys((*mine, *theirs)))
    return tuple(name for name in mine if name in theirs and mine[name] != theirs[name])


def neighbours(label: Label) -> Sequence[Label]:
    """Every label that differs from this one in exactly one factor."""
    return family_of(label).neighbours(label)


def explain(label: Label) -> Sequence[Explanation]:
    """A row a letter, then what follows from the letters that are absent."""
    return family_of(label).explain(label)


def levels(label: Label) -> Mapping[str, str]:
    """What a contrast calls each factor of the label: its family's ``levels``, or else its ``factors``."""
    family = family_of(label)
    return getattr(family, "levels", family.factors)(label)


def family_identity(family: Family) -> str:
    """What a job says of the family that computes it: its version.

    Of an installed one also that of its distribution and a hash of its package's files: an edited operator is another.
    """
    installed = "" if family.name in BUILT_IN else f"+{source_identity(_installed()[family.name])}"
    return f"{family.version}{installed}"


@functools.cache
def _load(name: str) -> Family:
    place = BUILT_IN[name] if name in BUILT_IN else _installed()[name].value
    module, _, attribute = place.partition(":")
    try:
        family = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LabelError(f"family {name!r} ({place}) cannot be loaded: {error}") from error
    if family.name != name:
        raise LabelError(f"family {name!r} ({place}) calls itself {family.name!r}; both names have to be the same")
    return family


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    from importlib import metadata  # slow to import, and most labels need no family

    return {point.name: point for point in metadata.entry_points(group=GROUP)}
