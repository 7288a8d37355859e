"""A grid: labels times settings, as rows of a table. A YAML file or the words of a command become checked rows.

Nothing here knows what a setting means: whether a key exists, and whether a label fits its budget, is known once the
rows are prepared (:mod:`madbench.experiment`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from madbench.config import check_seeds, from_mapping, key_of, override_of, parse_seeds, read_yaml, settings_of
from madbench.errors import ConfigError, LabelError, MadbenchError, did_you_mean
from madbench.jobs import Budget, Fidelity
from madbench.labels import expand, parse, trust
from madbench.suites.addressing import leading_suite, suite_of_override
from madbench.suites.base import Suite

Mode = Literal["product", "one_at_a_time", "list"]

MOST_ROWS = 10_000

_ONE_A_TABLE = ("profile", "fidelity", "budget")


@dataclass(frozen=True)
class GridFile:
    """The keys of a grid; those of its settings are the profile's, such as ``model.mix_rank``."""

    description: str = ""
    """What the grid is to find out."""
    labels: tuple[str, ...] = ()
    """Labels and sets of labels."""
    tasks: tuple[str, ...] = ()
    """Tasks of any suite; by default the six of MAD and language_model."""
    seeds: Any = 0
    """Seeds such as 0-2, or a list."""
    profile: str = ""
    """evening, quick, full, or a YAML file; by default the usual one of the suite of the tasks."""
    fidelity: Fidelity = "corrected"
    """Protocol of the MAD tasks: ours, or the reference implementation's."""
    budget: Budget = "strict"
    """What the parameter budget counts."""
    set: dict[str, Any] = field(default_factory=dict)
    """Settings that all rows share, by key."""
    vary: dict[str, Any] = field(default_factory=dict)
    """Settings that rows differ in: a list of values by key."""
    mode: Mode = "product"
    """Every label with every combination; the baseline with one thing changed at a time; or the rows as given."""
    baseline: dict[str, Any] = field(default_factory=dict)
    """The row that others are compared with: a label and values of what varies; the first of each by default."""
    rows: tuple[dict[str, Any], ...] = ()
    """In mode list the rows: each a label and settings of its own."""
    claims: tuple[str, ...] = ()
    """Names of the claims that the runs are to decide, for madbench register."""
    claims_from: str = ""
    """Where these claims are: a YAML file, relative to the folder of the grid, or a paper; hypermlp by default."""


@dataclass(frozen=True)
class Row:
    """One row of the table: a label under changed settings."""

    label: str  # canonical label
    changes: tuple[str, ...] = ()  # overrides, as KEY=VALUE, that not all rows share
    named_changes: tuple[str, ...] = ()  # those of them that the row's name has

    @property
    def name(self) -> str:
        """``R-cg-q-12o  model.mix_rank=16``."""
        return "  ".join([self.label, " ".join(self.named_changes)]) if self.named_changes else self.label

    def only(self, is_wanted: Callable[[str], bool]) -> Row:
        """The row without the changes that are not wanted."""
        return Row(self.label, tuple(filter(is_wanted, self.changes)), tuple(filter(is_wanted, self.named_changes)))

    def of_suite(self, suite: Suite, leading: Suite) -> Row:
        """The row without the changes that do not concern the suite, where another one leads."""
        return self.only(lambda change: suite_of_override(change, leading) is suite)


@dataclass(frozen=True)
class Grid:
    """Rows, the baseline first, and what they share."""

    rows: tuple[Row, ...]
    tasks: tuple[str, ...] | None = None  # tasks of all suites, in the order of the file; None for all
    seeds: tuple[int, ...] = (0,)
    profile: str = ""  # of the suite that leads; empty for its usual one
    fidelity: Fidelity = "corrected"
    budget: Budget = "strict"
    overrides: tuple[str, ...] = ()  # overrides, as KEY=VALUE, that all rows share
    axes: tuple[str, ...] = ()  # keys in which rows differ
    description: str = ""
    where: str = ""  # the file, which opens the messages about it

    @property
    def leading(self) -> Suite:
        """The suite whose profile and overrides need no name before them."""
        return leading_suite(self.tasks)


def load_grid(source: str | Path | Sequence[str], changes: Mapping[str, Any]) -> Grid:
    """The grid in the YAML file ``source``, or that of labels, with ``changes`` of its keys (:class:`GridFile`).

    It is what a user names to train it: the code of its labels may be imported (:mod:`madbench.labels.trust`). Changes
    under ``set`` and ``vary`` stand beside the file's own keys, and instead of the same ones. Raises what
    :func:`expand_grid` does, and ``ConfigError`` for an unknown key or a wrong type.
    """
    if not is_grid_file(source):
        grid = from_mapping(GridFile, {**changes, "labels": source}, "grid")
        trust.allow_typed(_specs(grid), with_files=True)
        return expand_grid(grid)
    mapping = read_yaml(Path(source))
    from_mapping(GridFile, mapping, str(source))
    merged = {key: {**mapping.get(key, {}), **changes[key]} for key in ("set", "vary") if changes.get(key)}
    grid = from_mapping(GridFile, {**mapping, **changes, **merged}, str(source))
    trust.allow_typed(_specs(from_mapping(GridFile, dict(changes), "grid")), with_files=True)
    trust.allow_of_file(_specs(grid), Path(source))
    return expand_grid(grid, str(source))


def _specs(grid: GridFile) -> list[str]:
    """The labels and sets of labels of a grid, as they are written in it."""
    given = [*grid.labels, *(row.get("label") for row in grid.rows), grid.baseline.get("label")]
    return [spec for spec in given if isinstance(spec, str)]


def is_grid_file(source: Any) -> bool:
    """Whether ``source`` is a file of a grid rather than labels; ``@NAME.yaml`` is a set of labels."""
    return isinstance(source, Path) or (
        isinstance(source, str) and source.endswith((".yaml", ".yml")) and not source.startswith("@")
    )


def expand_grid(grid: GridFile, where: str = "") -> Grid:
    """The rows of ``grid``.

    ``product``: every label with every combination of values, the label slowest. ``one_at_a_time``: the baseline, every
    other label at the baseline's values, then every other value of each key at the baseline's label. ``list``: the rows
    as given. The baseline comes first: where none is named, the first label with the first values.

    Raises ``ConfigError`` or ``LabelError``, opened by ``where``, for what has no effect, is doubled or contradictory.
    """
    with errors_named(where):
        fixed, axes = _fixed(grid.set, "set"), _axes(grid)
        for key in fixed.keys() & axes.keys():
            raise ConfigError(f"{key!r} is both set and varied; only one can hold")
        if grid.rows and grid.mode != "list":
            raise ConfigError(f"rows: no effect in mode {grid.mode}; write mode: list")
        rows = {"list": _listed, "one_at_a_time": _one_at_a_time, "product": _product}[grid.mode](grid, axes)
        keys = list(dict.fromkeys(key_of(change) for row in rows for change in row.changes))
        for key in keys:
            if key in fixed:
                raise ConfigError(f"{key!r} is both set and given in a row; only one can hold")
        common = [change for change in (rows[0].changes if rows else ()) if all(change in row.changes for row in rows)]
        rows = [row.only(lambda change: change not in common) for row in rows]
        axes = tuple(key for key in keys if key not in set(map(key_of, common)))
        shared = (grid.profile, grid.fidelity, grid.budget, (*fixed.values(), *common))
        return Grid(tuple(rows), grid.tasks or None, _seeds(grid.seeds), *shared, axes, grid.description, where)


def parse_axes(vary: Iterable[str]) -> dict[str, Any]:
    """``["model.mix_rank=4,8"]`` -> ``{"model.mix_rank": [4, 8]}``."""
    for word in vary:
        if not re.fullmatch(r"[^=]+=.*\S.*", word):
            raise ConfigError(f"--vary {word!r}: expected KEY=V1,V2,... such as model.mix_rank=4,8")
    return settings_of([re.sub("=(.*)", r"=[\1]", word, count=1) for word in vary])


@contextmanager
def errors_named(where: str) -> Iterator[None]:
    """Makes errors raised inside say ``where`` they come from, unless that is empty."""
    try:
        yield
    except LabelError as error:  # its first line ends in the label, below which a caret may point
        raise LabelError(f"{error}\nin {where}") if where else error from None
    except MadbenchError as error:
        raise type(error)(f"{where}: {error}") if where else error from None


def _product(grid: GridFile, axes: Mapping[str, list[str]]) -> list[Row]:
    labels = expand(grid.labels)
    for key, values in axes.items():
        if len(values) < 2:
            raise ConfigError(f"vary: {key!r} has one value; write it under set, or give more")
    count = len(labels) * math.prod(map(len, axes.values()))
    if count > MOST_ROWS:
        raise ConfigError(f"the grid has {count:,} rows; at most {MOST_ROWS:,} are allowed")
    rows = [Row(label, changes, changes) for label in labels for changes in itertools.product(*axes.values())]
    return _with_first(rows, *_baseline(grid, axes))


def _one_at_a_time(grid: GridFile, axes: Mapping[str, list[str]]) -> list[Row]:
    if not axes:
        raise ConfigError("mode: one_at_a_time has no effect without something to vary")
    wanted, of_baseline = _baseline(grid, axes)
    labels = expand([wanted, *grid.labels] if wanted else grid.labels)
    if not labels:
        return []
    usual = {key: of_baseline.get(key, values[0]) for key, values in axes.items()}
    rows = [Row(label, tuple(usual.values())) for label in labels]
    for key, values in axes.items():
        others = [value for value in values if value != usual[key]]
        if not others:
            raise ConfigError(f"vary: {key!r} has no value but the baseline's; write it under set, or give more")
        rows += [Row(labels[0], tuple((usual | {key: value}).values()), (value,)) for value in others]
    return rows


def _listed(grid: GridFile, axes: Mapping[str, list[str]]) -> list[Row]:
    for key in ("labels", "vary"):
        if getattr(grid, key):
            raise ConfigError(f"{key}: no effect in mode list, which takes rows")
    if not grid.rows:
        raise ConfigError("mode: list needs rows, such as rows: [{label: S-p, model.mix_rank: 4}]")
    rows: dict[tuple, Row] = {}
    for i, entry in enumerate(grid.rows):
        with errors_named(f"rows[{i}]"):
            if "label" not in entry:
                raise ConfigError("key 'label' is missing")
            settings = {key: value for key, value in entry.items() if key != "label"}
            changes = tuple(_fixed(settings, "settings").values())
            row = Row(str(parse(entry["label"])), changes, changes)
        key = (row.label, frozenset(row.changes))
        if key in rows:
            raise ConfigError(f"rows[{i}]: {row.name} appears twice")
        rows[key] = row
    varied = dict.fromkeys(key_of(change) for row in rows.values() for change in row.changes)
    return _with_first(list(rows.values()), *_baseline(grid, varied))


def _with_first(rows: list[Row], label: str | None, changes: Mapping[str, str]) -> list[Row]:
    """``rows`` with the first one that has ``label`` and the ``changes`` before all others."""
    fitting = [row for row in rows if label in (None, row.label) and set(changes.values()) <= set(row.changes)]
    if rows and not fitting:
        labels = {row.label for row in rows}
        hint = did_you_mean(label, sorted(labels)) if label and label not in labels else ""
        raise ConfigError(f"baseline: no row is {Row(label or 'any label', (), tuple(changes.values())).name}{hint}")
    return [*fitting[:1], *(row for row in rows if row is not fitting[0])]


def _baseline(grid: GridFile, axes: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """The label and the changes, by key, that the baseline is asked to have."""
    keys = ["label", *axes]
    for key in grid.baseline:
        if key not in keys:
            raise ConfigError(f"baseline: {key!r} is not varied{did_you_mean(key, keys)}")
    label = grid.baseline.get("label")
    changes = {key: value for key, value in grid.baseline.items() if key != "label"}
    return label and str(parse(label)), _fixed(changes, "baseline")


def _axes(grid: GridFile) -> dict[str, list[str]]:
    """The overrides of each axis, by key."""
    axes = {}
    for key, values in grid.vary.items():
        _check_key(key, "vary")
        if not isinstance(values, (list, tuple)) or not values:
            raise ConfigError(f"vary: {key}: expected a list of values, such as {key}: [1, 2]")
        axes[key] = [override_of(key, value, "vary") for value in values]
        _check_unique(axes[key], "vary")
    return axes


def _fixed(settings: Mapping[str, Any], where: str) -> dict[str, str]:
    """The override of each of ``settings``, by key."""
    for key in settings:
        _check_key(key, where)
    return {key: override_of(key, value, where) for key, value in settings.items()}


def _check_key(key: str, where: str) -> None:
    if key in (*_ONE_A_TABLE, "label", "labels", "seeds", "tasks"):
        is_varied = key in _ONE_A_TABLE and where != "set"
        hint = "one table has one; make a grid of each" if is_varied else "it is a key of the grid itself"
        raise ConfigError(f"{where}: {key!r} is no setting of the profile; {hint}")
    if not re.fullmatch(r"\w+(\.\w+)*", key):
        raise ConfigError(f"{where}: {key!r} is no key of a setting, such as model.mix_rank")


def _seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple(parse_seeds(value, "seeds"))
    seeds = check_seeds(value)
    _check_unique(seeds, "seeds")
    return seeds


def _check_unique(values: Sequence[Any], where: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"{where}: {value} appears twice")
