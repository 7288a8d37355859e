from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from madbench.cli.lm.finding import ModelArgument, find_corpus, find_weights
from madbench.cli.options import RESULTS, JsonOption, ResultsOption


def evaluate(
    run: ModelArgument,
    seq_len: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a window.", show_default="those of the training")
    ] = None,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Windows, evenly spread.", show_default="those of the training")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of the corpus, where it has been moved.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Measure the validation loss of a trained language model, also at other lengths than it was trained with.

    Mixing over the sequence has tables as long as the training windows: shorter
    windows use their first rows, longer ones are an error.

    [bold]Examples[/bold]

      madbench lm evaluate G-cg-q-12o
      madbench lm evaluate G-cg-q-12o --seq-len 32 --windows 1000
    """
    import dataclasses

    import torch
    from rich.console import Console

    from madbench.training.devices import resolve_device
    from madbench.training.language_batches import Batches
    from madbench.training.language_evaluation import Evaluation
    from madbench.training.weights import load_model

    device = resolve_device(device)
    weights = find_weights(run, results)
    model, job = load_model(weights)
    opened = find_corpus(job, weights, corpus, results)
    length = seq_len or job.model.seq_len
    config = dataclasses.replace(job.training, eval_sequences=windows or job.training.eval_sequences)
    autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=config.precision == "bfloat16")
    evaluation = Evaluation(Batches(opened, length, device), config, autocast)
    with Console(stderr=True).status(f"{config.eval_sequences} windows of {length} tokens"):
        losses = evaluation.validation(model.to(device))
    if as_json:
        print(json.dumps({"label": job.label, "id": job.id, **losses, **evaluation.description()}, indent=2))
        return
    described = evaluation.description()
    numbers = f"validation loss {losses['validation_loss']:.4f} nats per token"
    if "validation_bits_per_byte" in losses:
        numbers += f", {losses['validation_bits_per_byte']:.4f} bits per byte"
    print(f"{job.label}: {numbers}")
    print(f"{described['windows']} windows of {length} tokens, one every {described['val_stride']:,.1f}")
    mixing = getattr(model.blocks[0].mixer, "variant", None)
    if length < job.model.seq_len and mixing is not None and mixing.has_mixing:
        print(f"trained with {job.model.seq_len} tokens: only the first {length} rows of the mixing tables are used")


def add_to(app: typer.Typer) -> None:
    app.command()(evaluate)
