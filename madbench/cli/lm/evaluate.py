from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from rich.console import Console

from madbench.cli.lm.finding import ModelArgument, TrainedModel
from madbench.cli.options import RESULTS, DeviceOption, JsonOption, ResultsOption, option


def evaluate(
    run: ModelArgument,
    seq_len: option(int | None, "Tokens of a window.", min=1, show_default="those of the training") = None,
    windows: option(int | None, "Windows, evenly spread.", min=1, show_default="those of the training") = None,
    corpus: option(Path | None, "Folder of the corpus, where it has been moved.") = None,
    device: DeviceOption = "auto",
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Measure the validation loss of a trained language model, also at other lengths than it was trained with.

    The result is printed, and stored with the run as a measurement. Mixing over
    the sequence has tables as long as the training windows: shorter windows use
    their first rows, longer ones are an error.

    [bold]Examples[/bold]

      madbench lm evaluate G-cg-q-12o
      madbench lm evaluate G-cg-q-12o --seq-len 32 --windows 1000
    """
    from madbench.mixers import solve
    from madbench.models.blocks import autocast
    from madbench.suites.language_trial import Batches, Evaluation
    from madbench.training.devices import resolve_device
    from madbench.training.provenance import device_name, git_state, versions

    device = resolve_device(device)
    trained = TrainedModel.find(run, results)
    job, opened = trained.job, trained.corpus(corpus)
    length = seq_len or job.model.seq_len
    config = dataclasses.replace(job.training, eval_sequences=windows or job.training.eval_sequences)
    evaluation = Evaluation(Batches(opened, length, device), config, autocast(device, config.precision))
    with Console(stderr=True).status(f"{config.eval_sequences} windows of {length} tokens"):
        losses = evaluation.validation(trained.model.to(device))
    described = evaluation.description()
    if store := trained.store:
        settings = {"seq_len": length, "windows": described["windows"], "precision": config.precision}
        details = {"device": device_name(device), "versions": versions(), "git": git_state(), "evaluation": described}
        store.measure(job.id, "evaluation", losses, details, settings)
    if as_json:
        print(json.dumps({"label": job.label, "id": job.id, **losses, **described}, indent=2))
        return
    numbers = f"validation loss {losses['validation_loss']:.4f} nats per token"
    if "validation_bits_per_byte" in losses:
        numbers += f", {losses['validation_bits_per_byte']:.4f} bits per byte"
    print(f"{job.label}: {numbers}")
    print(f"{described['windows']} windows of {length} tokens, one every {described['val_stride']:,.1f}")
    mixer = solve(job.label, job.model.d_model, job.model.n_head, job.model.seq_len, job.budget, **job.mixer)
    if length < job.model.seq_len and any(term.endswith("_tables") for term in mixer.terms):
        print(f"trained with {job.model.seq_len} tokens: only the first {length} rows of the mixing tables are used")
    print(f"stored with run {job.id}" if store else f"not stored: {trained.weights} is not in a store")
