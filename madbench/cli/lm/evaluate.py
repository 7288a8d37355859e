"""``madbench lm evaluate``: validation losses of trained language models, and their answers to tasks of text."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console

from madbench.cli.lm.answers import QuestionOptions, ask_models
from madbench.cli.shared import options
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import count_text, print_json
from madbench.cli.shared.trained_models import ModelsArgument, TrainedModel, TrustOption, check_stored
from madbench.labels import parse
from madbench.labels.names import display_name
from madbench.mixers import label_traits
from madbench.store.format import Measurement
from madbench.suites import suite_of
from madbench.text.options import CorpusOptions
from madbench.training.devices import device_name, git_state, resolve_device, versions


def evaluate(
    runs: ModelsArgument,
    *,
    questions: QuestionOptions,
    data: CorpusOptions,
    trust: TrustOption = None,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    format: FormatOption = "terminal",
) -> None:
    """Measure the loss of trained language models, or their answers.

    --seq-len measures at another length than in training. The result is printed,
    and stored with the run as a measurement; the exit code is 2 if it cannot be
    stored. The tables of sequence mixing are as long as the training windows:
    shorter windows use their first rows, longer windows are an error.

    Tasks of lm-evaluation-harness need the extra lm-eval, and the network at the
    first use of their data. For several runs a table shows Avg Rank and #Top1.

    [bold]Examples[/bold]

      madbench lm evaluate G-cg-q-12o
      madbench lm evaluate G-cg-q-12o --seq-len 32 --windows 1000
      madbench lm evaluate S-p G-cg-q-12o --tasks continuation,repetition
      madbench lm evaluate S-p G-cg-q-12o --tasks arc_easy,hellaswag --limit 500
    """
    as_json = format == "json"
    if questions.names:
        ask_models(runs, questions, data, results, device, trust, as_json)
        return
    device = resolve_device(device)
    contents, not_stored = [], []
    for run in runs:
        trained = TrainedModel(run, results, trust=trust)
        contents.append(_loss(trained, questions, data, device, as_json))
        not_stored.append(trained.not_stored)
        del trained  # two models at a time may be too large
    if as_json:
        print_json(contents[0] if len(contents) == 1 else contents)
    check_stored(not_stored)


def _loss(
    trained: TrainedModel, questions: QuestionOptions, data: CorpusOptions, device: str, as_json: bool
) -> dict[str, Any]:
    """Measure the validation loss of a model, store it with the run, and print it unless ``as_json``.

    Return the loss and its settings, for JSON.
    """
    job, corpus = trained.job, trained.corpus(data)
    length = questions.seq_len or job.model.seq_len
    config = dataclasses.replace(job.training, eval_sequences=questions.windows or job.training.eval_sequences)
    trial: Any = suite_of(job).Trial  # a suite with a corpus also has an evaluator
    evaluation = trial.evaluator(corpus, length, config, device)
    with Console(stderr=True).status(f"{config.eval_sequences} windows of {length} tokens"):
        losses = evaluation.validation(trained.model.to(device))
    description = evaluation.description()
    settings = {"seq_len": length, "windows": description["windows"], "precision": config.precision}
    details = {"device": device_name(device), "versions": versions(), "git": git_state(), "evaluation": description}
    trained.measure(Measurement("evaluation", losses, details, settings))
    if not as_json:
        units = {"validation_loss": "nats per token", "validation_bits_per_byte": "bits per byte"}
        numbers = [f"{losses[name]:.4f} {unit}" for name, unit in units.items() if name in losses]
        print(f"{display_name(job.label)}: validation loss {', '.join(numbers)}")
        distance = f", one every {description['val_stride']:,.0f} tokens" if description["windows"] > 1 else ""
        print(f"{count_text(description['windows'], 'window')} of {length} tokens{distance}")
        if length < job.model.seq_len and label_traits(parse(job.label)).has_tables:
            print(
                f"trained with {job.model.seq_len} tokens: only the first {length} rows of the mixing tables are used"
            )
        print(trained.where_stored)
    return {"label": job.label, "id": job.id, **losses, **description}
