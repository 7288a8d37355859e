"""The numbers that papers publish for labels, for comparison with stored runs. The module does not import pandas.

The folder of a paper may have a file ``published.yaml``. It describes the paper's tables of published numbers, and has
facts about them that claims need.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from madbench.config import PAPERS, Override, from_mapping, read_yaml
from madbench.errors import ConfigError
from madbench.plugins.paper_folders import paper_folders
from madbench.suites.profile import ProfileFacts
from madbench.suites.protocol import Protocol

FILE = "published.yaml"
Scores = dict[str, dict[str, float]]
"""Numbers by label, then by column."""


@dataclass(frozen=True)
class PublishedNumbers:
    """The published numbers of a row under one profile: column to number."""

    of_no_profile: dict[str, float]
    """Column to number, from rows of published tables that name no profile."""
    of_profile: dict[str, float]
    """Column to number, from rows that name the profile and its overrides."""

    def shown(self, profile: ProfileFacts, shows_always: bool = False) -> dict[str, float]:
        """The numbers to show in a table: column to number.

        Numbers that name no profile are included if ``profile`` is comparable with the paper, or if ``shows_always`` is
        True.
        """
        is_shown = profile.comparable_with_paper or shows_always
        return (self.of_no_profile if is_shown else {}) | self.of_profile


@dataclass(frozen=True)
class PublishedTable:
    """A CSV file of published numbers, with one row per label.

    The CSV file may have columns ``profile`` and ``overrides``. A row with a profile belongs to that profile with these
    overrides. Other rows belong to all profiles that are comparable with the paper.
    """

    file: str
    """The name of the CSV file, in the folder of ``published.yaml``."""
    title: str
    """The name of the table in captions, such as "Table 1, one seed"."""
    columns: dict[str, str]
    """Column of our tables to column of the CSV file."""
    factors: dict[str, float] = field(default_factory=dict)
    """Column of our tables to the factor that multiplies its published numbers, such as steps per evaluation."""


@dataclass(frozen=True)
class Published:
    """The published numbers of a paper: the content of its ``published.yaml``."""

    tables: tuple[PublishedTable, ...]
    margin_share: float = 0.0
    """The default margin of claims of no difference, as a fraction of the published difference of ``margin_labels``."""
    margin_labels: tuple[str, ...] = ()
    """The two labels whose published difference is multiplied by ``margin_share``. The better label is first."""
    heuristics: dict[str, float] = field(default_factory=dict)
    """Task to the score of its heuristic at the task sizes of the paper, in the units of the task's column."""

    def rows(self, folder: Path) -> Iterator[tuple[str, dict[str, str], dict[str, float]]]:
        """Yield the label, the cells and the numbers of each row of the tables. Their CSV files are in ``folder``.

        The cells map headers of the CSV file to texts. The numbers map columns of our tables to published numbers times
        :attr:`PublishedTable.factors`. Empty cells have no number.
        """
        for table in self.tables:
            with open(folder / table.file, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    cells = {name: row[theirs] for name, theirs in table.columns.items() if row[theirs]}
                    yield row["label"], row, {name: table.factors.get(name, 1) * float(x) for name, x in cells.items()}


def read_published(folder: Path) -> Published:
    """The published numbers in the folder of a paper. Without ``published.yaml``, the result has no tables.

    Raises ``ConfigError`` if ``published.yaml`` or a CSV file is invalid.
    """
    path = folder / FILE
    if not path.is_file():
        return Published(())
    published = from_mapping(Published, read_yaml(path), str(path))
    for table in published.tables:
        try:
            with open(folder / table.file, newline="", encoding="utf-8") as file:
                header = next(csv.reader(file), [])
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {table.file}: cannot be read: {error}") from None
        for name in ("label", *table.columns.values()):
            if name not in header:
                raise ConfigError(f"{path}: {table.file} has no column {name!r}; its columns: {', '.join(header)}")
    try:
        list(published.rows(folder))
    except ValueError as error:
        raise ConfigError(f"{path}: expected numbers: {error}") from None
    return published


@functools.cache
def published_by_paper() -> Mapping[str, tuple[Path, Published]]:
    """The folder and the published numbers of every paper that has published tables, by the paper's name.

    An installed paper with an invalid file is left out; ``madbench ls papers`` says what is wrong. Raises
    ``ConfigError`` if the file of a built-in paper is invalid.
    """
    found = {}
    for name, folder in paper_folders().items():
        try:
            published = read_published(folder)
        except ConfigError:
            if folder.parent == PAPERS:
                raise
            continue
        if published.tables:
            found[name] = folder, published
    return found


@functools.cache
def paper_scores(paper: str) -> Scores:
    """The published numbers of a paper from rows that name no profile: label to column to number."""
    folder, published = published_by_paper()[paper]
    return _merge((label, numbers) for label, row, numbers in published.rows(folder) if not row.get("profile"))


@functools.cache
def published_scores() -> Scores:
    """The published numbers of all papers from rows that name no profile: label to column to number."""
    return _merge(item for paper in published_by_paper() for item in paper_scores(paper).items())


@functools.cache
def profile_scores(profile: str, overrides: tuple[Override, ...] = ()) -> Scores:
    """The published numbers from rows that name ``profile`` with these overrides: label to column to number."""
    return _merge(
        (label, numbers)
        for folder, published in published_by_paper().values()
        for label, row, numbers in published.rows(folder)
        if _is_of(row, profile, overrides)
    )


def _is_of(row: Mapping[str, str], profile: str, overrides: tuple[Override, ...]) -> bool:
    return row.get("profile") == profile and (row.get("overrides") or "").split() == [*map(str, overrides)]


def published_under(name: str, profile: str, overrides: tuple[Override, ...] = ()) -> PublishedNumbers:
    """The published numbers of the label ``name`` for ``profile`` with these overrides.

    They include the numbers from rows that name no profile.
    """
    return PublishedNumbers(published_scores().get(name, {}), profile_scores(profile, overrides).get(name, {}))


def published_numbers(protocol: Protocol, name: str, shows_always: bool = False) -> dict[str, float]:
    """The published numbers to show for the label ``name`` in a table of ``protocol``: column to number.

    ``shows_always`` is an argument of :meth:`PublishedNumbers.shown`.
    """
    return published_under(name, protocol.profile_name, protocol.overrides).shown(protocol.profile, shows_always)


def published_sentence(
    numbers: Mapping[str, Mapping[str, float]], protocols: Mapping[str, Protocol], shows_always: bool = False
) -> str:
    """A sentence that names the sources of published numbers, for the caption of the table that shows them.

    It says so if some of them are not comparable with the results in the table. Empty if there are no numbers.

    Args:
        numbers: the numbers from :func:`published_numbers`: name of the row to column to number.
        protocols: the protocols of the rows, by name.
        shows_always: the argument of :func:`published_numbers` with which the numbers were found.
    """
    comparable: dict[str, bool] = {}  # the name of a source, and True if all its numbers are comparable
    for paper, (folder, published) in published_by_paper().items() if any(numbers.values()) else ():
        for table in published.tables:
            for label, row, in_row in replace(published, tables=(table,)).rows(folder):
                if not in_row.keys() & numbers.get(label, {}).keys():
                    continue
                protocol, source = protocols[label], f"{paper}, {table.title}"
                if _is_of(row, protocol.profile_name, protocol.overrides):
                    comparable.setdefault(source, True)
                elif not row.get("profile") and (shows_always or protocol.profile.comparable_with_paper):
                    comparable[source] = protocol.profile.comparable_with_paper and comparable.get(source, True)
    differ = "" if all(comparable.values()) else "; not comparable, as sizes or training differ from ours"
    return f"Published: {' and '.join(comparable)}{differ}." if comparable else ""


def _merge(rows: Iterable[tuple[str, dict[str, float]]]) -> Scores:
    """The numbers of each label: label to column to number.

    If several rows of a label have a number for a column, the first row counts.
    """
    scores: Scores = {}
    for label, numbers in rows:
        scores[label] = numbers | scores.get(label, {})
    return scores
