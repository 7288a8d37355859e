"""Marks and caption sentences for rows of a table whose runs were trained with other code than the installed code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from madbench.labels.names import row_display_name
from madbench.suites.code import RunCode

SIGN = "¶"
"""The mark after the name of a row with runs that used other code than the installed code."""
MOST_NAMED = 5
"""The largest number of rows that one caption sentence names."""
UNRECORDED = "code that an earlier madbench did not record"


def runs_of(count: int, subject: str, noun: str = "run") -> str:
    """A phrase that counts the runs of ``subject``, such as ``4 runs of my:my_mixers.MyMixer``."""
    return f"{count:,} {noun}{'s' if count > 1 else ''} of {subject}"


def of_other_version(count: int, subject: str, what: str) -> str:
    """A clause such as ``4 runs of my:my_mixers.MyMixer are from another version of my_mixers.py``.

    ``subject`` names the rows, and ``what`` the code. Its version may be earlier or later than the installed one.
    """
    return f"{runs_of(count, subject)} {'are' if count > 1 else 'is'} from another version of {what}"


@dataclass(frozen=True)
class CodeMarks:
    """The runs of a table, grouped by the result of comparing their code with the installed code."""

    by_code: dict[RunCode, list[str]] = field(default_factory=dict)
    """Each result of the comparison, with the rows of the runs that have it: one entry per run, so rows may repeat."""

    @classmethod
    def from_runs(cls, runs: Iterable[tuple[str, RunCode]]) -> CodeMarks:
        """Group finished runs. Each of ``runs`` has the name of the run's row and the comparison of its code."""
        by_code: dict[RunCode, list[str]] = {}
        for row, code in runs:
            by_code.setdefault(code, []).append(row)
        return cls(by_code)

    @classmethod
    def merge(cls, parts: Sequence[CodeMarks]) -> CodeMarks:
        """Combine the marks of several suites' rows in one object."""
        by_code: dict[RunCode, list[str]] = {}
        for part in parts:
            for code, rows in part.by_code.items():
                by_code.setdefault(code, []).extend(rows)
        return cls(by_code)

    @property
    def rows(self) -> frozenset[str]:
        """The names of the rows with at least one run whose comparison did not give ``same``."""
        return frozenset(row for _, rows in self._differing for row in rows)

    @property
    def sentences(self) -> list[str]:
        """One sentence for each result of the comparison other than ``same``. Empty if all code is the same.

        A sentence names the command that trains the runs again, if there is one.
        """
        texts = []
        for code, rows in self._differing:
            again = f"; madbench run ... --force trains {'them' if len(rows) > 1 else 'it'} again"
            texts.append(f"{_fact(code, rows)}{again if code.state == 'other' else ''}.")
        return texts

    @property
    def facts(self) -> list[str]:
        """The :attr:`sentences` without commands."""
        return [f"{_fact(code, rows)}." for code, rows in self._differing]

    @property
    def _differing(self) -> list[tuple[RunCode, list[str]]]:
        return [(code, rows) for code, rows in self.by_code.items() if code.state != "same"]

    @property
    def unrecorded(self) -> str:
        """:attr:`unrecorded_fact`, and the command that tests if the installed code gives the same numbers.

        Empty if all records have digests.
        """
        fact = self._unrecorded
        return f"{fact}; madbench again tests if the present code gives the same numbers." if fact else ""

    @property
    def unrecorded_fact(self) -> str:
        """A sentence that counts the runs without digests of this package's code in their records.

        Empty if all records have digests.
        """
        return f"{self._unrecorded}." if self._unrecorded else ""

    @property
    def _unrecorded(self) -> str:
        count = sum(len(rows) for code, rows in self.by_code.items() if not code.is_recorded)
        runs = "1 run was" if count == 1 else f"{count:,} runs were"
        return f"{runs} stored without digests of madbench's code, which may have changed since" if count else ""


def _fact(code: RunCode, rows: Sequence[str]) -> str:
    """A statement, without a full stop, on the code of the runs of ``rows``. The state of ``code`` is not ``same``."""
    names = list(dict.fromkeys(rows))
    and_more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    subject = f"{', '.join(map(row_display_name, names[:MOST_NAMED]))}{and_more}"
    if code.state == "changed":
        return of_other_version(len(rows), subject, code.what)
    runs = runs_of(len(rows), subject)
    if code.state == "absent":
        return f"{runs} had code that is not here: {code.what}"
    if code.state == "unknown":
        return f"{runs} had {UNRECORDED}; it may have changed"
    trained = "were" if len(rows) > 1 else "was"
    return f"{runs} {trained} trained with another version of madbench's code of {code.what}"
