"""Marks for table rows whose stored runs used other code than the installed code, and sentences for captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from madbench.suites.code import RunCode

SIGN = "¶"
"""The mark after the name of a row whose runs used other code."""
MOST_NAMED = 5
"""The largest number of rows that a sentence names."""
UNRECORDED = "code that an earlier madbench did not record"


def runs_of(count: int, subject: str, noun: str = "run") -> str:
    """A phrase such as ``4 runs of my:my_mixers.MyMixer``."""
    return f"{count:,} {noun}{'s' if count > 1 else ''} of {subject}"


def of_other_version(count: int, subject: str, what: str) -> str:
    """A clause such as ``4 runs of my:my_mixers.MyMixer are from another version of my_mixers.py``.

    The version may be earlier or later.
    """
    return f"{runs_of(count, subject)} {'are' if count > 1 else 'is'} from another version of {what}"


@dataclass(frozen=True)
class CodeMarks:
    """The runs of a table by the state of their code."""

    by_code: dict[RunCode, list[str]] = field(default_factory=dict)
    """The row names of runs, one entry per run, by the state of the run's code."""

    @classmethod
    def from_runs(cls, runs: Iterable[tuple[str, RunCode]]) -> CodeMarks:
        """The marks of finished runs. A run is given by its row's name and the state of its code."""
        by_code: dict[RunCode, list[str]] = {}
        for row, code in runs:
            by_code.setdefault(code, []).append(row)
        return cls(by_code)

    @classmethod
    def merge(cls, parts: Sequence[CodeMarks]) -> CodeMarks:
        """The combined marks of several suites."""
        by_code: dict[RunCode, list[str]] = {}
        for part in parts:
            for code, rows in part.by_code.items():
                by_code.setdefault(code, []).extend(rows)
        return cls(by_code)

    @property
    def rows(self) -> frozenset[str]:
        """The names of the rows with at least one run whose code differs from the installed code."""
        return frozenset(row for code, rows in self.by_code.items() if code.state != "same" for row in rows)

    @property
    def sentences(self) -> list[str]:
        """One sentence per state of code that differs from the installed code."""
        return [_sentence(code, rows) for code, rows in self.by_code.items() if code.state != "same"]

    @property
    def unrecorded(self) -> str:
        """A sentence on the runs whose records have no digests of this package's code. Empty if there are none."""
        count = sum(len(rows) for code, rows in self.by_code.items() if not code.is_recorded)
        runs = "1 run was" if count == 1 else f"{count:,} runs were"
        what = "stored without digests of madbench's code, which may have changed since"
        return f"{runs} {what}; madbench again tests if the present code gives the same numbers." if count else ""


def _sentence(code: RunCode, rows: Sequence[str]) -> str:
    names = list(dict.fromkeys(rows))
    and_more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    subject = f"{', '.join(names[:MOST_NAMED])}{and_more}"
    if code.state == "changed":
        return f"{of_other_version(len(rows), subject, code.what)}."
    runs = runs_of(len(rows), subject)
    if code.state == "absent":
        return f"{runs} had code that is not here: {code.what}."
    if code.state == "unknown":
        return f"{runs} had {UNRECORDED}; it may have changed."
    trained = "were" if len(rows) > 1 else "was"
    return f"{runs} {trained} trained with another version of madbench's code of {code.what}; --force trains again."
