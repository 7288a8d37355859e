"""Values and claims that differ from the registered ones are named, and make verdicts provisional."""

from __future__ import annotations

import copy
import functools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hypermlp_claims import REFERENCE
from installed import forget_installed
from madbench import config
from madbench.analysis.baselines import HEURISTIC, baseline_values
from madbench.analysis.registered_findings import changed_claims, changed_sentence, changed_values
from madbench.analysis.registration import load_registration, register
from madbench.analysis.verdict_inputs import changed_inputs
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from registrations import LABELS, write_registration


@pytest.fixture(scope="module")
def loaded_registration(complete_folder):
    """The registration in the folder ``complete_folder``, and its experiment."""
    found, results = load_registration(complete_folder / "lag.registered.json", complete_folder / "results")
    return found, results


@pytest.fixture
def papers(tmp_path, monkeypatch) -> Iterator[Path]:
    """A copy of the folder of the paper, read in place of the installed papers."""
    shutil.copytree(config.PAPERS / "hypermlp", tmp_path / "papers" / "hypermlp")
    monkeypatch.setattr(config, "PAPERS", tmp_path / "papers")
    forget_installed()
    yield tmp_path / "papers"
    forget_installed()


def with_threshold(content: dict, name: str, value) -> dict:
    """The content of a registration made where the value ``name`` (a dotted name) was ``value``."""
    content = copy.deepcopy(content)
    *outer, last = name.split(".")
    functools.reduce(dict.__getitem__, outer, content["thresholds"])[last] = value
    return content


def with_claim(content: dict, **changes) -> dict:
    """The content of a registration made where the first claim had other fields."""
    first, *others = content["claims"]
    assert set(changes) <= set(first)
    return content | {"claims": [first | changes, *others]}


@pytest.mark.slow
def test_a_complete_and_unchanged_registration_has_a_verdict_without_reservations(judge_complete):
    said, verdicts = judge_complete()
    assert (
        verdicts == ["supported"] and "provisional" not in said and "changed" not in said and "not stored" not in said
    )


OTHER_VALUES = {
    "level": 0.1,
    "least_seeds": 2,
    "unlearned_share": 0.04,
    "margin_share": 0.3,
    "last_evaluations": 4,
    "solved_share.compression": 0.5,
    "chance.memorization": 50.0,
    "columns.compression.resolution": 0.2,
    "columns.mad_average.resolution": 0.2,
    "columns.mad_average.limits": [0.0, None],
    "columns.mad_average.better": "lower",
    "published.R-12o!.mad_average": 90.0,
    "published.R-cg-q.mad_average": 10.0,
    "quantities.lag": [MAD_AVERAGE, LOSS],
}
"""For each value that verdicts depend on: a different value."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_changed_threshold_is_named_with_its_registered_value(name, file, loaded_registration, complete_folder):
    found, made = loaded_registration
    assert changed_values(found, made) == []
    write_registration(file, with_threshold(json.loads(file.read_text()), name, OTHER_VALUES[name]))
    changed = changed_values(load_registration(file, complete_folder / "results")[0], made)
    assert [change.split(" ")[0] for change in changed] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["level", "chance.memorization", "published.R-12o!.mad_average"])
def test_a_value_that_changed_makes_verdicts_provisional(name, file_with_runs, judge_copy):
    write_registration(file_with_runs, with_threshold(json.loads(file_with_runs.read_text()), name, OTHER_VALUES[name]))
    said, verdicts = judge_copy()
    assert "The verdicts are provisional." in said
    assert f"{name} " in said.split("Changed values: ")[1]
    assert verdicts and all(verdict.endswith(" (provisional)") for verdict in verdicts)


@pytest.mark.slow
def test_an_edited_file_of_published_numbers_is_named(judge_complete, loaded_registration, papers):
    folder = papers / "hypermlp"
    text = (folder / "table1.csv").read_text(encoding="utf-8")
    (folder / "table1.csv").write_text(text.replace("46.27", "26.27"), encoding="utf-8")
    assert text.count("46.27") == 1
    said, verdicts = judge_complete()
    assert "published.R-12!.mad_average 46.27, now 26.27" in said
    headrooms = [
        100 - value for value in baseline_values(HEURISTIC, loaded_registration[1].jobs, averages=False).values()
    ]
    scale = sum(headrooms) / 6 / REFERENCE.headroom(MAD_AVERAGE)  # of what the paper's labels had to learn
    lines = [float(line) for line in re.search(r"lines\.lag\.mad_average (\S+), now ([^\s;]+)[;.]", said).groups()]
    assert lines == pytest.approx([(81.82 - of_r + 78.52 - 46.18) / 2 / 2 * scale for of_r in (46.27, 26.27)])
    assert verdicts == ["supported (provisional)"]


@pytest.mark.slow
def test_registered_thresholds_are_used_if_the_present_analysis_has_others(file_with_runs, judge_copy):
    write_registration(
        file_with_runs, with_threshold(json.loads(file_with_runs.read_text()), "lines.lag.mad_average", 90.0)
    )
    said, verdicts = judge_copy()
    assert verdicts == ["contradicted (provisional)"]
    assert "lines.lag.mad_average 90, now 15.4" in said
    assert "With the present thresholds: The lag layout is necessary, MAD avg: supported." in said


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, "; and 1 more")])
def test_the_first_five_changed_values_are_listed_and_the_rest_counted(count, more):
    named = [f"value_{i} 0, now 1" for i in range(count)]
    expected = f"Changed values: {'; '.join(named[:5])}{more}. The verdicts are provisional."
    assert changed_sentence(named) == expected


def test_added_and_removed_values_are_changes():
    then, now = {"a": {"b": 1, "c": [1, 2]}, "d": 0.5}, {"a": {"c": [1, 3], "e": 2}, "d": 0.5}
    assert changed_inputs(then, now) == ["a.b 1, now missing", "a.c [1, 2], now [1, 3]", "a.e missing, now 2"]
    assert changed_inputs(then, then) == []


@pytest.mark.slow
def test_a_changed_claim_is_named_and_judged_as_registered(file_with_runs, judge_copy):
    content = json.loads(file_with_runs.read_text())
    write_registration(file_with_runs, with_claim(content, expects="no gain", title="Other"))
    said, verdicts = judge_copy()
    assert "Claims changed after the registration, judged as registered: lag (expects)." in said
    assert verdicts == ["contradicted (provisional)"]


def test_a_registered_claim_that_is_no_longer_there_is_named(loaded_registration):
    found, _ = loaded_registration
    assert changed_claims(replace(found, claims=(replace(found.claims[0], name="layout"),))) == [
        "layout (no longer there)"
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reach", 0.25),
        ("pairs", (LABELS[:2],)),
        ("expects_on", {LOSS: "no gain"}),
        ("judges", "every pair"),
        ("quantities", (LOSS,)),
    ],
)
def test_a_changed_field_of_a_claim_is_named_but_not_its_wording(field, value, path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    assert changed_claims(found) == []
    (claim,) = found.claims
    assert changed_claims(replace(found, claims=(replace(claim, **{field: value}),))) == [f"lag ({field})"]
    worded = replace(claim, title="Other", sentence="Other.", note="Other.")
    assert changed_claims(replace(found, claims=(worded,))) == []


@pytest.mark.slow
def test_verdicts_of_a_registration_with_another_test_name_it(file_with_runs, judge_copy):
    content = json.loads(file_with_runs.read_text())
    del content["test"]
    content |= {"form": 2, "analysis": "0" * 16}
    write_registration(
        file_with_runs, content | {"thresholds": content["thresholds"] | {"noise": {}, "least_for_level": 5}}
    )
    said, verdicts = judge_copy()
    assert verdicts == ["supported (registered with another test)"] and "Changed values" not in said
    assert "Registered with an unnamed test; judged by moderated t 1." in said
