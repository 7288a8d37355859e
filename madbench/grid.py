"""Grids from YAML files or the words of a command: combinations of labels and settings become rows of a table.

This module does not know which settings exist. :mod:`madbench.experiment` checks that each key exists and that each
label fits its budget.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from madbench.config import (
    Override,
    check_seeds,
    check_unique,
    from_mapping,
    override_text,
    parse_seeds,
    read_yaml,
    settings_of,
    short_repr,
)
from madbench.errors import ConfigError, did_you_mean, no_effect, prefix_errors, suggestion
from madbench.jobs import Fidelity
from madbench.labels import expand, parse, trust
from madbench.labels.sets import names_of
from madbench.rows import Grid, Row
from madbench.suites.addressing import nearest_key, parse_overrides
from madbench.suites.options import BudgetName, canonical_budget

Mode = Literal["product", "one_at_a_time", "list"]

MOST_ROWS = 10_000

_ONE_PER_TABLE = ("profile", "fidelity", "budget")


@dataclass(frozen=True)
class GridFile:
    """The content of a grid file. The keys of the file are the names of the fields."""

    description: str = ""
    """The question that the grid answers."""
    labels: tuple[str, ...] = ()
    """Labels and sets of labels."""
    tasks: tuple[str, ...] = ()
    """Tasks of any suite. Default: the six MAD tasks and language_model."""
    seeds: Any = 0
    """Seeds such as 0-2, or a list of seeds."""
    profile: str = ""
    """evening, quick, full, or a YAML file. Default: the usual profile of the tasks' suite."""
    fidelity: Fidelity = "corrected"
    """Protocol of the MAD tasks: corrected (ours) or published (the reference implementation's)."""
    budget: BudgetName = "strict"
    """Quantity matched to softmax attention: all parameters (parameters or strict), parameters without the mixing
    tables (paper), FLOPs per token (flops), numbers carried by decoding (state), or parameters and training FLOPs
    (compute)."""
    set: dict[Any, Any] = field(default_factory=dict)
    """Settings that all rows share, by key."""
    vary: dict[Any, Any] = field(default_factory=dict)
    """Settings in which rows differ: a list of values by key."""
    mode: Mode = "product"
    """product: every label with every combination; one_at_a_time: one change to the baseline; list: rows as given."""
    baseline: dict[Any, Any] = field(default_factory=dict)
    """The row that others are compared with: a label and values of varied keys. Default: the first of each."""
    rows: tuple[dict[Any, Any], ...] = ()
    """The rows of mode list. Each has a label and its own settings."""
    claims: tuple[str, ...] = ()
    """Names of the claims that the runs decide, for madbench register."""
    claims_from: str = ""
    """Source of these claims: a YAML file, relative to the folder of the grid, or a paper.
    Default: the paper that has these claims."""


def load_grid(source: str | Path | Sequence[str], changes: Mapping[str, Any]) -> Grid:
    """Load a grid from the YAML file ``source``, or make a grid of the labels ``source``.

    ``changes`` maps keys of a grid file (:class:`GridFile`) to values that replace those of the file. Only ``set`` and
    ``vary`` are merged with those of the file: each of their settings replaces the setting with the same key. After
    this call the code of the grid's labels may be imported, because the user chose the grid. Labels from a file in a
    results folder are an exception (:mod:`madbench.labels.trust`). Raises the errors of :func:`expand_grid`, and
    ``ConfigError`` for a file that cannot be read, an unknown key or a value of a wrong type.
    """
    if not isinstance(source, str | Path) or not is_grid_file(source):
        grid = from_mapping(GridFile, {**changes, "labels": source}, "grid")
        trust.allow_typed(_specs(grid), with_files=True)
        return expand_grid(grid)
    mapping = read_yaml(Path(source))
    _check_keys(mapping, str(source))
    from_mapping(GridFile, mapping, str(source))
    merged = {key: {**mapping.get(key, {}), **changes[key]} for key in ("set", "vary") if changes.get(key)}
    grid = from_mapping(GridFile, {**mapping, **changes, **merged}, str(source))
    trust.allow_typed(_specs(from_mapping(GridFile, dict(changes), "grid")), with_files=True)
    trust.allow_labels_of_file(_specs(grid), Path(source))
    return expand_grid(grid, str(source))


def _check_keys(mapping: Mapping[str, Any], where: str) -> None:
    """Raise ``ConfigError`` for a key of a grid file that is a setting of the profile, which belongs under ``set``."""
    names = [field.name for field in fields(GridFile)]
    for key in mapping:
        if key not in names and not suggestion(key, names) and (nearest := nearest_key(key, mapping.get("tasks"))):
            advice = f"a setting that all rows share is written under set, as set: {{{nearest}: ...}}"
            raise ConfigError(f"{where}: unknown key {short_repr(key)}; {advice}")


def _specs(grid: GridFile) -> list[str]:
    """The labels and sets of labels that a grid names, as written: its labels, those of its rows, and its baseline."""
    specs = [*grid.labels, *(row.get("label") for row in grid.rows), grid.baseline.get("label")]
    return [spec for spec in specs if isinstance(spec, str)]


def is_grid_file(source: Any) -> bool:
    """True if ``source`` is the path of a grid file: a ``Path``, or text that ends in ``.yaml`` or ``.yml``.

    False for labels, and for ``@NAME.yaml``, which is a set of labels.
    """
    return isinstance(source, Path) or (
        isinstance(source, str) and source.endswith((".yaml", ".yml")) and not source.startswith("@")
    )


def expand_grid(grid: GridFile, where: str = "") -> Grid:
    """Expand ``grid`` to its rows, according to its mode.

    - ``product``: every label with every combination of values. The label varies slowest.
    - ``one_at_a_time``: the baseline; then each other label with the baseline's values; then, for each key, each other
      value with the baseline's label.
    - ``list``: the rows as given.

    The baseline is the first row. By default it is the first label with the first values. Raises ``ConfigError`` or
    ``LabelError`` for an invalid grid, such as a repeated setting or a setting without effect. The message names
    ``where``, the file of the grid, unless it is empty.
    """
    with prefix_errors(where):
        fixed, axes = _overrides_by_key(grid.set, "set"), _axes(grid)
        for key in fixed.keys() & axes.keys():
            raise ConfigError(f"{short_repr(key)} is both set and varied; only one can hold")
        if grid.rows and grid.mode != "list":
            raise no_effect("rows", f"in mode {grid.mode}; write mode: list")
        rows = {"list": _rows_as_given, "one_at_a_time": _one_at_a_time, "product": _product}[grid.mode](grid, axes)
        keys = list(dict.fromkeys(change.path for row in rows for change in row.changes))
        for key in keys:
            if key in fixed:
                raise ConfigError(f"{short_repr(key)} is both set and given in a row; only one can hold")
        common = [change for change in (rows[0].changes if rows else ()) if all(change in row.changes for row in rows)]
        rows = [row.keep_changes(lambda change: change not in common) for row in rows]
        varied = tuple(key for key in keys if key not in {change.path for change in common})
        shared = (grid.profile, grid.fidelity, canonical_budget(grid.budget), (*fixed.values(), *common))
        names = names_of(_specs(grid))
        return Grid(
            tuple(rows), grid.tasks or None, _seeds(grid.seeds), *shared, varied, grid.description, where, names
        )


def parse_axes(vary: Iterable[str]) -> dict[str, Any]:
    """Convert ``["model.mix_rank=4,8"]`` to ``{"model.mix_rank": [4, 8]}``.

    Raises ``ConfigError`` for a word without key or values, for values that are not valid YAML, and for a repeated key.
    """
    for word in vary:
        if not re.fullmatch(r"[^=]+=.*\S.*", word):
            raise ConfigError(f"--vary {short_repr(word)}: expected KEY=V1,V2,... such as model.mix_rank=4,8")
    return settings_of(Override.parse(re.sub("=(.*)", r"=[\1]", word, count=1)) for word in vary)


def _product(grid: GridFile, axes: Mapping[str, list[Override]]) -> list[Row]:
    labels = expand(grid.labels)
    count = len(labels) * math.prod(map(len, axes.values()))
    if count > MOST_ROWS:
        raise ConfigError(f"the grid has {count:,} rows; at most {MOST_ROWS:,} are allowed")
    rows = [Row(label, changes, changes) for label in labels for changes in itertools.product(*axes.values())]
    return _baseline_first(rows, *_baseline(grid, axes))


def _one_at_a_time(grid: GridFile, axes: Mapping[str, list[Override]]) -> list[Row]:
    if not axes:
        raise no_effect("mode: one_at_a_time", "without values under vary")
    wanted, of_baseline = _baseline(grid, axes)
    labels = expand([wanted, *grid.labels] if wanted else grid.labels)
    if not labels:
        return []
    usual = {key: of_baseline.get(key, values[0]) for key, values in axes.items()}
    rows = [Row(label, tuple(usual.values())) for label in labels]
    for key, values in axes.items():
        others = [value for value in values if value != usual[key]]
        if not others:
            raise ConfigError(
                f"vary: {short_repr(key)} has no value but the baseline's; write it under set, or give more"
            )
        rows += [Row(labels[0], tuple((usual | {key: value}).values()), (value,)) for value in others]
    return rows


def _rows_as_given(grid: GridFile, axes: Mapping[str, list[Override]]) -> list[Row]:
    for key in ("labels", "vary"):
        if getattr(grid, key):
            raise no_effect(key, "in mode list, which takes rows")
    if not grid.rows:
        raise ConfigError("mode: list needs rows, such as rows: [{label: S-p, model.mix_rank: 4}]")
    rows: dict[tuple[str, frozenset[Override]], Row] = {}
    for i, entry in enumerate(grid.rows):
        with prefix_errors(f"rows[{i}]"):
            if "label" not in entry:
                raise ConfigError("key 'label' is missing")
            settings = {key: value for key, value in entry.items() if key != "label"}
            changes = tuple(_overrides_by_key(settings, "settings").values())
            row = Row(str(parse(entry["label"])), changes, changes)
        content = (row.label, frozenset(row.changes))
        if content in rows:
            raise ConfigError(f"rows[{i}]: {row.name} appears twice")
        rows[content] = row
    varied = dict.fromkeys(change.path for row in rows.values() for change in row.changes)
    return _baseline_first(list(rows.values()), *_baseline(grid, varied))


def _baseline_first(rows: list[Row], label: str | None, changes: Mapping[str, Override]) -> list[Row]:
    """Return the rows with the baseline at the front. It is the first row that has ``label`` and all of ``changes``.

    Any label fits if ``label`` is None. Raises ``ConfigError`` if no row fits.
    """
    fitting = [row for row in rows if label in (None, row.label) and set(changes.values()) <= set(row.changes)]
    if rows and not fitting:
        labels = {row.label for row in rows}
        hint = did_you_mean(label, sorted(labels)) if label and label not in labels else ""
        raise ConfigError(f"baseline: no row is {Row(label or 'any label', (), tuple(changes.values())).name}{hint}")
    return [*fitting[:1], *(row for row in rows if row is not fitting[0])]


def _baseline(grid: GridFile, axes: Iterable[str]) -> tuple[str | None, dict[str, Override]]:
    """Return the label of the grid's baseline and its overrides by key.

    The label is None if the grid does not name one. Raises ``ConfigError`` if the baseline has a key that is not in
    ``axes``, the varied keys.
    """
    keys = ["label", *axes]
    for key in grid.baseline:
        if key not in keys:
            raise ConfigError(f"baseline: {short_repr(key)} is not varied{did_you_mean(key, keys)}")
    label = grid.baseline.get("label")
    changes = {key: value for key, value in grid.baseline.items() if key != "label"}
    return label and str(parse(label)), _overrides_by_key(changes, "baseline")


def _axes(grid: GridFile) -> dict[str, list[Override]]:
    """The overrides of each varied key, in order: key to one override per value."""
    axes = {}
    for key, values in grid.vary.items():
        _check_key(key, "vary")
        if isinstance(values, Mapping):
            first = str(next(iter(values), "KEY"))[:60]
            raise ConfigError(f"vary: {key}: expected a list of values, got a mapping; write {key}.{first}: [1, 2]")
        if not isinstance(values, (list, tuple)) or not values:
            raise ConfigError(f"vary: {key}: expected a list of values, such as {key}: [1, 2]")
        axes[key] = [*parse_overrides(override_text(key, value, "vary") for value in values)]
        if grid.mode == "product" and len(set(axes[key])) == 1:
            value = axes[key][0].text[:60]
            known = nearest_key(key, grid.tasks) or key  # a misspelled key would fail under set as well
            raise ConfigError(
                f"vary: {short_repr(key)} has one value; write {known}: {value} under set, or give different values"
            )
        check_unique(axes[key], "vary")
    return axes


def _overrides_by_key(settings: Mapping[str, Any], where: str) -> dict[str, Override]:
    """The settings as overrides, by key. ``where`` is the key of the grid file that has them, for error messages."""
    for key in settings:
        _check_key(key, where)
    texts = (override_text(key, value, where) for key, value in settings.items())
    return dict(zip(settings, parse_overrides(texts)))


def _check_key(key: Any, where: str) -> None:
    if key in (*_ONE_PER_TABLE, "label", "labels", "seeds", "tasks"):
        is_varied = key in _ONE_PER_TABLE and where != "set"
        hint = "a table has only one; make one grid for each" if is_varied else "it is a key of the grid itself"
        raise ConfigError(f"{where}: {short_repr(key)} is no setting of the profile; {hint}")
    if not isinstance(key, str) or not re.fullmatch(r"\w+(\.\w+)*", key):
        raise ConfigError(f"{where}: {short_repr(key)} is no key of a setting, such as model.mix_rank")


def _seeds(value: Any) -> tuple[int, ...]:
    return tuple(parse_seeds(value, "seeds")) if isinstance(value, str) else check_seeds(value)
