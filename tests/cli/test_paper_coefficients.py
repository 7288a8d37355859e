"""``madbench paper coefficients``: what it trains, decides and draws, on stored accuracies."""

import dataclasses
import json
import math
import random

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from madbench.analysis.figures.files import frame_of
from madbench.analysis.figures.panels import HEIGHT, WIDTHS, Layout
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.experiment import prepare
from madbench.jobs import Record
from madbench.papers import load_paper
from madbench.papers.coefficients import FULL, QUICK, Study, coefficients
from madbench.papers.coefficients.deciding import decide
from madbench.papers.coefficients.figures import BAR_COLUMNS, bar_figure
from madbench.papers.coefficients.measure import PrincipleMeasure, rows_of, study_of
from madbench.papers.coefficients.shares import compare_shares
from madbench.papers.coefficients.studies import FIGURES, PRINCIPLES, principle
from madbench.papers.coefficients.sweeps import both_choices
from madbench.papers.making import Request, jobs_of
from madbench.rows import Grid
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.suites.tokens import LARGEST_COEFFICIENT


def results_of(number, tmp_path, accuracy):
    """Results of a principle's quick study."""
    return store_results(principle(number).study(QUICK), tmp_path, accuracy)


def store_results(study, tmp_path, accuracy, curve_of=None, metrics_of=lambda job: {}):
    """Results of a study whose runs have ``accuracy(label)``, None a diverged run, ``metrics_of(job)`` in its place,
    and the curve ``curve_of(job)``."""
    grid = Grid(
        rows_of(study), profile=QUICK, tasks=study.tasks, overrides=study.overrides, seeds=(0, 1, 2), budget="paper"
    )
    experiment, store = prepare(grid, device="cpu", results=tmp_path), Store.open(tmp_path)
    rng = random.Random(0)
    for job in experiment.jobs:
        value = accuracy(job.label)
        curve = [] if curve_of is None else curve_of(job)
        if value is None:
            store.finish(job, Record("diverged", curve=curve))
            continue
        found = value + rng.gauss(0, 0.005)
        metrics = {"accuracy": found, "selection_accuracy": found, "ceiling": 1.0} | metrics_of(job)
        store.finish(job, Record("finished", metrics, curve, {"budget_ratio": 1.0}))
    return Results.from_rows(experiment, store)


def decide_on(number, tmp_path, accuracy):
    one = principle(number)
    return decide(one, one.study(QUICK), results_of(number, tmp_path, accuracy))


@pytest.mark.slow
@pytest.mark.parametrize("profile", [FULL, QUICK])
def test_the_studies_are_of_valid_labels_and_budgets(profile, tmp_path):
    for one in PRINCIPLES:
        study = one.study(profile)
        if not study.tasks:
            continue
        grid = Grid(rows_of(study), profile=profile, tasks=study.tasks, overrides=study.overrides, budget="paper")
        experiment = prepare(grid, device="cpu", results=tmp_path)
        trained = {row.label for row in experiment.grid.rows}
        assert {job.task for job in experiment.jobs} == set(study.tasks)
        assert {label for one in study.contrasts for label in (one.better, one.worse)} <= trained


def test_the_grids_of_the_paper_have_its_size():
    runs = {one.number: len(one.study(FULL).labels) * len(one.study(FULL).tasks) * 10 for one in PRINCIPLES}
    assert (runs["3"], runs["6"]) == (120, 90)


@pytest.mark.slow
def test_an_expected_gap_is_supported_for_every_readout(tmp_path):
    found = decide_on("3", tmp_path, lambda label: 0.55 if "-p" in label or "0.9" in label else 0.4)
    assert found.verdicts == dict.fromkeys(("exp", "softplus", "relu"), "supported")
    assert set(found.frame.group) == {"exp", "softplus", "relu"}


@pytest.mark.slow
def test_the_opposite_gap_contradicts_and_no_gap_decides_nothing(tmp_path):
    def accuracy(label):
        gap = {"exp": -0.15, "softplus": 0.0, "relu": 0.15}[label[3:].split("-")[0]]
        return 0.5 + gap * ("-p" in label or "0.9" in label)

    found = decide_on("3", tmp_path, accuracy).verdicts
    assert found["exp"] == "contradicted" and found["relu"] == "supported"
    assert "not significant" in found["softplus"]


@pytest.mark.slow
def test_diverged_runs_count_against_a_label_and_are_hatched(tmp_path):
    def accuracy(label):
        if label.startswith("cd:exp") and not label.endswith("sum-p"):
            return None
        return 0.55 if label.endswith(("sum-p", "pow-p")) else 0.4

    found = decide_on("6", tmp_path, accuracy)
    assert found.verdicts == dict.fromkeys(("exp", "softplus", "relu"), "supported")  # they score at chance
    means = found.frame[found.frame["mark"] == "mean"]
    assert sorted(means[means.state == "diverged"].variant) == ["1.15-b1-p", "1.15-b1-pow-p"]
    assert any(patch.get_hatch() for patch in found.figure.axes[0].patches)


@pytest.mark.slow
def test_mirrors_above_gates_is_tested_with_unit_keys_on_both_sides_too(tmp_path):
    def accuracy(label):
        return 0.7 if "-h" in label else 0.55 if label.endswith("-cug") else 0.4

    found = decide_on("4", tmp_path, accuracy).verdicts
    assert found["mirrors above gates"] == found["mirrors above gates of unit keys"] == "supported"
    assert "not significant" in found["learned vectors above keys"]


@pytest.mark.slow
def test_the_harder_task_of_principle_4_is_left_out_where_another_task_is_asked_for(tmp_path):
    paper = load_paper("coefficients")
    for tasks, lengths in (((), {64}), (("memorization",), {32})):
        request = Request(paper, paper.item("principle4"), tasks=tasks, results=tmp_path)
        assert {job.setting["seq_len"] for job in jobs_of(request)} == lengths


@pytest.mark.slow
def test_mirrors_that_owe_it_to_unit_keys_alone_are_told_so(tmp_path):
    found = decide_on("4", tmp_path, lambda label: 0.6 if "u" in label.split("-")[-1] else 0.4).verdicts
    assert found["mirrors above gates"] == "supported"
    assert "not significant" in found["mirrors above gates of unit keys"]


@pytest.mark.slow
def test_a_sweep_of_rates_is_shown_by_validation_and_by_its_best_run(tmp_path):
    study = dataclasses.replace(principle("3").study(QUICK), overrides=("learning_rates=[1.0e-3, 3.0e-3]",))

    def metrics(job):
        is_low = job.training.learning_rate == 1e-3
        return {"accuracy": 0.4 if is_low else 0.6, "selection_accuracy": 0.9 if is_low else 0.1}

    table = both_choices(store_results(study, tmp_path, lambda label: 0.5, metrics_of=metrics))
    assert {(row["validation"], row["best_of_sweep"], row["seeds"]) for row in table.records()} == {(40, 60, 2)}
    assert len(table.records()) == len(study.labels)
    assert both_choices(results_of("3", tmp_path / "one", lambda label: 0.5)) is None


@pytest.mark.slow
def test_both_choices_of_a_sweep_are_of_the_seeds_that_are_reported(tmp_path):
    """The first seed chooses the rate for the others; were it counted on one side, 65 would be 77."""
    whole = principle("3").study(QUICK)
    study = dataclasses.replace(whole, patterns=whole.patterns[:1], overrides=("learning_rates=[1.0e-3, 3.0e-3]",))

    def metrics(job):
        accuracy = (1.0, 0.6, 0.7)[job.seed]
        return {"accuracy": accuracy, "selection_accuracy": accuracy - job.training.learning_rate}

    for row in both_choices(store_results(study, tmp_path, lambda label: 0.5, metrics_of=metrics)).records():
        assert row["seeds"] == 2
        assert row["validation"] == pytest.approx(65) and row["best_of_sweep"] == pytest.approx(65)


@pytest.mark.slow
def test_the_largest_coefficients_of_growing_labels_are_shown_by_seed(tmp_path):
    def curve(job):
        return [
            {"step": n, LARGEST_COEFFICIENT: value}
            for n, value in enumerate([job.seed + 1.5, 0.5, math.inf, math.nan][: 2 + job.seed])
        ]

    results = store_results(principle("6").study(QUICK), tmp_path, lambda label: 0.5, curve)
    measured = decide(principle("6"), principle("6").study(QUICK), results).measured
    headings, lines = measured.text_rows()
    assert headings == ["Label", "seed 0", "seed 1", "seed 2"]
    assert {label: values for label, *values in lines} == dict.fromkeys(
        principle("6").study(QUICK).labels, ["1.5", "inf", "inf"]
    )
    assert {row[LARGEST_COEFFICIENT] for row in measured.records()} == {1.5, None}


@pytest.mark.slow
def test_the_largest_coefficient_of_a_seed_is_that_of_all_its_learning_rates(tmp_path):
    study = dataclasses.replace(principle("6").study(QUICK), overrides=("learning_rates=[1.0e-3, 3.0e-3]",))

    def curve(job):
        return [{"step": 1, LARGEST_COEFFICIENT: 1e-3 / job.training.learning_rate}]

    results = store_results(study, tmp_path, lambda label: 0.5, curve)
    _, lines = decide(principle("6"), study, results).measured.text_rows()
    assert lines and all(values == ["1", "1", "1"] for _, *values in lines)


@pytest.mark.parametrize("number", ["2", "2.2", "3", "5"])
def test_nothing_is_decided_before_a_seed_is_done(number, tmp_path):
    study = principle(number).study(QUICK)
    grid = Grid(rows_of(study), profile=QUICK, tasks=study.tasks, overrides=study.overrides, budget="paper")
    planned = prepare(grid, device="cpu", results=tmp_path)
    results = Results.from_rows(planned, Store.open(tmp_path))
    with pytest.raises(StoreError, match="nothing to decide"):
        decide(principle(number), study, results)


def test_models_that_all_diverged_are_not_measured(tmp_path):
    with pytest.raises(StoreError, match="no run has finished"):
        decide_on("2", tmp_path, lambda label: None)


@pytest.mark.slow
def test_the_verb_lists_principles_and_names_what_is_unknown(main):
    listed = main("paper", "coefficients")
    assert listed.code == 0 and all(f"principle{one.number}  {one.title}" in listed.stdout for one in PRINCIPLES)
    wrong = main("paper", "coefficients", "principle7")
    assert wrong.code == 2 and "no item 'principle7'" in wrong.stderr
    assert "madbench paper coefficients" in main("principles", "3").stderr


def test_the_introduction_of_an_item_has_its_rule_and_says_where_quick_has_other_tasks():
    paper = load_paper("coefficients")
    for item in (item for item in paper.items if item.measure.endswith(":PrincipleMeasure")):
        request = Request(paper, item)
        introduction = PrincipleMeasure().introduction(request)
        assert item.rule and f"Rule: {item.rule}" in introduction
        own = study_of(dataclasses.replace(request, profile="full"))
        if set(own.tasks) != set(study_of(request).tasks):
            assert any("Quick:" in line for line in introduction)
            assert item.kind == "claim" or item.note.startswith("Quick ")


@pytest.mark.slow
def test_both_starts_of_principle_5_are_rows_and_each_is_judged_by_itself(tmp_path):
    paper, (small, large) = load_paper("coefficients"), (0.02, 0.125)
    jobs = jobs_of(Request(paper, paper.item("figure10"), results=tmp_path))
    assert {job.mixer["init_std"] for job in jobs} == {small, large} and len({job.id for job in jobs}) == 80

    def metrics(job):
        has_factor = job.label in ("cd:exp-sum-p", "cd:exp-bzn-sum-p")
        wide = job.mixer["init_std"] == large and not has_factor
        accuracy = 0.5 + (0.2 if wide else 0.002) * (job.seed - 1)
        return {"accuracy": accuracy, "selection_accuracy": accuracy}

    study = principle("5").study(QUICK)
    results = store_results(study, tmp_path, lambda label: 0.5, metrics_of=metrics)
    decision = decide(principle("5"), study, results)
    of_start = {start: f"cd:exp-sum-p, init_std {start}, selective copying" for start in (small, large)}
    assert decision.verdicts[of_start[large]] == "supported"
    assert decision.verdicts[of_start[small]] in ("not significant", "no variation")
    assert decision.verdicts.keys() == set(of_start.values()) == set(decision.frame.panel)
    assert "at n = 32" in decision.remarks[of_start[large]] and "at n = 128" in decision.remarks[of_start[large]]


def test_every_principle_is_an_item_of_its_own():
    paper = load_paper("coefficients")
    for one in PRINCIPLES:
        item = paper.item(f"principle{one.number}")
        assert (item.title, item.place) == (one.title, one.source)


@pytest.mark.slow
def test_every_figure_with_data_is_an_item_of_its_own():
    paper = load_paper("coefficients")
    figures = {item.id for item in paper.items if item.measure.endswith(":PrincipleMeasure")} & {*FIGURES}
    assert {f"figure{n}" for n in range(1, 13)} <= {item.id for item in paper.items if item.is_made_here}
    assert figures == set(FIGURES) == {f"figure{n}" for n in (1, 2, 3, *range(5, 12))}
    for name in figures - {"figure5"}:
        request = Request(paper, paper.item(name))
        assert {job.task for job in jobs_of(request)} == set(study_of(request).tasks)
    assert study_of(Request(paper, paper.item("figure6"))).tasks == ("memorization",)


def test_a_figure_has_its_panels_alone():
    rows = pd.DataFrame(
        [{"task": "compression", "label": "cd:exp-sum-p", "near_zero": 0.3, "ratio": 0.0, "accuracy": 40.0}]
    )

    def panels(figure):
        return {point["panel"] for point in coefficients._points(rows, FIGURES[figure].shown)}

    assert panels("figure7") == {"compression, near one / near zero"}
    assert panels("figure2") == {"compression, share near zero", coefficients.READOUT_PANEL}


def test_shares_near_zero_of_kernels_are_compared_with_exp_and_id():
    study = principle("2.1").study(QUICK)
    means = {"exp": 0.5, "krelu": 0.4, "kelu": 0.1, "ksoftplus": 0.1, "kexp": 0.2, "id": 0.05}

    def decided(seeds=5, **changed):
        rows = [
            {
                "task": "selective_copying",
                "label": f"cd:{name}-sum-p",
                "seed": seed,
                "near_zero": mean + 0.002 * (seed - 2),
            }
            for name, mean in (means | changed).items()
            for seed in range(seeds)
        ]
        return tuple(compare_shares(study.shares, pd.DataFrame(rows))[0].values())

    assert decided() == ("supported", "supported")
    assert decided(krelu=0.6) == ("contradicted", "supported")
    assert decided(kelu=0.02) == ("supported", "contradicted")
    assert decided(kexp=0.5) == ("not significant", "supported")
    assert decided(krelu=0.02) == ("supported", "supported")  # of krelu the paper says nothing against id
    assert decided(seeds=2) == ("too few seeds", "too few seeds")


def test_kernels_of_figure_5_are_causal_attention_and_ssd_needs_a_gpu():
    import torch

    from madbench.papers.coefficients import timing

    torch.manual_seed(0)
    given = timing.kernel(timing.FLASH, 6, "cpu")()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, timing.HEADS, 6, timing.WIDTH // timing.HEADS)
    scores = (q @ k.mT * k.shape[-1] ** -0.5).masked_fill(~torch.ones(6, 6).tril().bool(), -math.inf)
    torch.testing.assert_close(given, scores.softmax(-1) @ v)
    assert not timing.has_ssd("cpu")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "0-4"), "--seeds has no effect without an item"),
        (("training.epochs=3",), "training.epochs=3 has no effect without an item"),
        (("principle1", "--profile", "full"), "--profile has no effect on principle 1: it trains nothing"),
        (("principle1", "--dry-run"), "--dry-run has no effect on principle1: it trains nothing"),
        (("principle3", "S"), "S has no effect on principle 3, which has its labels"),
    ],
)
def test_what_has_no_effect_on_a_list_or_a_timing_is_refused(main, words, message):
    ended = main("paper", "coefficients", *words)
    assert (ended.code, ended.stderr) == (2, f"{message}\n")


@pytest.mark.slow
def test_the_verb_reports_stored_runs_without_training_and_remembers_the_verdict(main, tmp_path):
    results_of("6", tmp_path, lambda label: 0.7 if label.endswith(("sum-p", "pow-p")) else 0.4)
    found = main("paper", "coefficients", "principle6", "--seeds", "0-2", "--results", str(tmp_path), "-f", "json")
    assert found.code == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["verdicts"].keys() == {"exp", "softplus", "relu"} and report["rows"] and report["cells"]
    assert report["claim"] == principle("6").claim
    assert (tmp_path / "plots" / "principle_6.png").is_file()
    listed = json.loads(main("paper", "coefficients", "--results", str(tmp_path), "-f", "json").stdout)
    rows = {row["item"]: row for row in listed["items"]}
    assert rows["principle6"]["state"].endswith("(quick)") and not rows["principle6"]["is_shipped"]
    assert rows["principle3"]["is_shipped"]


@pytest.fixture
def trained(tmp_path):
    """``trained(label)``: the weights of a model of the quick profile and its job; they are large enough to matter."""
    import torch

    from madbench.training.checkpoints import save_weights

    def call(label):
        study = Study((label,), ("selective_copying",))
        grid = Grid(rows_of(study), profile=QUICK, tasks=study.tasks, budget="paper")
        [job] = prepare(grid, device="cpu", results=tmp_path).jobs
        model = suite_of(job).Trial.build(job)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.6, generator=generator)
        save_weights(tmp_path / "weights.safetensors", model, job)
        return tmp_path / "weights.safetensors", model, job

    return call


@pytest.mark.slow
@pytest.mark.parametrize("label", ["cd:relu-sum-p", "cd:exp-sum-p", "cd:id-sum-p"])
def test_shares_near_zero_and_one_are_those_of_the_coefficients_counted_one_by_one(trained, label):
    import torch

    from madbench.papers.coefficients.coefficients import EXAMPLES, shares
    from madbench.suites.tokens import setting_of
    from madbench.tasks import generate

    weights, model, job = trained(label)
    tokens = generate(job.task, setting_of(job), "test", job.derived_seed("data")).inputs[:EXAMPLES]
    x, zero, one, layers = model.backbone.embedding(torch.from_numpy(tokens)), 0.0, 0.0, 0
    with torch.no_grad():
        for norm, layer in zip(model.backbone.norms, model.backbone.layers):
            if hasattr(layer, "coefficients"):
                a = layer.coefficients(norm(x)).a.double()
                rows = range(1, a.shape[-1])  # the first row has one coefficient, which is 1
                seen = [a[..., i, : i + 1] for i in rows]
                zero += sum((row.abs() <= 0.001).double().mean(-1) for row in seen).mean() / len(rows)
                one += sum(((row >= 0.9) & (row <= 1)).double().mean(-1) for row in seen).mean() / len(rows)
                layers += 1
            x = x + layer(norm(x))
    found = shares(weights, job)
    assert layers == 2 and (found["near_one"] > 0 or "exp" in label)
    assert found["near_zero"] == pytest.approx(float(zero) / layers, rel=1e-6)
    assert found["near_one"] == pytest.approx(float(one) / layers, rel=1e-6, abs=1e-9)
    if label == "cd:relu-sum-p":  # ReLU's zeros stay zeros under a sum
        assert 0.3 < found["raw_near_zero"] <= found["near_zero"]


def test_a_rank_correlation_is_judged_by_all_seeds():
    def frame(*slopes):
        rows = [(f"label {i}", seed, i, slope * i) for seed, slope in enumerate(slopes) for i in range(6)]
        return pd.DataFrame(rows, columns=["label", "seed", "near_zero", "accuracy"])

    from madbench.papers.coefficients.coefficients import correlation_verdict, correlations

    rising, mixed = correlations(frame(1, 2, 3), "near_zero"), correlations(frame(1, -2, 3), "near_zero")
    assert rising.values.tolist() == pytest.approx([1, 1, 1]) and mixed.values.tolist() == pytest.approx([1, -1, 1])
    assert correlation_verdict(rising) == "supported"
    assert correlation_verdict(mixed) == "not significant"
    assert correlation_verdict(correlations(frame(-1, -2, -3), "near_zero")) == "contradicted"


def test_a_wide_spread_without_the_factor_of_the_width_is_found_where_it_can_show():
    from madbench.papers.coefficients.spread import brown_forsythe

    rng = np.random.default_rng(0)

    def frame(without, with_it):
        widths = {"b1": without, "bz": without, "": with_it, "bzn": with_it}
        rows = [(b, n, rng.normal(50, width, 5)) for b, width in widths.items() for n in (16, 64)]
        return pd.DataFrame(rows, columns=["scaling", "key_width", "values"])

    gap, p = brown_forsythe(frame(10.0, 1.0))
    assert gap == pytest.approx(9, abs=3) and p < 0.01
    assert brown_forsythe(frame(3.0, 3.0))[1] > 0.05
    one_kind = frame(10.0, 1.0).query("scaling == 'b1'")
    assert all(map(math.isnan, brown_forsythe(one_kind)))


@pytest.mark.slow
def test_labels_that_are_one_function_decide_nothing(tmp_path):
    study = Study(("cd:relu{-b1,,-bz,-bzn}{-sum,}-p",), ("selective_copying",), vary={"model.qk_rank": (64, 128)})
    results = store_results(study, tmp_path, lambda label: 0.6)
    found = decide(principle("5"), study, results).verdicts
    assert found["cd:relu-sum-p, init_std 0.02, selective copying"].startswith("cannot differ")
    assert not found["cd:relu-p, init_std 0.02, selective copying"].startswith("cannot differ")


def test_a_slope_is_that_of_the_longer_half():
    from madbench.papers.coefficients.timing import decide_time, slope

    lengths = (256, 512, 1024, 2048, 4096)
    assert slope(lengths, [1.0, 1.0, 3e-6 * 1024**2, 3e-6 * 2048**2, 3e-6 * 4096**2]) == pytest.approx(2)
    timed = decide_time(principle("1"), "cpu", (8, 16, 32))
    assert {row["length"] for row in timed.table.records()} == {8, 16, 32}
    assert all(row["seconds"] > 0 for row in timed.table.records())
    assert {*timed.verdicts.values()} <= {"supported", "contradicted", "not clear"}
    assert timed.remarks.keys() == timed.verdicts.keys()


def test_suppressed_coefficients_are_counted_row_by_row_and_their_states_ranked(trained):
    from madbench.papers.coefficients.coefficients import first_examples
    from madbench.papers.coefficients.suppression import suppressed

    weights, model, job = trained("cd:krelu-sum-p")  # a kernel with exact zeros
    counts, rank = suppressed(weights, job)
    mixer, norm = model.backbone.layers[0], model.backbone.norms[0]
    a = mixer.coefficients(norm(model.backbone.embedding(first_examples(job)))).a
    for head, row in ((0, 0), (3, 7), (7, 30)):
        expected = sum(abs(float(value)) <= 1e-6 for one in a for value in one[head, row, : row + 1]) / len(a)
        assert counts[0, head, row] == pytest.approx(expected)
    assert counts.max() > 1 and 1 <= rank <= 8


@pytest.mark.slow
def test_an_override_replaces_one_of_the_study(main):
    planned = main(
        "paper", "coefficients", "principle6", "learning_rates=[3.0e-3]", "--dry-run", "-f", "json", "--seeds", "0"
    )
    assert planned.code == 0, planned.stderr
    assert "given twice" not in planned.stderr


def test_readouts_are_drawn_around_their_near_zero_set():
    frame = pd.DataFrame(coefficients._readouts(["cd:exp-sum-p", "cd:id-sum-p", "cd:kelu-sum-p"]))
    assert set(frame.series) == {"cd:exp-sum-p", "cd:id-sum-p"}  # a kernel is no function of the score
    exp = frame[frame.series == "cd:exp-sum-p"]
    np.testing.assert_allclose(exp.y, np.exp(exp.x))


@pytest.mark.slow
@pytest.mark.parametrize("width", ["single", "double"])
@pytest.mark.parametrize("number", ["3", "5"])
def test_the_figure_of_a_principle_fits_a_column(number, width, tmp_path):
    decision = decide_on(number, tmp_path, lambda label: 0.3 + len(label) / 40)
    first = decision.draw(layout=Layout(width))
    for page in (first, *first.following):
        page.draw_without_rendering()
        assert page.get_size_inches()[0] == pytest.approx(WIDTHS[width])
        assert width == "double" or page.get_size_inches()[1] <= HEIGHT
        texts = [text for text in page.findobj(Text) if text.get_visible() and text.get_text().strip()]
        assert min(text.get_fontsize() for text in texts) >= 7
        boxes = [
            text.get_window_extent() for text in (*page.legends[0].get_texts(), *(axes.title for axes in page.axes))
        ]
        assert all(0 <= box.x0 and box.x1 <= page.bbox.width for box in boxes)
    assert width == "double" or decision.figure.get_suptitle() in first.caption


@pytest.mark.slow
def test_more_variants_than_colours_in_the_palette_all_have_one():
    one = {"protocol": "p", "task": "compression", "group": "exp", "mark": "mean", "state": "", "n": 1}
    rows = [one | {"variant": f"variant-{i}", "accuracy": 10.0 * i} for i in range(10)]
    figure = bar_figure(frame_of(rows, BAR_COLUMNS, "p"), principle("3"))
    assert len({patch.get_facecolor() for patch in figure.axes[0].patches}) == 10


def test_bars_stand_around_the_middle_of_their_group_however_many_it_has():
    one = {"protocol": "p", "task": "compression", "mark": "mean", "state": "", "n": 1, "accuracy": 10.0}
    bars = [("a", "x"), ("a", "y"), ("b", "y"), ("c", "y"), ("c", "x")]
    figure = bar_figure(frame_of([one | {"group": g, "variant": v} for g, v in bars], BAR_COLUMNS, "p"), principle("3"))
    centers = [patch.get_x() + patch.get_width() / 2 for patch in figure.axes[0].patches]
    assert centers == pytest.approx([-0.2, 0.2, 1.0, 2.2, 1.8])
