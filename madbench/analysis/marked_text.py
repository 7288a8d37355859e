"""The text and the mark of a table cell, independent of the output format, and the minus sign in such texts."""

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
    """Sentences about how the results of a table were made, for its caption and its notes."""

    caption: str = ""
    """Sentences for the caption, such as one on the number of seeds by which the learning rates were chosen."""
    notes: str = ""
    """Sentences for the notes, such as one on the labels by which the settings of the profile were chosen."""
    code: str = ""
    """Sentences for the caption on runs that other code than the installed code trained, with commands that train or
    test them again."""
    code_in_paper: str = ""
    """:attr:`code` without commands, for the caption of a table in a paper."""
    profiles: str = ""
    """Sentences for the caption that name the profiles with changes. They are needed only without notes, which name all
    profiles."""

    def in_caption(self, in_paper: bool = False, names_profiles: bool = True) -> str:
        """The sentences for the caption. They name no commands if ``in_paper`` is True.

        :attr:`profiles` is included if ``names_profiles`` is True.
        """
        code = self.code_in_paper if in_paper else self.code
        return " ".join(filter(None, [self.profiles if names_profiles else "", self.caption, code]))
