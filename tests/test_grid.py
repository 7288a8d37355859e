"""Grids: products of labels and settings, one change at a time, and lists of rows."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madbench.config import from_mapping, settings_of
from madbench.errors import ConfigError, LabelError
from madbench.grid import GridFile, expand_grid, load_grid
from madbench.rows import Grid, Row
from madbench.suites.addressing import parse_overrides
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD

RANKS = parse_overrides(["model.mix_rank=4", "model.mix_rank=8"])
EPOCHS = parse_overrides(["training.epochs=8", "training.epochs=20"])
VARY = {"model.mix_rank": [4, 8], "training.epochs": [8, 20]}


def grid(**keys) -> Grid:
    return expand_grid(from_mapping(GridFile, keys, "grid"))


def names(made: Grid) -> list[str]:
    return [row.name for row in made.rows]


def test_a_product_is_every_label_with_every_combination():
    made = grid(labels=["S-p", "HyperMLP"], vary=VARY)
    assert [(row.label, *row.changes) for row in made.rows] == [
        ("S-p", RANKS[0], EPOCHS[0]), ("S-p", RANKS[0], EPOCHS[1]),
        ("S-p", RANKS[1], EPOCHS[0]), ("S-p", RANKS[1], EPOCHS[1]),
        ("R-cg-q-12o", RANKS[0], EPOCHS[0]), ("R-cg-q-12o", RANKS[0], EPOCHS[1]),
        ("R-cg-q-12o", RANKS[1], EPOCHS[0]), ("R-cg-q-12o", RANKS[1], EPOCHS[1]),
    ]  # fmt: skip
    assert made.rows[-1].name == "R-cg-q-12o  model.mix_rank=8 training.epochs=20"
    assert made.axes == ("model.mix_rank", "training.epochs") and made.overrides == ()


def test_the_baseline_of_a_product_comes_first_and_the_rest_stays_in_order():
    rows = names(
        grid(labels=["S-p", "R"], vary={"model.mix_rank": [4, 8]}, baseline={"label": "R", "model.mix_rank": 8})
    )
    assert rows == ["R  model.mix_rank=8", "S-p  model.mix_rank=4", "S-p  model.mix_rank=8", "R  model.mix_rank=4"]
    assert names(grid(labels=["S-p", "R"], vary={"model.mix_rank": [4, 8]}, baseline={"model.mix_rank": 8}))[0] == (
        "S-p  model.mix_rank=8"
    )


def test_one_at_a_time_changes_the_baseline_in_one_thing():
    made = grid(labels=["S-p", "R"], vary=VARY, mode="one_at_a_time", baseline={"label": "R", "training.epochs": 20})
    assert [(row.name, *row.changes) for row in made.rows] == [
        ("R", RANKS[0], EPOCHS[1]),
        ("S-p", RANKS[0], EPOCHS[1]),
        ("R  model.mix_rank=8", RANKS[1], EPOCHS[1]),
        ("R  training.epochs=8", RANKS[0], EPOCHS[0]),
    ]


def test_the_baseline_of_one_at_a_time_need_be_neither_a_label_nor_a_value_of_the_grid():
    made = grid(labels=["S-p"], vary={"x": [1]}, mode="one_at_a_time", baseline={"label": "R", "x": 2})
    assert [(row.name, *map(str, row.changes)) for row in made.rows] == [
        ("R", "x=2"),
        ("S-p", "x=2"),
        ("R  x=1", "x=1"),
    ]


def test_mode_list_keeps_the_rows_and_moves_shared_changes_to_the_grid():
    made = grid(
        mode="list",
        rows=[{"label": "S-p", "a.b": 1, "c": "x"}, {"label": "R", "c": "x"}, {"label": "R", "c": "x", "a.b": 2}],
        baseline={"label": "R"},
    )
    assert names(made) == ["R", "S-p  a.b=1", "R  a.b=2"]
    assert (made.overrides, made.axes) == (parse_overrides(["c=x"]), ("a.b",))


def test_a_grid_without_axes_is_its_labels():
    made = grid(labels=["{S,R}-c", "S-c"], set={"training.epochs": 3}, seeds="0-2", tasks="compression")
    assert made.rows == (Row("S-c"), Row("R-c")) and made.overrides == parse_overrides(["training.epochs=3"])
    assert made.seeds == (0, 1, 2) and made.tasks == ("compression",)


def test_a_row_for_a_suite_has_only_the_changes_of_that_suite():
    one, steps, mini = parse_overrides(["a=1", "language_model.training.steps=2", "language_model=mini"])
    row = Row("S", (one, steps, mini), (mini, one))
    assert row.for_suite(MAD, MAD) == Row("S", (one,), (one,))
    assert row.for_suite(LANGUAGE, MAD).name == "S  language_model=mini"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8, "8"),
        (0.5, "0.5"),
        (1e-5, "1.0e-05"),
        ("1e-3", "1e-3"),
        ("8", "'8'"),
        (True, "true"),
        ([1, 2], "[1, 2]"),
        (None, "null"),
    ],
)
def test_values_are_written_in_yaml(value, text):
    assert grid(labels=["S"], set={"a.b": value}).overrides == parse_overrides([f"a.b={text}"])


@pytest.mark.parametrize("value", [0, 2.5, -1e-9, "1", "", "x", "a: b", "é # no", "- ", True, None, [1, [2]]])
def test_an_override_value_survives_being_written_as_text(value):
    (change,) = grid(labels=["S"], set={"a": value}).overrides
    assert settings_of([change]) == {"a": value} and "\n" not in str(change)


LABELS = st.lists(st.sampled_from(["S", "S-p", "R", "R-c", "G"]), min_size=1, max_size=4, unique=True)
VALUES = [0, 1, 2.5, "1", "", "x", "a: b", "é # no", True, None, [1, 2], -1e-9]
AXES = st.dictionaries(
    st.sampled_from(["a", "b.c", "b.d", "language_model.e"]),
    st.lists(st.sampled_from(VALUES), min_size=2, max_size=3, unique_by=repr),
    max_size=3,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(LABELS, AXES, st.data())
def test_a_product_has_every_row_once_for_any_baseline(labels, vary, data):
    baseline = {key: data.draw(st.sampled_from(values)) for key, values in vary.items()}
    baseline["label"] = data.draw(st.sampled_from(labels))
    made = grid(labels=labels, vary=vary, baseline=baseline)
    assert len({(row.label, row.changes) for row in made.rows}) == len(made.rows)
    assert len(made.rows) == len(labels) * math.prod(map(len, vary.values()))
    assert set(made.rows) == set(grid(labels=labels, vary=vary).rows)
    assert made.rows[0].label == baseline["label"]
    assert len({row.name for row in made.rows}) == len(made.rows)


@settings(max_examples=40)
@given(LABELS, AXES.filter(bool))
def test_one_at_a_time_rows_differ_from_the_first_in_exactly_one_thing(labels, vary):
    made = grid(labels=labels, vary=vary, mode="one_at_a_time")
    first, *others = made.rows
    for row in others:
        assert (row.label != first.label) + sum(a != b for a, b in zip(row.changes, first.changes, strict=True)) == 1
    assert len(others) == len(labels) - 1 + sum(len(values) - 1 for values in vary.values())
    assert len({row.name for row in made.rows}) == len(made.rows)


@settings(max_examples=40)
@given(LABELS, AXES.filter(bool))
def test_a_larger_grid_has_the_rows_of_the_smaller_one(labels, vary):
    small = grid(labels=labels, vary=vary)
    more = {key: [*values, "one more"] for key, values in vary.items()}
    assert set(small.rows) <= set(grid(labels=[*labels, "G-c"], vary=more).rows)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"label": ["S"]}, "grid.yaml: unknown key 'label'; did you mean 'labels'?"),
        (
            {"labels": ["S"], "lr": 1e-3},
            "'lr'; a setting that all rows share is written under set, as set: {learning_r",
        ),
        ({"labels": ["S"], "mode": "products"}, "grid.yaml: mode: 'products' is not allowed; did you mean 'product'?"),
        ({"labels": ["S"], "vary": {"a": 3}}, "grid.yaml: vary: a: expected a list of values, such as a: [1, 2]"),
        ({"labels": ["S"], "vary": {"a": [3]}}, "vary: 'a' has one value; write a: 3 under set"),
        ({"labels": ["S"], "vary": {"lr": [0.1]}}, "vary: 'lr' has one value; write learning_rates: 0.1 under set"),
        ({"labels": ["S"], "vary": {"a": [3, 3]}}, "vary: 'a' has one value; write a: 3 under set"),
        ({"labels": ["S"], "vary": {"a": [3, 3, 4]}}, "vary: a=3 appears twice; leave one out"),
        ({"labels": ["S"], "vary": {"a": {"b": 3}}}, "vary: a: expected a list of values, got a mapping; write a.b: "),
        ({"labels": ["S"], "vary": {1: [3, 4]}}, "vary: 1 is no key of a setting, such as model.mix_rank"),
        ({"labels": ["S"], "set": {1: 2}}, "set: 1 is no key of a setting, such as model.mix_rank"),
        ({"mode": "list", "rows": [{"label": "S", 1: 2}]}, "rows[0]: settings: 1 is no key of a setting"),
        ({"labels": ["S"], "vary": {"a": [3, 4]}, "set": {"a": 3}}, "'a' is both set and varied; only one can hold"),
        (
            {"labels": ["S"], "vary": {"seeds": [3, 4]}},
            "vary: 'seeds' is no setting of the profile; it is a key of the grid",
        ),
        (
            {"labels": ["S"], "vary": {"fidelity": [3, 4]}},
            "'fidelity' is no setting of the profile; a table has only one",
        ),
        ({"labels": ["S"], "vary": {"a b": [3, 4]}}, "vary: 'a b' is no key of a setting, such as model.mix_rank"),
        (
            {"labels": ["S"], "set": {"model": {"mix_rank": 3}}},
            "expected a value, got a mapping; write model.mix_rank: ...",
        ),
        ({"labels": ["S"], "rows": [{"label": "S"}]}, "rows has no effect in mode product; write mode: list"),
        ({"labels": ["S"], "mode": "one_at_a_time"}, "mode: one_at_a_time has no effect without values under vary"),
        ({"labels": ["S"], "mode": "one_at_a_time", "vary": {"a": [3]}}, "vary: 'a' has no value but the baseline's"),
        ({"labels": ["S"], "mode": "list"}, "labels has no effect in mode list, which takes rows"),
        ({"mode": "list"}, "mode: list needs rows"),
        ({"mode": "list", "rows": [{"a": 3}]}, "grid.yaml: rows[0]: key 'label' is missing"),
        ({"mode": "list", "rows": [{"label": "S"}, {"label": "S"}]}, "rows[1]: S appears twice"),
        (
            {"mode": "list", "rows": [{"label": "S", "a": 1}, {"label": "R"}], "set": {"a": 2}},
            "'a' is both set and given in a row",
        ),
        (
            {"labels": ["S"], "vary": {"a": [3, 4]}, "baseline": {"b": 3}},
            "baseline: 'b' is not varied; expected one of: label, a",
        ),
        (
            {"labels": ["S"], "vary": {"a": [3, 4]}, "baseline": {"a": 5}},
            "baseline: no row is any label  a=5",
        ),
        (
            {"labels": ["S-c"], "baseline": {"label": "S-p"}},
            "baseline: no row is S-p; did you mean 'S-c'?",
        ),
        ({"mode": "list", "rows": [{"label": "S"}], "baseline": {"label": "R"}}, "baseline: no row is R"),
        ({"labels": ["S"], "seeds": [0, 0]}, "seeds: 0 appears twice"),
        ({"labels": ["S"], "seeds": "one"}, "seeds 'one': expected whole numbers such as 0,1,2 or 0-4"),
        (
            {"labels": ["S"], "seeds": -1},
            "seeds: expected whole numbers of at least 0, such as 0-2 or [0, 1, 2], got -1",
        ),
        (
            {"labels": ["S"], "vary": {key: list(range(99)) for key in "abc"}},
            "the grid has 970,299 rows; at most 10,000",
        ),
    ],
)
def test_unknown_repeated_ineffective_and_contradictory_keys_of_a_grid_are_refused(tmp_path, monkeypatch, keys, says):
    import yaml

    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(keys))
    with pytest.raises(ConfigError, match=re.escape(says)) as raised:
        load_grid("grid.yaml", {})
    assert str(raised.value).startswith("grid.yaml: ")


def test_a_wrong_label_is_pointed_at_and_the_file_named(tmp_path):
    (tmp_path / "grid.yaml").write_text("mode: list\nrows: [{label: S}, {label: G-cx-q-12o}]\n")
    with pytest.raises(LabelError) as raised:
        load_grid(tmp_path / "grid.yaml", {})
    first, caret, *where = str(raised.value).splitlines()
    assert first == "label 'G-cx-q-12o'" and caret.strip().startswith("^")
    assert where == ["in rows[1]", f"in {tmp_path / 'grid.yaml'}"]


def test_given_changes_are_added_to_a_grid_file_and_replace_equal_keys(tmp_path):
    (tmp_path / "grid.yaml").write_text("labels: [S, R]\nseeds: 3\nset: {a: 1, b: 2}\nvary: {c: [1, 2]}\n")
    made = load_grid(str(tmp_path / "grid.yaml"), {"seeds": [0, 1], "set": {"a": 9}, "vary": {"c": [5, 6, 7]}})
    assert made.seeds == (0, 1) and set(map(str, made.overrides)) == {"a=9", "b=2"}
    assert len(made.rows) == 6 and made.where == str(tmp_path / "grid.yaml")


def test_budget_parameters_in_a_grid_means_strict(tmp_path):
    (tmp_path / "grid.yaml").write_text("labels: [S]\nbudget: parameters\n")
    assert load_grid(tmp_path / "grid.yaml", {}).budget == "strict"
    assert load_grid(tmp_path / "grid.yaml", {"budget": "paper"}).budget == "paper"
    assert load_grid(["S"], {"budget": "parameters"}) == load_grid(["S"], {"budget": "strict"})


def test_seeds_may_be_text_or_a_list():
    assert grid(labels=["S"], seeds="0,2-4").seeds == (0, 2, 3, 4)
    with pytest.raises(ConfigError, match="^seeds '2-1'"):
        grid(labels=["S"], seeds="2-1")
    assert grid(labels=["S"], seeds=[2, 0]).seeds == (2, 0)
