"""Every verb that reads an incomplete store shows its runs, or states why there is nothing to show."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from matplotlib.text import Text

from madbench.analysis.figures import files
from madbench.analysis.figures.accuracy import SCORE_COLUMNS
from madbench.analysis.figures.files import read_frame
from madbench.execute import local
from madbench.execute.base import Summary
from madbench.papers.interactions.profile import InteractionProfile
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.suites.mad.suite import MAD
from partial_stores import Partial, fill, interaction_record, mad_record, partial_store
from small_profiles import profile_text

FIGURES = ("scores", "learning", "difficulty", "effects", "budget")
NO_NUMBER = re.compile(r"(?i)(?<![\w/.])[-+±]?nan(?!\w)")


@pytest.fixture
def read(main, monkeypatch):
    """``read(*words)``: run a verb, check everything that it prints, and lay out its figures without writing them."""

    def save(figure, stem):
        figure.draw_without_rendering()
        for page in (figure, *getattr(figure, "following", ())):
            texts = [text.get_text() for text in page.findobj(Text)]
            assert not any(map(NO_NUMBER.search, texts)), (stem, texts)
        return [stem.with_suffix(".png"), stem.with_suffix(".pdf")]

    monkeypatch.setattr(files, "save_figure", save)
    monkeypatch.setattr("madbench.report.page.svg", lambda figure, prefix: "<svg/>")  # of the same figures

    def call(*words):
        ended = main(*words)
        assert ended.code in (0, 2), (words, ended)
        assert "Traceback" not in ended.stderr and not NO_NUMBER.search(ended.stdout + ended.stderr), (words, ended)
        assert (ended.stderr if ended.code == 2 else ended.stdout).strip(), (words, ended)
        return ended

    return call


def reading_commands(partial: Partial, chance: random.Random, is_short: bool = False) -> Iterator[tuple[str, ...]]:
    """The commands that read a store, each once, with formats in rotation."""
    words, (first, *others) = partial.words, partial.labels or ("hfa:C1",)
    form = iter(chance.sample(["terminal", "markdown", "latex", "html", "csv", "json"] * 2, 12))
    if words:
        yield "table", *words, "-f", next(form)
        yield "table", first, *words, "-f", next(form), "--sort", "n"
        yield "compare", first, *(others[:2] or ["R-pc"]), *words, "-f", next(form)
        yield "attribute", *words, "--pairs", "-f", next(form)
        yield "findings", *words, "-f", next(form)
        yield "findings", *words, "--explain", "all"
        yield "findings", "--power", *words, "-f", next(form)
        yield "plot", *words
        for name in FIGURES if not is_short else ():
            yield "plot", name, *words, "--width", chance.choice(("single", "double"))
        yield "report", *words
    for verb in ("table", "findings", "ls sweeps", "ls runs", "ls runs -f json", "validate --store"):
        yield tuple(verb.split())
    yield "table", "-t", "language_model"
    yield "plot", "loss"
    yield "plot", "loss", "--x", "seconds", "--log-x"
    yield "inspect", first


def of_states(store, tmp_path, states: dict[tuple[str, int, float], str], tasks=("compression",)) -> Partial:
    """A store with two learning rates whose runs have the given ``states`` by label, seed and rate.

    Other runs are missing.
    """
    path = tmp_path / "rates.yaml"
    rates, training = [1e-3, 1e-2], {"batch_size": 16, "epochs": 2}
    path.write_text(profile_text(learning_rates=rates, model={"d_model": 64}, training=training))
    labels = tuple(dict.fromkeys(label for label, _, _ in states))
    for job in MAD.jobs(labels, MAD.Profile.load(str(path)), tasks=tasks, seeds=(0, 1)):
        if state := states.get((job.label, job.seed, job.training.learning_rate)):
            store.finish(job, mad_record(job, state, random.Random(0)))
    return Partial("", store, ("-p", str(path), "-t", ",".join(tasks)), labels)


BEGUN_RUNS = {("S", 0, 1e-3): "finished", ("R", 0, 1e-3): "finished", ("R", 1, 1e-2): "diverged"}
CASES = {
    "no seed of any label is whole": BEGUN_RUNS,
    "one label has one run of one rate": {("S", 0, 1e-3): "finished"},
    "every run failed": dict.fromkeys(BEGUN_RUNS, "failed"),
    "every run diverged and none is whole": dict.fromkeys(BEGUN_RUNS, "diverged"),
    "one label is whole and the other has failed": {
        ("S", 0, 1e-3): "finished",
        ("S", 0, 1e-2): "diverged",
        ("R", 0, 1e-3): "failed",
    },
    "the only whole seed diverged": {("S", 0, 1e-3): "diverged", ("S", 0, 1e-2): "diverged"},
}
CHOOSING_CASES = {
    "the seed that chooses a rate is whole and the other is begun": {
        **{(label, 0, rate): "finished" for label in ("S", "R") for rate in (1e-3, 1e-2)},
        ("S", 1, 1e-3): "finished",
        ("R", 1, 1e-2): "diverged",
    },
    "the seed that chooses a rate is begun and the other is whole": {
        ("S", 0, 1e-3): "finished",
        ("R", 0, 1e-3): "failed",
        **{(label, 1, rate): "finished" for label in ("S", "R") for rate in (1e-3, 1e-2)},
    },
    "the seed that chooses a rate diverged and the other is whole": {
        **{(label, 0, rate): "diverged" for label in ("S", "R") for rate in (1e-3, 1e-2)},
        **{(label, 1, rate): "finished" for label in ("S", "R") for rate in (1e-3, 1e-2)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *CHOOSING_CASES])
def test_every_verb_reads_a_partial_store(case, store, tmp_path, read):
    states = (CASES | CHOOSING_CASES)[case]
    for command in reading_commands(of_states(store, tmp_path, states), random.Random(0), is_short=True):
        read(*command)


@pytest.mark.slow
def test_a_task_without_a_complete_seed_is_unfinished_in_table_and_figure(store, tmp_path, read):
    words = of_states(store, tmp_path, BEGUN_RUNS).words
    assert "(1/2)" in read("table", "S", *words).stdout
    read("plot", "scores", *words)
    means = read_frame(tmp_path / "results" / "plots" / "scores.csv", SCORE_COLUMNS, "accuracies").query(
        "mark == 'mean'"
    )
    assert dict(zip(means.label, means.state)) == {"S": "unfinished", "R": "unfinished"}


@pytest.mark.slow
def test_plot_refuses_a_store_without_finished_runs(store, tmp_path, read):
    words = of_states(store, tmp_path, CASES["every run failed"]).words
    assert read("plot", "scores", *words).stderr == "results: scores: no run is finished\n"
    left_out = read("plot", *words).stderr.splitlines()
    assert [line.split(": ")[1] for line in left_out[:-1]] == [*FIGURES]
    assert left_out[-1].startswith("results: there is nothing to draw")


@pytest.mark.slow
def test_compare_tells_missing_complete_seeds_from_missing_tasks(store, tmp_path, read):
    words = of_states(store, tmp_path, BEGUN_RUNS).words
    ended = read("compare", "S", "R", *words)
    assert ended.stderr == "results: S shares no task with R with a complete seed of both\n"
    absent = read("compare", "S", "S-c", *words).stderr
    assert "results: S shares no task with S-c; S-c must be trained first:\n  madbench run S-c -t compression" in absent


@pytest.mark.slow
def test_power_names_the_missing_complete_seeds_of_a_pair_of_labels(store, tmp_path, read):
    words = of_states(store, tmp_path, BEGUN_RUNS).words
    said = " ".join(read("findings", "--power", *words).stdout.split())
    assert "No claim has a complete stored seed of each of its labels" in said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_worlds_item_works_with_any_subset_of_stored_runs(seed, store, monkeypatch, read):
    """Another process is at work on the rest."""
    monkeypatch.setattr(local, "run_jobs", lambda groups, *_, **__: Summary(busy=sum(map(len, groups))))
    jobs = INTERACTIONS.jobs((), InteractionProfile.load("quick"), seeds=(0, 1))
    chance = random.Random(seed)
    fill(store, jobs, lambda job, *_: interaction_record(job, "diverged", chance), chance)
    for words in ((), ("--no-figures", *(["-f", "json"] if seed else []))):
        assert read("paper", "interactions", "worlds", "--seeds", "0,1", *words).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 7, 13, 16, 19, 27])  # every suite, and profiles with one rate and with several
def test_every_verb_and_figure_reads_a_store_of_any_sort(seed, tmp_path, read):
    partial = partial_store(tmp_path, seed)
    for command in reading_commands(partial, random.Random(seed)):
        read(*command)
