"""Papers as data: their items (tables, figures, theorems and claims), with labels, tasks and published numbers.

A paper is a folder with a file ``paper.yaml``. The folder is a subfolder of this package, or belongs to an installed
package that has an entry point in the group ``madbench.papers`` (``examples/paper`` is such a package). The folder may
also hold claims, published numbers, sets of labels in ``variants/`` and profiles in ``profiles/SUITE/``. Every command
finds these sets and profiles by name. The core of madbench does not import this package. Papers use only what any
installed package may use. A broken paper does not affect other papers.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from madbench.config import from_mapping, parse_seeds, read_yaml, short_repr
from madbench.errors import ConfigError, did_you_mean
from madbench.jobs import Budget
from madbench.labels import available_sets, expand
from madbench.plugins.paper_folders import REGISTRY as PACKAGES
from madbench.plugins.paper_folders import built_in
from madbench.plugins.registry import wrap_load_errors
from madbench.suites import suite_of_task, suites
from madbench.suites.published import FILE as PUBLISHED
from madbench.suites.published import read_published

QUICK = "quick"
"""The name of the size at which an item is made by default."""
SIZES = (QUICK, "full")

EVIDENCE = ("operator", "trained", "arithmetic")
"""The kinds of evidence for a verdict: a check of our operator, trained models, or a formula alone."""

ENOUGH_SEEDS = 5
"""Items that train fewer seeds give a reason, in ``fewer_seeds``."""
ABSENT = ("Nothing to measure", "Cannot run here")
"""The texts with which the field ``needs`` of an item begins if madbench does not make the item."""


@dataclass(frozen=True)
class Item:
    """A table, figure, theorem or claim of a paper, with the fields by which ``madbench paper`` makes it."""

    id: str
    place: str
    """The place of the item in the paper, such as ``Table 1``."""
    title: str
    kind: Literal["table", "figure", "theorem", "claim"] = "table"
    labels: tuple[str, ...] = ()
    """The labels that are trained or checked. ``@NAME`` and ``@FILE.yaml`` stand for sets of labels, which are first
    looked up in the folder of the paper."""
    checks: tuple[str, ...] = ()
    """The names of the checks of ``madbench verify`` that decide a theorem. Nothing is trained."""
    tasks: tuple[str, ...] = ()
    seeds: str = "0-2"
    fewer_seeds: str = ""
    """The reason why the item trains fewer than five seeds. The items of madbench's own papers must give one."""
    budget: Budget = "strict"
    budgets: dict[str, Budget] = field(default_factory=dict)
    """Profile to budget, for the profiles that are not trained under ``budget``."""
    profiles: dict[str, str] = field(default_factory=dict)
    """Size, ``quick`` or ``full``, to the profile that is trained at this size: a name, or a YAML file, which is first
    looked up in the folder of the paper."""
    overrides: tuple[str, ...] = ()
    """Changes of settings of the profiles, each as KEY=VALUE."""
    published: str = ""
    """The name of the CSV file with the published numbers, in the folder of the paper. It has a column ``label``."""
    published_rows: dict[str, str] = field(default_factory=dict)
    """The rows of the CSV file that are used: column to the value that a row must have there. Empty to use all rows."""
    columns: dict[str, str] = field(default_factory=dict)
    """The columns of the item's table: our name of a column to its name in the CSV file. Empty if all names are equal.
    """
    claims: tuple[str, ...] = ()
    """The names of the paper's claims that the runs of the item decide."""
    figures: tuple[str, ...] = ()
    """The figures of ``madbench plot`` that are drawn from the runs."""
    command: str = ""
    """The command that makes the item, without the word madbench, if it is not ``madbench paper``."""
    measure: str = ""
    """``module:name`` of the class that makes the item (:class:`madbench.papers.making.Measure`). Empty for the default
    class."""
    arithmetic: bool = False
    """True if the item only computes a formula or compares numbers, and runs no mixer."""
    rule: str = ""
    """The condition for the verdict "reproduced", as a sentence for the user."""
    part: str = ""
    """The part of the item that madbench makes at the quick size, or at the only size of the item, as a text. Empty if
    it makes the whole item."""
    runs: tuple[str, ...] = ()
    """The names of the archives in results/measured with the runs of the item, without .tar.xz."""
    seconds: float | None = None
    """The measured processor time of the whole item at the quick size, in seconds on one core."""
    needs: str = ""
    """The reason why madbench does not make the item, or not at the full size, and what it would take."""
    note: str = ""
    """Points that the paper leaves open, or on which it contradicts itself, and what each reading changes, as a text.
    """

    @property
    def is_made_here(self) -> bool:
        """True if madbench can make the item: it has labels to train or to check, a command or a measure."""
        return bool(self.labels or self.command or self.measure)

    @property
    def fault(self) -> str:
        """The reason why the fields of the item do not fit together. Empty if they do."""
        if not self.is_made_here and not self.needs:
            return "expected labels, a command or a measure, or needs: why it is not made"
        if not self.is_made_here and self.needs.partition(":")[0] not in ABSENT:
            return f"needs: expected {' or '.join(ABSENT)}, and a colon and the reason behind it"
        if self.command.split()[:1] == ["paper"]:
            return "command: expected another verb than paper, which would call itself"
        for name, has_effect, where in _EFFECTS:
            if (value := getattr(self, name)) and not has_effect(self):
                verb = "have" if isinstance(value, tuple) else "has"
                return f"{name} {verb} no effect {where}"
        return ""

    @property
    def needs_reason(self) -> bool:
        """True if the item trains fewer than five seeds and decides something from them."""
        return bool(self.profiles and (self.measure or self.claims)) and len(parse_seeds(self.seeds)) < ENOUGH_SEEDS

    @property
    def evidence(self) -> str:
        """The kind of evidence that the item gives, one of :data:`EVIDENCE`."""
        return "arithmetic" if self.arithmetic else "trained" if self.profiles or self.runs else "operator"

    @property
    def availability(self) -> str:
        """A text for lists of items: the sizes at which madbench makes the item, or why it does not make it."""
        if not self.is_made_here:
            return self.needs.partition(":")[0].lower()
        if not self.profiles:
            return "runs here"
        quick = "runs here at a small size" if QUICK in self.profiles else ""
        why_not = self.needs[:1].lower() + self.needs[1:].rstrip(".")
        at_full_size = "runs at its own size with --profile full" if "full" in self.profiles else why_not
        return "; ".join(filter(None, [quick, at_full_size]))


_EFFECTS: tuple[tuple[str, Callable[[Item], object], str], ...] = (
    ("labels", lambda item: item.profiles or item.checks, "without profiles or checks"),
    ("checks", lambda item: item.labels, "without labels"),
    ("fewer_seeds", lambda item: item.needs_reason, "on an item with five seeds, or without a measure or claims"),
    ("profiles", lambda item: not item.checks, "beside checks"),
    ("measure", lambda item: not item.checks, "beside checks"),
    ("arithmetic", lambda item: not item.profiles, "beside profiles"),
    ("arithmetic", lambda item: not item.command, "beside a command"),
    ("runs", lambda item: item.profiles or item.command, "without profiles or a command"),
    ("part", lambda item: item.is_made_here and not item.command, "on what has no verdict here"),
    ("overrides", lambda item: item.labels and not item.measure, "without labels, and beside a measure of its own"),
    ("published_rows", lambda item: item.published, "without published"),
    (
        "figures",
        lambda item: item.labels and not (item.measure or item.checks),
        "without labels, and beside checks or a measure of its own",
    ),
)
"""Fields of an item that have no effect in some items: the field, a function that returns true if the field has an
effect on an item, and words for the error message otherwise.
"""


@dataclass(frozen=True)
class Paper:
    """A paper with its items, as ``paper.yaml`` in its folder describes them."""

    title: str
    source: str
    items: tuple[Item, ...]
    claims: str = ""
    """The name of the file with the paper's claims, in the folder of the paper. Empty for ``claims.yaml``."""
    name: str = ""
    folder: Path = Path()

    @classmethod
    def load(cls, path: Path, name: str = "") -> Paper:
        """Read a paper from the file ``path``. Its name is ``name``, by default that of the folder of the file.

        Raises ``ConfigError`` for an invalid file.
        """
        paper = replace(from_mapping(cls, read_yaml(path), str(path)), name=name or path.parent.name)
        paper = replace(paper, folder=path.parent, items=tuple(_beside(item, path.parent) for item in paper.items))
        _check(paper, str(path))
        return paper

    def file(self, name: str) -> Path:
        """The path of the file ``name`` in the folder of the paper. The file need not exist."""
        return self.folder / name

    @property
    def claims_file(self) -> Path | None:
        """The path of the file with the paper's claims: the one named in ``claims``, otherwise ``claims.yaml``.

        None if ``claims`` is empty and there is no ``claims.yaml``.
        """
        usual = self.folder / "claims.yaml"
        if self.claims:
            return self.file(self.claims)
        return usual if self.folder != Path() and usual.is_file() else None

    def item(self, name: str) -> Item:
        """The item with this id. Raises ``ConfigError`` for an unknown id."""
        by_id = {item.id: item for item in self.items}
        if name not in by_id:
            hint = did_you_mean(name, by_id, f"madbench paper {self.name}")
            raise ConfigError(f"{self.name}: no item {short_repr(name)}{hint}")
        return by_id[name]


def _beside(item: Item, folder: Path) -> Item:
    """The item with paths in place of names of files in ``folder``, the folder of the paper.

    Names of sets of labels and of profiles are replaced. Names without a file in the folder stay as they are.
    """

    def path_of(name: str) -> str:
        return str(folder / name) if name.endswith((".yaml", ".yml")) and (folder / name).is_file() else name

    def set_of(name: str) -> str:
        own_file = folder / "variants" / f"{name}.yaml"
        return str(own_file) if own_file.is_file() else path_of(name)

    labels = tuple(f"@{set_of(spec[1:])}" if spec.startswith("@") else spec for spec in item.labels)
    profiles = {size: path_of(name) for size, name in item.profiles.items()}
    budgets = {path_of(name): budget for name, budget in item.budgets.items()}
    return replace(item, labels=labels, profiles=profiles, budgets=budgets)


def _check(paper: Paper, where: str) -> None:
    """Raise ``ConfigError`` for an item whose fields do not fit together, or that names something unknown.

    It is also raised for two items with one id, and for a column of the paper's published tables that no suite has.
    ``where`` is the beginning of the messages about items.
    """
    from madbench.analysis.claims import load_claims

    _check_published_columns(paper)
    ids = [item.id for item in paper.items]
    claims = {claim.name for claim in load_claims(paper.claims_file)} if paper.claims_file else set()
    for item in paper.items:
        place = f"{where}: items: {item.id}"
        if ids.count(item.id) > 1:
            raise ConfigError(f"{place}: is there twice")
        if fault := item.fault:
            raise ConfigError(f"{place}: {fault}")
        _check_names(item, claims, place)
        if item.published:
            _check_published(paper.file(item.published), item, place)


def _check_published_columns(paper: Paper) -> None:
    """Raise ``ConfigError`` for a column of the paper's published tables that no suite has."""
    from madbench.analysis.quantities import suite_of_column, unknown_column

    tables = read_published(paper.folder).tables if paper.folder != Path() else ()
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        if suite_of_column(name) is None:
            raise ConfigError(f"{paper.folder / PUBLISHED}: columns: {unknown_column(name)}")


def _check_names(item: Item, claims: Collection[str], place: str) -> None:
    """Raise ``ConfigError`` for an unknown profile, figure, claim or task of ``item``, or seeds that cannot be read.

    ``claims`` are the names of the claims of the paper. The messages begin with ``place``. A label that cannot be read
    raises ``LabelError``.
    """
    from madbench.analysis.figures import figure_names

    for size in item.profiles:
        if size not in SIZES:
            raise ConfigError(f"{place}: profiles: unknown size {short_repr(size)}{did_you_mean(size, SIZES)}")
    profiles = [*item.profiles.values(), *(profile for suite in suites().values() for profile in suite.Profile.names())]
    names_by_key = {
        "budgets": ("profile", item.budgets, profiles),
        "figures": ("figure", item.figures, figure_names()),
        "claims": ("claim", item.claims, claims),
    }
    for key, (noun, names, known_names) in names_by_key.items():
        for name in names:
            if name not in known_names:
                raise ConfigError(f"{place}: {key}: no {noun} {short_repr(name)}{did_you_mean(name, known_names)}")
    parse_seeds(item.seeds, f"{place}: seeds")
    for task in item.tasks:
        suite_of_task(task.rpartition("/")[2], f"{place}: tasks: ")  # raises for an unknown task
    expand(item.labels)


def _check_published(path: Path, item: Item, place: str) -> None:
    if not path.is_file():
        raise ConfigError(f"{place}: published: there is no file {item.published}")
    with open(path, newline="", encoding="utf-8") as file:
        header = next(csv.reader(file), [])
    for column in ("label", *item.columns.values(), *item.published_rows):
        if column not in header:
            raise ConfigError(
                f"{place}: published: {item.published} has no column {short_repr(column)}{did_you_mean(column, header)}"
            )


def load_paper(name: str) -> Paper:
    """Load the paper with this name, from madbench or an installed package.

    Raises ``ConfigError`` if it does not exist or is invalid.
    """
    if name in (files := built_in()):
        return Paper.load(files[name])
    if name not in PACKAGES.points:
        unknown = f"no paper {short_repr(name)}{did_you_mean(name, PACKAGES.names)}"
        raise ConfigError(PACKAGES.refused.get(name, unknown))
    paper = PACKAGES.load(name)
    with wrap_load_errors(PACKAGES.where(name), ConfigError):
        if not isinstance(paper, Paper):
            raise ConfigError(f"expected a madbench.papers.Paper, got {repr(paper)[:100]}")
        _check(paper, str(paper.title))  # for a paper that was not read from a file
        _refuse_taken_names(paper)
    return replace(paper, name=name)


def _refuse_taken_names(paper: Paper) -> None:
    """Raise ``ConfigError`` if another file already has the name of a set or profile of an installed paper.

    A set in ``./variants`` may have the name, because such a set may replace any other.
    """
    if paper.folder == Path():
        return
    files = {path: available_sets().get(path.stem) for path in paper.folder.glob("variants/*.yaml")}
    for suite in suites().values():
        shipped_files = paper.folder.glob(f"profiles/{suite.name}/*.yaml")
        files |= {path: suite.Profile.files().get(path.stem) for path in shipped_files}
    for path, used_names in files.items():
        is_here = (
            used_names is not None and not used_names.is_absolute()
        )  # a set in ./variants, which may replace any other
        if used_names is not None and not is_here and used_names.resolve() != path.resolve():
            raise ConfigError(f"{path}: {used_names} has this name already; rename it")


def loaded_papers() -> tuple[dict[str, Paper], Mapping[str, str]]:
    """The papers that can be loaded, by name, and for each other paper the reason why it cannot be loaded, by name."""
    papers, problems = {}, dict(PACKAGES.refused)
    for name in PACKAGES.names:
        try:
            papers[name] = load_paper(name)
        except ConfigError as error:
            problems[name] = str(error)
    return papers, problems
