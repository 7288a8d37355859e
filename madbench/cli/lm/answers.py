"""Evaluation of trained language models on text tasks: madbench's own, and those of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from madbench.analysis.standings import standings
from madbench.cli.shared.printing import print_json, print_lines, table_lines
from madbench.cli.shared.trained_models import TrainedModel, check_stored
from madbench.config.options import option, split_list
from madbench.errors import ConfigError, MissingExtraError, did_you_mean, no_effect
from madbench.labels.names import display_name
from madbench.text.options import CorpusOptions
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.lm_eval.measure import Tasks
    from madbench.store.format import Measurement

CACHE = "lm_eval"
"""The subfolder of the results folder in which lm-evaluation-harness caches answers."""


@dataclass(frozen=True)
class QuestionOptions:
    """The options of ``madbench lm evaluate`` that say what is measured.

    With ``tasks``, answers to questions are measured, otherwise the validation loss on windows of text. Raises
    ``ConfigError`` for an option that has no effect.
    """

    tasks: Annotated[
        list[str] | None,
        option(
            "Ask questions instead, comma-separated: continuation (select one of four continuations of a text), "
            "repetition (select one of four continuations of a repeated passage), and tasks of lm-evaluation-harness.",
            "--tasks",
            "--task",
            "-t",
            completes="QUESTIONS,...",
        ),
    ] = None
    seq_len: Annotated[int | None, option("Tokens per window.", min=1, show_default="as in training")] = None
    windows: Annotated[
        int | None, option("Number of windows, evenly spaced.", min=1, show_default="as in training")
    ] = None
    limit: Annotated[
        int | None,
        option(
            "With --tasks: number of questions; those of lm-evaluation-harness are its first ones.",
            min=1,
            show_default="200; all for lm-evaluation-harness",
        ),
    ] = None
    shots: Annotated[
        int | None,
        option(
            "With tasks of lm-evaluation-harness: solved examples before each question.",
            min=0,
            show_default="as in the task",
        ),
    ] = None
    include: Annotated[Path | None, option("Folder with your own tasks in the YAML of lm-evaluation-harness.")] = None
    cache: Annotated[
        bool,
        option("Keep answers in RESULTS/lm_eval, so that the same command resumes an evaluation that was stopped."),
    ] = False

    def __post_init__(self) -> None:
        if self.names and self.windows is not None:
            raise no_effect(f"--windows {self.windows}", "with --tasks; --limit is the number of questions")
        if not self.names:
            self._refuse(("limit", "shots", "include", "cache"), "without --tasks")
        elif not self.of_harness:
            self._refuse(("shots", "include", "cache"), f"on madbench's own tasks ({', '.join(self.own)})")

    def _refuse(self, names: Sequence[str], where: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value is not False:
                raise no_effect(f"--{name}{'' if value is True else f' {value}'}", where)

    @property
    def names(self) -> list[str]:
        """The names of the requested tasks, as given. Empty to measure the validation loss."""
        return split_list(self.tasks) or []

    @property
    def own(self) -> list[str]:
        """The requested tasks that madbench defines, without duplicates."""
        from madbench.training.multiple_choice import TASKS

        return [name for name in dict.fromkeys(self.names) if name in TASKS]

    @property
    def of_harness(self) -> list[str]:
        """The other requested tasks, which are those of lm-evaluation-harness."""
        from madbench.training.multiple_choice import TASKS

        return [name for name in self.names if name not in TASKS]


def ask_models(
    runs: Sequence[str],
    questions: QuestionOptions,
    data: CorpusOptions,
    results: Path,
    device: str,
    trust: Sequence[str] | None,
    as_json: bool,
) -> None:
    """Evaluate each model on each task. Print and store the scores, and print the ranking of several models.

    ``runs`` are labels, ids or files of models. Tasks are checked before a model is loaded. Raises ``StoreError`` at
    the end if scores could not be stored.
    """
    harness = _harness_tasks(questions) if questions.of_harness else None
    device = resolve_device(device)
    rows: dict[str, list[Measurement]] = {}
    contents, not_stored = [], []
    for run in dict.fromkeys(runs):
        trained = TrainedModel(run, results, trust=trust)
        job, measured = trained.job, []
        measurements = [_own_measurements(trained, questions, data, device)]
        if harness:
            cache = results / CACHE if questions.cache else None
            measurements.append(_harness_measurements(trained, harness, questions, data, device, cache))
        for measurement in (answer for answers in measurements for answer in answers):
            measured.append(measurement)
            trained.measure(measurement)
            if not as_json:
                print(f"{display_name(job.label)}: {measurement_sentence(measurement)}", flush=True)
        rows[f"{display_name(job.label)} {job.id[:8]}"] = measured
        contents.append({"label": job.label, "id": job.id, "tasks": [_content(answer) for answer in measured]})
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


def _harness_tasks(questions: QuestionOptions) -> Tasks:
    from madbench.training.multiple_choice import TASKS

    try:
        from madbench.lm_eval.measure import Tasks
    except MissingExtraError as error:
        first = questions.of_harness[0]
        suggestion = did_you_mean(first, TASKS)
        raise ConfigError(f"--tasks {first}: no such task of madbench's own{suggestion}; {error}") from None
    with Console(stderr=True).status("looking for the tasks of lm-evaluation-harness"):
        return Tasks(questions.of_harness, questions.include)


def _own_measurements(
    trained: TrainedModel, questions: QuestionOptions, data: CorpusOptions, device: str
) -> Iterator[Measurement]:
    """Yield the scores of a model on madbench's own tasks, on the validation text of the model's corpus."""
    from madbench.store.benchmarks import answer
    from madbench.training.multiple_choice import QUESTIONS

    if not questions.own:
        return
    text, job, count = trained.corpus(data), trained.job, questions.limit or QUESTIONS
    for name in questions.own:
        with Console(stderr=True).status(f"{job.label}: {count} questions of {name}"):
            yield answer(name, job, trained.model, text, device, questions.seq_len or job.model.seq_len, count)


def _harness_measurements(
    trained: TrainedModel,
    tasks: Tasks,
    questions: QuestionOptions,
    data: CorpusOptions,
    device: str,
    cache: Path | None,
) -> Iterator[Measurement]:
    """Yield the scores of a model on tasks of lm-evaluation-harness.

    ``cache`` is the folder in which answers are kept, None to keep none.
    """
    from madbench.lm_eval.measure import EvaluationOptions, measure
    from madbench.lm_eval.model import HarnessModel

    vocabulary = trained.corpus(data).tokenizer()
    model = HarnessModel(trained.language_model, trained.job, vocabulary, device, questions.seq_len)
    file = cache / model.identity[:16] if cache else None
    yield from measure(model, tasks, EvaluationOptions(questions.shots, questions.limit, file))


def measurement_sentence(measurement: Measurement) -> str:
    """A sentence with the scores of a model on a task and the number of questions."""
    values, details, settings = measurement.values, measurement.details, measurement.settings
    parts = []
    for name, value in values.items():
        if not name.endswith("_stderr"):
            error = values.get(f"{name}_stderr")
            parts.append(f"{name} {value:.3f}" + (f" ± {error:.3f}" if error is not None else ""))
    if "questions" in settings:
        of_what = f"{settings['questions']} questions of {details['choices']} choices"
    else:
        examples_of_task = details["examples_of_task"]
        of_what = (
            f"{details['examples']} of {examples_of_task} examples"
            if details["examples"] < examples_of_task
            else f"{examples_of_task} examples"
        )
        of_what += f", {settings['shots']} shown before each" if settings["shots"] else ""
        version = details["task_version"]
        of_what += f", version {version if not isinstance(version, dict) else 'of each its own'}"
    return f"{settings['task']} {', '.join(parts)} of {of_what}"


def _content(measurement: Measurement) -> dict[str, Any]:
    names = ("examples", "examples_of_task", "task_version", "lm_eval", "tasks")
    details = {name: measurement.details[name] for name in names if name in measurement.details}
    return {**measurement.settings, **measurement.values, **details}


def _standings(rows: Mapping[str, Sequence[Measurement]]) -> dict[str, Any]:
    """The average rank and the number of first places of each model, by name. Empty for a single model.

    ``rows`` has the scores of each model, one measurement per task. The main metric of each task counts.
    """
    from madbench.store.benchmarks import main_metric

    if len(rows) < 2:
        return {}
    values = {}
    for name, measured in rows.items():
        metrics = [main_metric(measurement) for measurement in measured]
        values[name] = [measurement.values[name_] * sign for measurement, (name_, sign) in zip(measured, metrics)]
    return standings(values)


def _print_table(rows: Mapping[str, Sequence[Measurement]], places: Mapping[str, Any]) -> None:
    from madbench.store.benchmarks import main_metric

    lines = []
    for name, measured in rows.items():
        line = {"run": name}
        for measurement in measured:
            metric, _ = main_metric(measurement)
            line[f"{measurement.settings['task']} {metric}"] = f"{measurement.values[metric]:.3f}"
        lines.append(line | {"Avg Rank": f"{places[name].average_rank:.2f}", "#Top1": str(places[name].top1)})
    print()
    print_lines(Console(), table_lines(lines, right=[name for name in lines[0] if name != "run"]))
