"""Evaluation of trained language models on text tasks, of madbench and of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from madbench.analysis.standings import standings
from madbench.cli.shared.printing import print_json, print_lines, table_lines
from madbench.cli.shared.trained_models import TrainedModel, check_stored
from madbench.errors import ConfigError, MissingExtraError, did_you_mean
from madbench.labels.names import with_display_names
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.lm_eval.measure import Tasks
    from madbench.store.format import Measurement

CACHE = "lm_eval"
"""The subfolder of the results folder in which lm-evaluation-harness caches answers."""


def ask(
    runs: Sequence[str],
    names: Sequence[str],
    results: Path,
    device: str,
    as_json: bool,
    corpus: Mapping[str, Any],
    *,
    seq_len: int | None,
    limit: int | None,
    shots: int | None,
    include: Path | None,
    cache: bool,
    trust: Sequence[str] | None = None,
) -> None:
    """Ask each model each task, print and store the answers, and print the standings of several models.

    Invalid requests are refused before a model is loaded.
    """
    from madbench.training.multiple_choice import TASKS

    our_tasks = [name for name in dict.fromkeys(names) if name in TASKS]
    others = [name for name in names if name not in TASKS]
    harness = _harness_tasks(others, include) if others else None
    for flag, value in {"shots": shots, "include": include, "cache": cache or None}.items():
        if value is not None and not others:
            what = "" if value is True else f" {value}"
            raise ConfigError(f"--{flag}{what}: has no effect on madbench's own tasks ({', '.join(our_tasks)})")
    device = resolve_device(device)
    rows: dict[str, list[Measurement]] = {}
    contents, not_stored = [], []
    for run in dict.fromkeys(runs):
        trained = TrainedModel(run, results, trust=trust)
        job, measured = trained.job, []
        measurements = [_own(trained, our_tasks, corpus, device, seq_len, limit)]
        if harness:
            measurements.append(
                _others(trained, harness, corpus, device, seq_len, limit, shots, results / CACHE if cache else None)
            )
        for measurement in (each for answers in measurements for each in answers):
            measured.append(measurement)
            trained.measure(measurement)
            if not as_json:
                print(f"{with_display_names(job.label)}: {sentence(measurement)}", flush=True)
        rows[f"{job.label} {job.id[:8]}"] = measured
        contents.append({"label": job.label, "id": job.id, "tasks": [_content(each) for each in measured]})
        not_stored.append(trained.not_stored)
        if not as_json:
            print(trained.where_stored)
    places = _standings(rows)
    if as_json:
        for content, place in zip(contents, places.values()):
            content["standing"] = vars(place)
        print_json(contents[0] if len(contents) == 1 else contents)
    elif places:
        _print_table(rows, places)
    check_stored(not_stored)


def _harness_tasks(names: Sequence[str], folder: Path | None) -> Tasks:
    from madbench.training.multiple_choice import TASKS

    try:
        from madbench.lm_eval.measure import Tasks
    except MissingExtraError as error:
        near = did_you_mean(names[0], TASKS)
        raise ConfigError(f"--tasks {names[0]}: no such task of madbench's own{near}; {error}") from None
    with Console(stderr=True).status("looking for the tasks of lm-evaluation-harness"):
        return Tasks(names, folder)


def _own(
    trained: TrainedModel,
    names: Sequence[str],
    corpus: Mapping[str, Any],
    device: str,
    seq_len: int | None,
    limit: int | None,
) -> Iterator[Measurement]:
    """The answers to madbench's own tasks, on the validation text of the model's corpus."""
    from madbench.store.benchmarks import answer
    from madbench.training.multiple_choice import QUESTIONS

    if not names:
        return
    text, job, count = trained.corpus(**_named(corpus)), trained.job, limit or QUESTIONS
    for name in names:
        with Console(stderr=True).status(f"{job.label}: {count} questions of {name}"):
            yield answer(name, job, trained.model, text, device, seq_len or job.model.seq_len, count)


def _others(
    trained: TrainedModel,
    tasks: Tasks,
    corpus: Mapping[str, Any],
    device: str,
    seq_len: int | None,
    limit: int | None,
    shots: int | None,
    cache: Path | None,
) -> Iterator[Measurement]:
    """The answers to tasks of lm-evaluation-harness."""
    from madbench.lm_eval.measure import EvaluationOptions, measure
    from madbench.lm_eval.model import HarnessModel

    vocabulary = trained.corpus(**_named(corpus)).tokenizer()
    model = HarnessModel(trained.model, trained.job, vocabulary, device, seq_len)
    file = cache / model.identity[:16] if cache else None
    yield from measure(model, tasks, EvaluationOptions(shots, limit, file))


def _named(corpus: Mapping[str, Any]) -> dict[str, Any]:
    return {"named_folder": corpus["corpus"], "tokenizer": corpus["tokenizer"], "dtype": corpus["dtype"]}


def sentence(measurement: Measurement) -> str:
    """A sentence with the numbers of a task and the number of its questions."""
    values, details, settings = measurement.values, measurement.details, measurement.settings
    parts = []
    for name, value in values.items():
        if not name.endswith("_stderr"):
            error = values.get(f"{name}_stderr")
            parts.append(f"{name} {value:.3f}" + (f" ± {error:.3f}" if error is not None else ""))
    if "questions" in settings:
        of_what = f"{settings['questions']} questions of {details['choices']} choices"
    else:
        whole = details["examples_of_task"]
        of_what = f"{details['examples']} of {whole} examples" if details["examples"] < whole else f"{whole} examples"
        of_what += f", {settings['shots']} shown before each" if settings["shots"] else ""
        version = details["task_version"]
        of_what += f", version {version if not isinstance(version, dict) else 'of each its own'}"
    return f"{settings['task']} {', '.join(parts)} of {of_what}"


def _content(measurement: Measurement) -> dict[str, Any]:
    names = ("examples", "examples_of_task", "task_version", "lm_eval", "tasks")
    details = {name: measurement.details[name] for name in names if name in measurement.details}
    return {**measurement.settings, **measurement.values, **details}


def _standings(rows: Mapping[str, Sequence[Measurement]]) -> dict[str, Any]:
    """The standings of several models by the main metric of each task. Empty for a single model."""
    from madbench.store.benchmarks import main_metric

    if len(rows) < 2:
        return {}
    values = {}
    for name, measured in rows.items():
        metrics = [main_metric(each) for each in measured]
        values[name] = [each.values[name_] * sign for each, (name_, sign) in zip(measured, metrics)]
    return standings(values)


def _print_table(rows: Mapping[str, Sequence[Measurement]], places: Mapping[str, Any]) -> None:
    from madbench.store.benchmarks import main_metric

    lines = []
    for name, measured in rows.items():
        line = {"run": with_display_names(name)}
        for each in measured:
            metric, _ = main_metric(each)
            line[f"{each.settings['task']} {metric}"] = f"{each.values[metric]:.3f}"
        lines.append(line | {"Avg Rank": f"{places[name].average_rank:.2f}", "#Top1": str(places[name].top1)})
    print()
    print_lines(Console(), table_lines(lines, right=[name for name in lines[0] if name != "run"]))
