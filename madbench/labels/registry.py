"""Label families beside S/R/G: the text before the first colon names one, and an installed package provides it.

A family is an entry point of the group ``madbench.families``. It loads an object with ``parse(text)``, which takes the
text after the colon and returns a value whose ``str`` is the canonical form of that text, or raises ``LabelError``, and
``build(value, d_model, max_len, n_head)``, which returns the causal mixer, a ``torch.nn.Module`` on (B, T, d_model).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from madbench.errors import LabelError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "madbench.families"


@dataclass(frozen=True)
class FamilyLabel:
    """A label of another family: its name and what the family's own parser made of the rest."""

    family: str
    """Name before the colon."""
    value: Any
    """Value of the family's parser; its ``str`` is the canonical text after the colon."""

    def __str__(self) -> str:
        return f"{self.family}:{self.value}"


def families() -> tuple[str, ...]:
    """Names of the installed families, sorted."""
    return tuple(sorted(_installed()))


def family_of(label: str) -> str:
    """The family a label chooses, ``""`` for the S/R/G grammar; an unknown one is a ``LabelError``."""
    name, colon, _ = label.partition(":")
    if not colon:
        return ""
    if name not in _installed():
        from madbench.labels.diagnosis import point_at, show

        known = did_you_mean(name[:80], families()) or "; no families are installed"
        raise LabelError(point_at(label, 0, f"unknown family {show(name)!r} before the colon{known}"))
    return name


def parse(label: str) -> FamilyLabel:
    """The value of a label that names an installed family."""
    name, _, text = label.partition(":")
    return FamilyLabel(name, load_family(name).parse(text))


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    from importlib import metadata  # slow to import, and most labels need no family

    return {point.name: point for point in metadata.entry_points(group=GROUP)}


@functools.cache
def load_family(name: str) -> Any:
    """What the family's entry point provides; a ``LabelError`` when it cannot be imported."""
    point = _installed()[name]
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise LabelError(f"family {name!r} ({point.value}) cannot be loaded: {error}") from error
