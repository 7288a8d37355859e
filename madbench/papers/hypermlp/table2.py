"""Table 2 of the HyperMLP paper: benchmarks of language models with Avg Rank and #Top1, published and ours.

Our numbers are measurements with the name ``benchmark`` that are stored with runs (:mod:`madbench.store.benchmarks`).
At the quick size two small models are trained and answer questions on their own validation text. The sixteen benchmarks
of the paper are tasks of lm-evaluation-harness. They are shown if runs of the paper's profiles have them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from madbench.analysis.standings import standings
from madbench.errors import MissingExtraError
from madbench.labels import expand
from madbench.mixers import solve
from madbench.papers import Item
from madbench.papers.making import CONTRADICTED, REPRODUCED, ItemResult, Measure, Request, grid_of_one_task
from madbench.rows import Grid
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from madbench.suites.language.suite import LANGUAGE, TASK, LanguageJob, LanguageProfile
from madbench.suites.planning import LEAST_SEEDS

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results
    from madbench.store.format import Measurement

BEST = "HyperGLU"
"""The model with the best Avg Rank according to the paper."""
OPEN = "not enough data"


@dataclass(frozen=True)
class Benchmark:
    """A column of Table 2: a task of lm-evaluation-harness, its metric, and the number of few-shot examples."""

    heading: str
    task: str
    metric: str = "acc_norm"
    shots: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under which measurements of this benchmark are stored with a run."""
        return {"task": self.task, "shots": self.shots}


COLUMNS = (
    Benchmark("MMLU-P", "leaderboard_mmlu_pro", "acc", 5),
    Benchmark("GPQA", "leaderboard_gpqa"),
    Benchmark("BBH", "leaderboard_bbh", shots=3),
    Benchmark("MATH", "leaderboard_math_hard", "exact_match", 4),
    Benchmark("MuSR", "leaderboard_musr"),
    Benchmark("IFE-I", "leaderboard_ifeval", "inst_level_strict_acc"),
    Benchmark("IFE-P", "leaderboard_ifeval", "prompt_level_strict_acc"),
    Benchmark("ARC-C", "arc_challenge"),
    Benchmark("ARC-E", "arc_easy"),
    Benchmark("HS", "hellaswag"),
    Benchmark("PIQA", "piqa"),
    Benchmark("BoolQ", "boolq", "acc"),
    Benchmark("WinoG", "winogrande", "acc"),
    Benchmark("COPA", "copa", "acc"),
    Benchmark("OBQA", "openbookqa"),
    Benchmark("SciQ", "sciq"),
)
"""The sixteen benchmarks of the paper. Those of the Open LLM Leaderboard come first."""


@dataclass(frozen=True)
class PublishedRow:
    """A printed row of Table 2: the results of one model at one scale."""

    scale: str
    profile: str
    """The profile of madbench that trains the model."""
    model: str
    label: str
    values: dict[str, float]
    """The printed values of the benchmarks, by heading of the column."""
    average_rank: float
    top1: int


def published_rows(request: Request) -> list[PublishedRow]:
    """All rows of Table 2, from the item's file of published numbers."""
    with open(request.paper.file(request.item.published), newline="", encoding="utf-8") as file:
        return [
            PublishedRow(
                row["scale"],
                row["profile"],
                row["model"],
                expand([row["label"]])[0],
                {column.heading: float(row[column.heading]) for column in COLUMNS},
                float(row["avg_rank"]),
                int(row["top1"]),
            )
            for row in csv.DictReader(file)
        ]


def published_mismatches(rows: Sequence[PublishedRow]) -> list[str]:
    """One text per printed Avg Rank or #Top1 that differs from the value computed from the printed columns.

    ``rows`` are all rows of one scale. Empty if all agree.
    """
    texts = []
    for row, standing in zip(rows, standings({row.model: [*row.values.values()] for row in rows}).values()):
        exact, printed_rank = standing.average_rank, row.average_rank
        if abs(exact - printed_rank) > 0.005 + 1e-9:
            texts.append(f"{row.model}: Avg Rank {exact:.4f}, printed {printed_rank:.2f}")
        if standing.top1 != row.top1:
            texts.append(f"{row.model}: #Top1 {standing.top1}, printed {row.top1}")
    return texts


def halves_rounded_down(rows: Sequence[PublishedRow]) -> list[str]:
    """One text per model whose printed Avg Rank was rounded down from halfway between two numbers of two decimals."""
    exact = standings({row.model: [*row.values.values()] for row in rows})
    return [
        f"{row.model} {exact[row.model].average_rank:.3f} is printed {row.average_rank:.2f}"
        for row in rows
        if math.isclose(exact[row.model].average_rank - row.average_rank, 0.005, abs_tol=1e-9)
    ]


class Table2(Measure):
    """A measure that trains small language models, scores their answers to questions, and checks the printed table.

    Printed benchmarks are shown beside those of stored runs.
    """

    def introduction(self, request: Request) -> Sequence[str]:
        lacking = _lacking(_labels(request), request)
        texts = [f"left out: {label} ({reason})" for label, reason in lacking.items()]
        return [request.item.rule, *texts]

    def plan(self, request: Request) -> Grid:
        labels = _labels(request)
        lacking = {} if request.labels else _lacking(labels, request)
        return grid_of_one_task(request, TASK, [label for label in labels if label not in lacking])

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        rows = published_rows(request)
        scales = list(dict.fromkeys(row.scale for row in rows))
        own_size = request.profile_name in {row.profile for row in rows}
        tables, verdicts, remarks, cells = [], {}, {}, []
        if results is not None and not own_size:
            answers = answer_shares(request, results)
            tables.append(_own_table(request, answers, results))
            cells += tables[-1].json_rows()
        for scale in scales:
            group = [row for row in rows if row.scale == scale]
            ours = stored_benchmarks(request, group[0].profile)
            tables.append(_published_table(request.item, group, ours))
            cells += tables[-1].json_rows()
            sentence = f"Avg Rank and #Top1 at {scale} follow from the columns"
            verdicts[sentence] = CONTRADICTED if (wrong := published_mismatches(group)) else REPRODUCED
            remarks[sentence] = "; ".join([*wrong, *halves_rounded_down(group)]) or "to the last digit"
            sentence = f"{BEST} has the best Avg Rank at {scale}"
            verdicts[sentence], remarks[sentence] = _is_best(group, ours)
        return ItemResult(tables, verdicts, {"cells": cells}, (), remarks)


def _labels(request: Request) -> list[str]:
    """The requested labels, or else the labels that the printed table has for the profile, or else the item's."""
    if request.labels:
        return expand(request.labels)
    labels = [row.label for row in published_rows(request) if row.profile == request.profile_name]
    return list(dict.fromkeys(labels)) or expand(request.item.labels)


def _lacking(labels: Iterable[str], request: Request) -> dict[str, str]:
    """The labels that need a library that is not installed: label to a message that says how to install it."""
    model = LanguageProfile.load(request.profile_name, request.overrides).model_config()
    lacking = {}
    for label in labels:
        try:
            solve(label, model.d_model, model.n_head, model.seq_len, request.effective_budget)
        except MissingExtraError as error:
            lacking[label] = str(error)
    return lacking


def answer_shares(request: Request, results: Results) -> dict[str, dict[str, list[float]]]:
    """The shares of right answers, from 0 to 1: label to task to one number per finished run.

    Our own tasks are measured and stored if they are not stored yet. Benchmarks of the paper are included, by heading,
    if ``madbench lm evaluate`` has stored them. On a CPU one thread is used: a task takes seconds, and on busy cores
    threads wait for each other.
    """
    from madbench.jobs import WEIGHTS
    from madbench.mixers.ops.threads import torch_threads
    from madbench.store.benchmarks import answer, own_settings, value_of
    from madbench.text.corpus import Corpus
    from madbench.training.checkpoints import load_model
    from madbench.training.devices import resolve_device
    from madbench.training.multiple_choice import TASKS

    store, device = Store.open(request.results, create=False), resolve_device(request.device)
    corpora_of_rows = (row.protocol.corpus for row in results.rows_of(LANGUAGE))
    corpora = {corpus.digest: corpus for corpus in corpora_of_rows if isinstance(corpus, Corpus)}
    answers: dict[str, dict[str, list[float]]] = {}
    with torch_threads(1 if device == "cpu" else None):
        for run in results.runs(LANGUAGE):
            if run.status != "finished":
                continue
            measured, model, job = store.measurements(run.job.id), None, cast(LanguageJob, run.job)
            for task in TASKS:
                settings = own_settings(task, job.model.seq_len)
                if (value := value_of(measured, settings, "acc")) is None:
                    model = model or load_model(store.kept_file(job.id, WEIGHTS))[0].to(device)
                    new = answer(task, job, model, corpora[job.setting["corpus"]], device)
                    store.measure(job.id, new.name, new.values, new.details, new.settings)
                    value = new.values["acc"]
                answers.setdefault(run.row, {}).setdefault(task, []).append(value)
            for heading, value in _benchmarks(measured).items():
                answers[run.row].setdefault(heading, []).append(value)
    return answers


def _benchmarks(measured: Sequence[Measurement]) -> dict[str, float]:
    """The values of the paper's benchmarks among the measurements of a run, by heading. Others are left out."""
    from madbench.store.benchmarks import value_of

    values = {column.heading: value_of(measured, column.settings, column.metric) for column in COLUMNS}
    return {heading: value for heading, value in values.items() if value is not None}


def stored_benchmarks(request: Request, profile: str) -> dict[str, list[dict[str, float]]]:
    """The stored benchmarks of the language models that ``profile`` has trained without changes.

    The result maps a label to a list with one mapping per run, from heading to value. Runs without benchmarks are left
    out. All runs have the budget of the request for this profile, a vocabulary of the profile's size, and the same
    text. If there are runs on several texts, those on the text with the most runs are used.
    """
    from madbench.text.corpus import imagined_corpus

    if not (request.results / "runs").is_dir():
        return {}
    store = Snapshot.open(request.results)
    of_text: dict[str, dict[str, list[dict[str, float]]]] = {}
    ids = imagined_corpus(LanguageProfile.load(profile).vocab_size).padded_vocab_size
    for run in store.runs(with_curves=False, suite=LANGUAGE.name):
        job = cast(LanguageJob, run.job)
        is_same = job.budget == request.budget_at(profile) and job.setting["vocab_size"] == ids
        if run.record.status != "finished" or not is_same or LANGUAGE.nearest(job) != (profile, ()):
            continue
        if scores := _benchmarks(store.measurements(job.id)):
            of_text.setdefault(job.setting["corpus"], {}).setdefault(job.label, []).append(scores)
    return max(of_text.values(), key=lambda by_label: sum(map(len, by_label.values())), default={})


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each benchmark over the runs that have it, by heading. Benchmarks that no run has are left out."""
    names = [column.heading for column in COLUMNS]
    return {name: fmean(values) for name in names if (values := [run[name] for run in runs if name in run])}


def _complete_scores(ours: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, list[float]]:
    """The means over runs of all benchmarks in the order of :data:`COLUMNS`, by label.

    Labels that lack a benchmark are left out.
    """
    means = {label: _means(runs) for label, runs in ours.items()}
    return {label: [*of_label.values()] for label, of_label in means.items() if len(of_label) == len(COLUMNS)}


def _is_best(group: Sequence[PublishedRow], ours: Mapping[str, Sequence[Mapping[str, float]]]) -> tuple[str, str]:
    """The verdict on the statement that :data:`BEST` has the best Avg Rank of our models at a scale, and a remark.

    ``group`` has the printed rows of the scale, and ``ours`` the stored benchmarks by label. Not decided if a model has
    fewer than ``LEAST_SEEDS`` runs or lacks a benchmark.
    """
    complete = {label: values for label, values in _complete_scores(ours).items() if len(ours[label]) >= LEAST_SEEDS}
    labels = dict.fromkeys(row.label for row in group)
    lacking = [label for label in labels if label not in complete]
    if lacking:
        return OPEN, (
            f"{len(labels) - len(lacking)} of {len(labels)} models have all {len(COLUMNS)} benchmarks of "
            f"{LEAST_SEEDS} seeds here; {_command(ours, labels)}"
        )
    ranks = standings({label: complete[label] for label in labels})
    best = min(ranks, key=lambda label: ranks[label].average_rank)
    text = ", ".join(f"{label} {standing.average_rank:.2f}" for label, standing in ranks.items())
    (published_best,) = [row.label for row in group if row.model == BEST]
    return (REPRODUCED if best == published_best else CONTRADICTED), text


def _command(ours: Mapping[str, Sequence[Mapping[str, float]]], labels: Iterable[str]) -> str:
    """The command that measures every benchmark that at least one stored run of ``labels`` lacks.

    If no run is stored, it measures all benchmarks. If no stored run lacks a benchmark, the result is the text ``train
    the others``, because only labels without runs are left.
    """
    runs = [run for label in labels for run in ours.get(label, ())] or [{}]
    tasks = dict.fromkeys(column.task for column in COLUMNS if any(column.heading not in run for run in runs))
    return f"madbench lm evaluate RUN... --tasks {','.join(tasks)}" if tasks else "train the others"


def _own_table(request: Request, answers: Mapping[str, Mapping[str, Sequence[float]]], results: Results) -> Listing:
    """The table of trained models, one row per label: share of right answers per task, Avg Rank and #Top1.

    ``answers`` is the result of :func:`answer_shares`. A task is left out if some run has no score on it. So the table
    has our own tasks, and those of the paper's benchmarks on which all runs were scored.
    """
    from madbench.analysis.rendering import Listing, without_nan

    first = next(iter(answers.values()), {})
    runs = {label: len(next(iter(of_label.values()))) for label, of_label in answers.items()}
    tasks = [task for task in first if all(len(answers[label].get(task, ())) == n for label, n in runs.items())]
    of_paper = [column.heading for column in COLUMNS if column.heading in tasks]
    means = {label: [fmean(of_label[task]) for task in tasks] for label, of_label in answers.items()}
    ranks, lines, cells = standings(means), [], []
    for label, values in means.items():
        standing, seeds = ranks[label], len(answers[label][tasks[0]])
        numbers = [f"{value:.3f}" for value in values]
        lines.append([label, *numbers, f"{standing.average_rank:.2f}", str(standing.top1), str(seeds)])
        for task, value in zip(tasks, values):
            cells.append(
                without_nan({"label": label, "column": task, "mean": value, "n": seeds, "published": math.nan})
            )
        rank_and_top1 = {"average_rank": standing.average_rank, "top1": standing.top1}
        cells.append(without_nan({"label": label, "column": "standing", **rank_and_top1, "n": seeds}))
    caption = (
        "Share of right answers to questions with four choices (chance 0.25) on the validation text"
        + (f", and {', '.join(of_paper)} of lm-evaluation-harness" if of_paper else "")
        + f"; Avg Rank and #Top1 as in {request.item.place}. Profile {request.profile_name}: no verdict on "
        "the models of the paper."
    )
    notes = " ".join(results.sentences())
    headings = ["Label", *tasks, "Avg Rank", "#Top1", "n"]
    return Listing(cells, headings, lines, cells, caption, notes, f"tab:{request.item.id}")


def _published_table(
    item: Item, group: Sequence[PublishedRow], ours: Mapping[str, Sequence[Mapping[str, float]]]
) -> Listing:
    """The table of the printed rows of one scale, with Avg Rank and #Top1 computed from the columns.

    ``ours`` has the stored benchmarks by label. If it is not empty, a row with our numbers for the same label is above
    each printed row.
    """
    from madbench.analysis.rendering import PUBLISHED, Listing, without_nan

    printed_standings = standings({row.model: [*row.values.values()] for row in group})
    own_ranks = standings(_complete_scores({row.label: ours[row.label] for row in group if row.label in ours}))
    lines, cells = [], []
    for row in group:
        name, runs = f"{row.model} {row.label}", ours.get(row.label, ())
        means, standing = _means(runs), printed_standings[row.model]
        cells += [
            without_nan({"scale": row.scale, "model": row.model, "label": row.label, "column": heading})
            | without_nan({"published": value, "mean": means.get(heading, math.nan), "n": len(runs)})
            for heading, value in row.values.items()
        ]
        ranks = {"average_rank": standing.average_rank, "top1": standing.top1}
        ranks |= {"published_average_rank": row.average_rank, "published_top1": row.top1}
        cells.append({"scale": row.scale, "model": row.model, "label": row.label, "column": "standing", **ranks})
        if ours:
            place = own_ranks.get(row.label)
            numbers = [f"{means[heading]:.3f}" if heading in means else "-" for heading in row.values]
            lines.append(
                [name, *numbers, f"{place.average_rank:.2f}" if place else "-", str(place.top1) if place else "-"]
            )
        values = [f"{value:.3f}" for value in row.values.values()]
        first = PUBLISHED if ours else name
        lines.append([first, *values, f"{standing.average_rank:.2f}", str(standing.top1)])
    of_ours = "our rows, of one text and ranked among themselves, above them" if ours else "no runs of ours are stored"
    caption = (
        f"{item.place} at {group[0].scale}, published rows, Avg Rank and #Top1 computed from the columns; {of_ours}. "
        f"Trained by profile {group[0].profile}."
    )
    headings = ["Model", *(column.heading for column in COLUMNS), "Avg Rank", "#Top1"]
    return Listing(cells, headings, lines, cells, caption, "", f"tab:{item.id}-{group[0].scale}")
