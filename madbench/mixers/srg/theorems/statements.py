"""A factory of the checks of theorems. A check applies only to labels for whose letters its theorem was worked out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from madbench.mixers import Check
from madbench.mixers.checks import sample
from madbench.mixers.checks.residuals import ROUNDING
from madbench.mixers.srg.grammar import SrgLabel

NOTICEABLE = 1e-3
WITHIN = 1 + 1e-12  # largest ratio of a bounded quantity to its bound
WORKED_OUT = "SRGDLpcgkaqv12o!"
"""The letters for which the theorems were worked out, by the paper or in the files of this folder.

The letters are listed here instead of taken from the grammar, because a theorem may not hold for a new letter. Theorems
are not checked for labels with a new letter until the letter is added here, or to the ``letters`` of single checks.
"""


@dataclass(frozen=True)
class Statements:
    """A factory of checks of theorems for ``label``, a label of ``family``."""

    family: Any
    label: SrgLabel
    letters: Collection[str] | None = WORKED_OUT
    """The letters for which theorems were worked out, for checks that name no letters of their own. None if such checks
    apply to labels with any letters."""

    def check(
        self, name: str, what: str, source: str, measure: Callable[..., float], tolerance: float = ROUNDING,
        unless: str = "", make: Callable[..., Any] = sample, letters: Collection[str] | None = None,
    ) -> Check:  # fmt: skip
        """A check that the number returned by ``measure`` is at most ``tolerance``.

        ``measure`` is called with the items that ``make(family, label)`` returns, such as a mixer and an input. The
        check is not applicable if ``unless`` gives a reason, or if the label has a letter that is not in ``letters``,
        by default the letters of this object. ``name``, ``what`` and ``source`` are texts for display.
        """
        unless = unless or self._reason(self.letters if letters is None else letters)
        run = None if unless else lambda: measure(*make(self.family, self.label))
        return Check(name, what, source, run, tolerance, reason=unless)

    def differ(
        self, name: str, what: str, source: str, measure: Callable[..., float], tolerance: float = NOTICEABLE,
        **options: Any,
    ) -> Check:  # fmt: skip
        """A check that the number returned by ``measure`` is above ``tolerance``.

        ``options`` are further arguments of :meth:`check`.
        """
        return replace(self.check(name, what, source, measure, tolerance, **options), is_difference=True)

    def _reason(self, letters: Collection[str] | None) -> str:
        rows = self.label.letters
        others = [f"{row.letter!r} ({row.name})" for row in rows if letters is not None and row.letter not in letters]
        return f"it is not worked out for {', '.join(others)}" if others else ""


def why_unselected(label: SrgLabel) -> str:
    """The reason why slots of this label are not selected by the sign of their scores. Empty if they are."""
    if label.has_softmax:
        return "softmax weights every slot"
    return "" if label.has_selection else "without a gate every slot is read"
