"""Standard deviations, ranks and baselines in every output of results."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from functools import partial

import pytest

import madbench
from madbench.suites.mad.suite import MAD
from madbench.suites.scoring import scoring_of

VALUES = {
    "S": (0.46, 0.48, 0.51, 0.47, 0.48) * 2,
    "R": (0.80, 0.83, 0.87, 0.82, 0.84) * 2,
    "R-c": (0.81, 0.82, 0.86, 0.81, 0.83) * 2,
}


@pytest.fixture
def of_three(main, fill, tiny):
    """Run a verb on ten seeds of three labels."""
    for label, accuracies in VALUES.items():
        for seed, accuracy in enumerate(accuracies):
            fill(label, accuracy, [seed])

    def call(verb, *words):
        return main(verb, *words, "-p", tiny, "-t", "compression")

    return call


def sd(label: str) -> float:
    return 100 * statistics.stdev(VALUES[label])


@pytest.mark.slow
@pytest.mark.parametrize("format", ["terminal", "markdown", "html", "latex"])
def test_a_table_has_means_with_plain_standard_deviations(of_three, format):
    shown = of_three("table", "--spread", "sd", "--format", format)
    assert shown.code == 0, shown.stderr
    sign = r"$\pm$" if r"$\pm$" in shown.stdout else "±"
    for label, values in VALUES.items():
        line = next(line for line in shown.stdout.splitlines() if re.match(rf"\W*(\w+\W+)*?{label}\W", line))
        assert f"{100 * statistics.mean(values):.1f}" in line and sign in line and f"{sd(label):.1f}" in line
    assert "standard deviation over seeds" in " ".join(shown.stdout.split()) and "95% interval" not in shown.stdout


@pytest.mark.slow
def test_a_standard_deviation_of_zero_is_shown_but_none_for_a_single_seed(main, fill, tiny):
    fill("S", 0.7, [0, 1, 2])
    fill("R", 0.7, [0])
    shown = main("table", "-p", tiny, "-t", "compression", "--spread", "sd", "-f", "markdown").stdout
    assert "| S | 70.0 ±0.0 |" in shown and "| R | 70.0† |" in shown


@pytest.mark.slow
def test_compare_with_spread_shows_mean_and_deviation_of_both_labels(of_three):
    shown = of_three("compare", "S", "R", "--spread", "sd", "-f", "markdown")
    assert f"| 83.2±{sd('R'):.1f}(10) 48.0±{sd('S'):.1f}(10) |" in shown.stdout
    (cell,) = json.loads(of_three("compare", "S", "R", "-f", "json").stdout)["cells"]
    assert (cell["spread"], cell["baseline_spread"]) == pytest.approx((sd("R"), sd("S")))


@pytest.mark.slow
def test_json_csv_and_frames_always_have_standard_deviations(of_three, tiny):
    cells = json.loads(of_three("table", "-f", "json").stdout)["cells"]
    lines = [*csv.DictReader(io.StringIO(of_three("table", "-f", "csv").stdout))]
    frame = madbench.table(profile=tiny, tasks="compression")
    for spreads in (
        {cell["label"]: cell["spread"] for cell in cells},
        {line["label"]: float(line["spread"]) for line in lines},
        dict(zip(frame.label, frame.spread)),
    ):
        assert spreads == {label: pytest.approx(sd(label)) for label in VALUES}


@pytest.mark.slow
def test_the_option_ranks_shows_ranks_with_intervals(of_three, tiny):
    shown = of_three("table", "--ranks", "-f", "markdown")
    assert shown.code == 0, shown.stderr
    places = ["| S | 3 [3,3] |", "| **1 [1,2]** |", "| <u>2 [1,2]</u> |"]
    assert all(place in shown.stdout for place in places)
    assert "for all labels at once" in shown.stdout
    frame = madbench.table(profile=tiny, tasks="compression", ranks=True).set_index("label")
    assert frame.loc["S", ["rank", "rank_low", "rank_high"]].tolist() == [3, 3, 3]
    assert "rank" not in madbench.table(profile=tiny, tasks="compression")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--spread", "sd"], ["--baselines"]])
def test_options_without_effect_on_a_table_of_ranks_are_refused(of_three, words):
    refused = of_three("table", "--ranks", *words)
    assert refused.code == 2 and " ".join(words) in refused.stderr and "no effect" in refused.stderr


@pytest.mark.slow
def test_baselines_stand_below_the_labels_and_in_every_record(of_three, tiny):
    job = MAD.jobs(["S"], MAD.Profile.load(tiny), tasks=["compression"], seeds=[0])[0]
    chance, heuristic = scoring_of(MAD).chance(job), scoring_of(MAD).heuristic(job)
    shown = of_three("table", "--baselines", "-f", "markdown").stdout.splitlines()
    assert f"| chance | {chance:.1f} |  |  |" in shown and f"| heuristic | {heuristic:.1f} |  |  |" in shown
    assert "best answer that ignores the context" in shown[-1]
    assert not any("heuristic" in line for line in of_three("table", "-f", "markdown").stdout.splitlines())
    for cell in json.loads(of_three("table", "-f", "json").stdout)["cells"]:
        assert (cell["chance"], cell["heuristic"]) == pytest.approx((chance, heuristic))


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_the_report_shows_deviations_and_baselines_with_their_options(of_three, tmp_path):
    write = partial(of_three, "report", "-o", str(tmp_path / "page.html"))
    assert write().code == 0
    assert "standard deviation over seeds" not in (tmp_path / "page.html").read_text()
    assert write("--spread", "sd", "--baselines").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "standard deviation over seeds" in page and f"±{sd('S'):.1f}" in page and ">heuristic<" in page
