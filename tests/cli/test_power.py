"""``madbench findings --power``: the number of seeds that claims need."""

from __future__ import annotations

import csv
import io
import json

import pytest

from madbench.analysis.inference import LEVEL
from madbench.cli.findings import findings


@pytest.fixture
def rows(invoke, tiny):
    """``rows(*words)``: the records, as JSON has them."""

    def call(*words):
        output = invoke(findings, "--power", *words, "--profile", tiny, "-f", "json")
        assert not output.exception, output.exception
        return json.loads(output.stdout)["cells"]

    return call


@pytest.fixture
def fill_seeds(fill):
    """``fill_seeds(label, accuracies)``: a seed each, on compression."""

    def call(label, accuracies):
        for seed, accuracy in enumerate(accuracies):
            fill(label, accuracy, [seed], tasks=["compression"])

    return call


@pytest.mark.slow
def test_a_clear_gain_needs_few_seeds_and_a_small_one_many(fill_seeds, rows):
    fill_seeds("R-cg-q", [0.2, 0.21, 0.22])
    fill_seeds("R-cg-q-12o", [0.6, 0.61, 0.62])
    words = ("--claim", "compression", "-t", "compression")
    (clear,) = rows(*words)
    assert (clear["claim"], clear["quantity"], clear["n"]) == ("compression", "compression", 3)
    assert clear["gain"] == pytest.approx(40.0) and clear["threshold"] == 0
    assert 3 <= clear["seeds"] <= 6 and 0.8 <= clear["probability"] <= 1
    assert rows(*words) == [clear]  # a formula
    fill_seeds("R-cg-q-12o", [0.6, 0.61, 0.62, 0.1, 0.2, 0.3])
    fill_seeds("R-cg-q", [0.2, 0.21, 0.22, 0.5, 0.4, 0.3])
    (hazy,) = rows(*words)
    assert hazy["seeds"] == 0 or hazy["seeds"] > clear["seeds"]


@pytest.mark.slow
def test_power_uses_the_level_divided_by_the_number_of_claims(fill_seeds, invoke, tiny):
    fill_seeds("R-cg-q", [0.2, 0.25, 0.3])
    fill_seeds("R-cg-q-12o", [0.3, 0.36, 0.42])
    words = ("-p", tiny, "-t", "compression")
    content = json.loads(invoke(findings, "--power", *words, "-f", "json").stdout)
    names = [one["claim"] for one in content["cells"]]
    assert "compression" in names and f"The level is {LEVEL / len(names):.2g}, " in content["caption"]
    (alone,) = json.loads(invoke(findings, "--power", *words, "--claim", "compression", "-f", "json").stdout)["cells"]
    (among,) = [one for one in content["cells"] if one["claim"] == "compression"]
    assert among["seeds"] == 0 or among["seeds"] >= alone["seeds"] > 0


@pytest.mark.slow
def test_power_is_unknown_with_one_stored_seed(fill_seeds, rows, invoke, tiny):
    fill_seeds("R-cg-q", [0.2])
    fill_seeds("R-cg-q-12o", [0.6])
    (row,) = rows("--claim", "compression", "-t", "compression")
    assert (row["n"], row["seeds"], row["probability"]) == (1, 0, None)
    shown = invoke(findings, "--power", "--claim", "compression", "-t", "compression", "-p", tiny, columns=120).stdout
    assert shown.splitlines()[2].split()[-4:] == ["+40.0", "+0.0", "1", "-"]


@pytest.mark.slow
def test_every_format_of_power_has_the_same_values_within_80_columns(fill_seeds, invoke, tiny):
    fill_seeds("R-cg-q", [0.2, 0.21, 0.22])
    fill_seeds("R-cg-q-12o", [0.6, 0.61, 0.62])
    words = ("-p", tiny, "-t", "compression", "--claim", "compression")
    shown = invoke(findings, "--power", *words, columns=80).stdout
    assert max(map(len, shown.splitlines())) <= 80 and "abacus" not in shown
    wide = invoke(findings, "--power", *words, columns=140).stdout
    assert wide.splitlines()[0].split() == "Claim On Gain Line n Seeds Power True gain Seeds for it Its power".split()
    (record,) = json.loads(invoke(findings, "--power", *words, "-f", "json").stdout)["cells"]
    (line,) = csv.DictReader(io.StringIO(invoke(findings, "--power", *words, "-f", "csv").stdout))
    assert {name: str(value) for name, value in record.items()} == line
    assert (
        f"| {record['seeds']} | {record['probability']:.0%} |"
        in invoke(findings, "--power", *words, "-f", "markdown").stdout
    )
    assert "Trained on an abacus." in " ".join(invoke(findings, "--power", *words, "--notes").stdout.split())


@pytest.mark.slow
def test_power_is_empty_without_a_stored_pair(fill_seeds, rows):
    fill_seeds("S", [0.2, 0.3])
    assert rows() == []


def test_an_unknown_claim_is_named_with_the_nearest(store, refuse):
    assert refuse(findings, "--power", "--claim", "lagg") == "--claim lagg: no such claim; did you mean 'lag'?"
    assert refuse(findings, "--power", "--claim", ",") == "--claim ',': names no claim; without --claim all are used"


@pytest.mark.slow
def test_the_option_true_gain_sets_the_gain_of_the_power(fill_seeds, rows, refuse):
    fill_seeds("R-cg-q", [0.2, 0.22, 0.24])
    fill_seeds("R-cg-q-12o", [0.3, 0.31, 0.33])
    words = ("--claim", "compression", "-t", "compression")
    (large,), (small,) = (rows(*words, "--true-gain", gain) for gain in ("20", "1"))
    assert (large["true_gain"], small["true_gain"]) == (20.0, 1.0)
    assert large["power"] >= 0.8
    assert small["power_seeds"] == 0 or small["power_seeds"] > large["power_seeds"] > 0
    assert large["seeds"] == small["seeds"]  # of the measured gain
    assert "has no effect without --power" in refuse(findings, "--true-gain", "3")


@pytest.mark.slow
def test_a_larger_gain_never_needs_more_seeds_than_a_smaller_one_in_the_same_row(fill_seeds, rows):
    fill_seeds("R-cg-q", [0.2, 0.22, 0.24])
    fill_seeds("R-cg-q-12o", [0.85, 0.88, 0.91])
    (row,) = rows("--claim", "compression", "-t", "compression", "--true-gain", "10")
    assert row["gain"] > row["true_gain"] and 3 <= row["seeds"] <= (row["power_seeds"] or 99)
