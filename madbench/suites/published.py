"""Numbers that papers publish, by label, for comparison. Importing this does not import pandas.

A paper's folder may hold ``published.yaml``: its tables of published numbers, and facts about them that claims need.
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
    """The published numbers of a row under one profile, by column."""

    of_no_profile: dict[str, float]
    of_profile: dict[str, float]

    def shown(self, profile: ProfileFacts, shows_always: bool = False) -> dict[str, float]:
        """The numbers to show.

        Numbers that name no profile are included if ``profile`` is comparable with the paper, or if ``shows_always`` is
        True.
        """
        is_shown = profile.comparable_with_paper or shows_always
        return (self.of_no_profile if is_shown else {}) | self.of_profile


@dataclass(frozen=True)
class PublishedTable:
    """A CSV file with one row per label.

    Rows with ``profile`` and ``overrides`` belong to that profile with these overrides. Other rows belong to the
    profiles that are comparable with the paper.
    """

    file: str
    """The name of the CSV file, in the folder of ``published.yaml``."""
    title: str
    """The name of the table in captions, such as "Table 1, one seed"."""
    columns: dict[str, str]
    """The columns of the CSV file, by column of our tables."""
    factors: dict[str, float] = field(default_factory=dict)
    """Factors by which published numbers are multiplied, such as steps per evaluation, by column of our tables."""


@dataclass(frozen=True)
class Published:
    """The published numbers of a paper: the content of its ``published.yaml``."""

    tables: tuple[PublishedTable, ...]
    margin_share: float = 0.0
    """The default margin of claims of no difference, as a share of the published gain between ``margin_labels``."""
    margin_labels: tuple[str, ...] = ()
    """The two labels whose published difference is the gain of ``margin_share``, the better label first."""
    heuristics: dict[str, float] = field(default_factory=dict)
    """The score of each task's heuristic at the task sizes of the paper, in the units of the task's column."""

    def rows(self, folder: Path) -> Iterator[tuple[str, dict[str, str], dict[str, float]]]:
        """Yield the label, the cells and the numbers of each row of the tables in the folder ``folder``.

        The cells are the texts of the row by header of the CSV file. The numbers are by column of our tables, and are
        multiplied by the factors of the table. Empty cells give no number.
        """
        for table in self.tables:
            with open(folder / table.file, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    cells = {name: row[theirs] for name, theirs in table.columns.items() if row[theirs]}
                    yield row["label"], row, {name: table.factors.get(name, 1) * float(x) for name, x in cells.items()}


def read_published(folder: Path) -> Published:
    """The published numbers in a paper's folder. Empty if the folder has no such file.

    Raises ``ConfigError`` if they are invalid.
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
    """The folder and the published numbers of every paper that has published numbers, by the paper's name.

    An installed paper with an invalid file is left out; ``madbench ls papers`` says what is wrong.
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
    """The published numbers of a paper, from the rows that name no profile."""
    folder, published = published_by_paper()[paper]
    return _merge((label, numbers) for label, row, numbers in published.rows(folder) if not row.get("profile"))


@functools.cache
def published_scores() -> Scores:
    """The published numbers of all papers, without those rows of their tables that name a profile."""
    return _merge(item for paper in published_by_paper() for item in paper_scores(paper).items())


@functools.cache
def profile_scores(profile: str, overrides: tuple[Override, ...] = ()) -> Scores:
    """The published numbers of the models that a profile trains with these overrides."""
    return _merge(
        (label, numbers)
        for folder, published in published_by_paper().values()
        for label, row, numbers in published.rows(folder)
        if _is_of(row, profile, overrides)
    )


def profile_titles(profile: str, overrides: tuple[Override, ...] = ()) -> list[str]:
    """The titles of the published tables with numbers of the models that a profile trains with these overrides."""
    titles: dict[str, None] = {}
    for folder, published in published_by_paper().values():
        for table in published.tables:
            if any(_is_of(row, profile, overrides) for _, row, _ in replace(published, tables=(table,)).rows(folder)):
                titles[table.title] = None
    return list(titles)


def _is_of(row: Mapping[str, str], profile: str, overrides: tuple[Override, ...]) -> bool:
    return row.get("profile") == profile and (row.get("overrides") or "").split() == [*map(str, overrides)]


def published_under(name: str, profile: str, overrides: tuple[Override, ...] = ()) -> PublishedNumbers:
    """The published numbers of the label ``name``: those of a profile with these overrides, and those of no profile."""
    return PublishedNumbers(published_scores().get(name, {}), profile_scores(profile, overrides).get(name, {}))


def published_numbers(protocol: Protocol, name: str, shows_always: bool = False) -> dict[str, float]:
    """The published numbers of the label ``name`` to show under ``protocol`` (:meth:`PublishedNumbers.shown`)."""
    return published_under(name, protocol.profile_name, protocol.overrides).shown(protocol.profile, shows_always)


def _merge(rows: Iterable[tuple[str, dict[str, float]]]) -> Scores:
    """The numbers of each label, by column. If several rows have a number for a column, the first row counts."""
    scores: Scores = {}
    for label, numbers in rows:
        scores[label] = numbers | scores.get(label, {})
    return scores
