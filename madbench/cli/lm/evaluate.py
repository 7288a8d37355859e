"""``madbench lm evaluate``: validation losses of trained language models, and their answers to tasks of text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from madbench.cli.lm.answers import ask
from madbench.cli.shared import options
from madbench.cli.shared.parameters import option
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import counted, print_json
from madbench.cli.shared.trained_models import ModelsArgument, TrainedModel, TrustOption, check_stored
from madbench.cli.shared.words import split_list
from madbench.errors import ConfigError
from madbench.labels import parse
from madbench.labels.names import display_name
from madbench.mixers import label_traits
from madbench.store.format import Measurement
from madbench.suites import suite_of
from madbench.training.devices import device_name, git_state, resolve_device, versions


def evaluate(
    runs: ModelsArgument,
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
    ] = None,
    seq_len: Annotated[int | None, option("Tokens per window.", min=1, show_default="as in training")] = None,
    windows: Annotated[
        int | None, option("Number of windows, evenly spaced.", min=1, show_default="as in training")
    ] = None,
    limit: Annotated[
        int | None,
        option(
            "With --tasks: number of questions; those of lm-evaluation-harness are its first ones.",
            min=1,
            show_default="200; all for lm-evaluation-harness",
        ),
    ] = None,
    shots: Annotated[
        int | None,
        option(
            "With tasks of lm-evaluation-harness: solved examples before each question.",
            min=0,
            show_default="as in the task",
        ),
    ] = None,
    include: Annotated[Path | None, option("Folder with your own tasks in the YAML of lm-evaluation-harness.")] = None,
    cache: Annotated[
        bool,
        option("Keep answers in RESULTS/lm_eval, so that the same command resumes an evaluation that was stopped."),
    ] = False,
    corpus: Annotated[Path | None, option("Folder of the corpus, if it was moved.")] = None,
    tokenizer: options.TokenizerOption = None,
    dtype: options.DtypeOption = None,
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
    names = split_list(tasks)
    _refuse_useless(bool(names), windows=windows, limit=limit, shots=shots, include=include, cache=cache or None)
    how = {"corpus": corpus, "tokenizer": tokenizer, "dtype": dtype}
    if names:
        ask(
            runs,
            names,
            results,
            device,
            as_json,
            how,
            seq_len=seq_len,
            limit=limit,
            shots=shots,
            include=include,
            cache=cache,
            trust=trust,
        )
        return
    device = resolve_device(device)
    contents, not_stored = [], []
    for run in runs:
        trained = TrainedModel(run, results, trust=trust)
        contents.append(_loss(trained, seq_len, windows, device, as_json, how))
        not_stored.append(trained.not_stored)
        del trained  # two models at a time may be too large
    if as_json:
        print_json(contents[0] if len(contents) == 1 else contents)
    check_stored(not_stored)


def _refuse_useless(has_tasks: bool, windows: int | None, **of_tasks: Any) -> None:
    if has_tasks and windows is not None:
        raise ConfigError(f"--windows {windows}: has no effect with --tasks; --limit is the number of questions")
    for name, value in of_tasks.items():
        if not has_tasks and value is not None:
            raise ConfigError(f"--{name}{'' if value is True else f' {value}'}: has no effect without --tasks")


def _loss(
    trained: TrainedModel, seq_len: int | None, windows: int | None, device: str, as_json: bool, how: dict[str, Any]
) -> dict[str, Any]:
    """Measure the validation loss of a model and store it. It is printed unless ``as_json``."""
    job, windowed = trained.job, trained.corpus(how["corpus"], how["tokenizer"], how["dtype"])
    length = seq_len or job.model.seq_len
    config = dataclasses.replace(job.training, eval_sequences=windows or job.training.eval_sequences)
    trial: Any = suite_of(job).Trial  # a suite with a corpus also has an evaluator
    evaluation = trial.evaluator(windowed, length, config, device)
    with Console(stderr=True).status(f"{config.eval_sequences} windows of {length} tokens"):
        losses = evaluation.validation(trained.model.to(device))
    described = evaluation.description()
    settings = {"seq_len": length, "windows": described["windows"], "precision": config.precision}
    details = {"device": device_name(device), "versions": versions(), "git": git_state(), "evaluation": described}
    trained.measure(Measurement("evaluation", losses, details, settings))
    if not as_json:
        units = {"validation_loss": "nats per token", "validation_bits_per_byte": "bits per byte"}
        numbers = [f"{losses[name]:.4f} {unit}" for name, unit in units.items() if name in losses]
        print(f"{display_name(job.label)}: validation loss {', '.join(numbers)}")
        distance = f", one every {described['val_stride']:,.0f} tokens" if described["windows"] > 1 else ""
        print(f"{counted(described['windows'], 'window')} of {length} tokens{distance}")
        if length < job.model.seq_len and label_traits(parse(job.label)).has_tables:
            print(
                f"trained with {job.model.seq_len} tokens: only the first {length} rows of the mixing tables are used"
            )
        print(trained.where_stored)
    return {"label": job.label, "id": job.id, **losses, **described}
