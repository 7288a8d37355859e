"""The cells of tables as text with marks, before an output format is chosen, and the minus sign in them."""

from __future__ import annotations

from typing import Literal, NamedTuple

MINUS = "\N{MINUS SIGN}"
"""The minus sign of numbers for people. Numbers for programs have a hyphen."""
BEST, WITHIN_NOISE = "best", "within_noise"
"""Marks of a cell: the best of its column, and not significantly worse than the best."""


Width = Literal["single", "double"]
"""Width of a table or a figure in a paper: one column of a two-column page, or both."""
Shows = Literal["interval", "sd", "rank"]
"""The content of a cell: a mean with its interval, a mean with the standard deviation of its seeds, or a rank."""


class MarkedText(NamedTuple):
    """A cell as text with its mark: :data:`BEST`, :data:`WITHIN_NOISE`, or empty."""

    text: str
    mark: str = ""


def with_minus(number: str) -> str:
    """The text of a number with a minus sign in place of a hyphen, for people."""
    return number.replace("-", MINUS)


def with_hyphens(text: str) -> str:
    """A text with hyphens in place of minus signs, for programs."""
    return text.replace(MINUS, "-")


class Origin(NamedTuple):
    """Sentences on where the results of a table come from."""

    caption: str = ""
    """Sentences for the caption, such as those on seeds that chose learning rates."""
    notes: str = ""
    """Sentences for the notes, such as those on the labels that were used to choose settings."""
    code: str = ""
    """Sentences for the caption on runs of other code, with the commands that train or test them again."""
    code_in_paper: str = ""
    """:attr:`code` without commands, for the caption of a table in a paper."""
    profiles: str = ""
    """Sentences for the caption that name changed profiles. The notes name all profiles."""

    def in_caption(self, in_paper: bool = False, names_profiles: bool = True) -> str:
        """All sentences for the caption: without commands if ``in_paper``, and with :attr:`profiles` if requested."""
        code = self.code_in_paper if in_paper else self.code
        return " ".join(filter(None, [self.profiles if names_profiles else "", self.caption, code]))
