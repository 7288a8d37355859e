"""``madbench lm evaluate``: the validation loss of a trained language model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rich.console import Console

from madbench.cli import options
from madbench.cli.parameters import option
from madbench.cli.printing import print_json
from madbench.cli.trained_models import ModelArgument, TrainedModel
from madbench.labels import parse
from madbench.mixers import label_traits
from madbench.suites import suite_of
from madbench.training.devices import device_name, git_state, resolve_device, versions


def evaluate(
    run: ModelArgument,
    seq_len: option(int | None, "Tokens of a window.", min=1, show_default="those of the training") = None,
    windows: option(int | None, "Windows, evenly spread.", min=1, show_default="those of the training") = None,
    corpus: option(Path | None, "Folder of the corpus, where it has been moved.") = None,
    tokenizer: options.TokenizerOption = None,
    dtype: options.DtypeOption = None,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    as_json: options.JsonOption = False,
) -> None:
    """Measure the validation loss of a trained language model, also at other lengths than it was trained with.

    The result is printed, and stored with the run as a measurement. Mixing over
    the sequence has tables as long as the training windows: shorter windows use
    their first rows, longer ones are an error.

    [bold]Examples[/bold]

      madbench lm evaluate G-cg-q-12o
      madbench lm evaluate G-cg-q-12o --seq-len 32 --windows 1000
    """
    device = resolve_device(device)
    trained = TrainedModel(run, results)
    job, windowed = trained.job, trained.corpus(corpus, tokenizer, dtype)
    length = seq_len or job.model.seq_len
    config = dataclasses.replace(job.training, eval_sequences=windows or job.training.eval_sequences)
    evaluation = suite_of(job).Trial.evaluator(windowed, length, config, device)
    with Console(stderr=True).status(f"{config.eval_sequences} windows of {length} tokens"):
        losses = evaluation.validation(trained.model.to(device))
    described = evaluation.description()
    if store := trained.store:
        settings = {"seq_len": length, "windows": described["windows"], "precision": config.precision}
        details = {"device": device_name(device), "versions": versions(), "git": git_state(), "evaluation": described}
        store.measure(job.id, "evaluation", losses, details, settings)
    if as_json:
        print_json({"label": job.label, "id": job.id, **losses, **described})
        return
    units = {"validation_loss": "nats per token", "validation_bits_per_byte": "bits per byte"}
    numbers = [f"{losses[name]:.4f} {unit}" for name, unit in units.items() if name in losses]
    print(f"{job.label}: validation loss {', '.join(numbers)}")
    print(f"{described['windows']} windows of {length} tokens, one every {described['val_stride']:,.1f}")
    if length < job.model.seq_len and label_traits(parse(job.label)).has_tables:
        print(f"trained with {job.model.seq_len} tokens: only the first {length} rows of the mixing tables are used")
    print(f"stored with run {job.id}" if store else f"not stored: {trained.weights} is not in a store")
