from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from madbench.cli.lm.finding import ModelArgument, TrainedModel
from madbench.cli.options import RESULTS, DeviceOption, ResultsOption


def sample(
    run: ModelArgument,
    prompt: Annotated[str, typer.Option(help="Text to continue.", show_default="the beginning of a document")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to write at most; the end of a document ends it.")] = 200,
    temperature: Annotated[float, typer.Option(min=0, help="Below 1 likelier, above 1 bolder; 0 the likeliest.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Choose among this many likeliest tokens only.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of the corpus, for its tokenizer, where it has been moved.")
    ] = None,
    device: DeviceOption = "auto",
    results: ResultsOption = RESULTS,
) -> None:
    """Write text with a trained language model, token by token through the mixers' caches.

    Text goes to standard output as it is made; the speed follows at the end.

    [bold]Examples[/bold]

      madbench lm sample G-cg-q-12o
      madbench lm sample 3f9a --prompt 'def main(' --tokens 400 --temperature 0.5
      madbench lm sample results/work/3f9a/checkpoint.pt
    """
    import torch

    from madbench.models.sampling import generate
    from madbench.training.devices import resolve_device

    device = resolve_device(device)
    trained = TrainedModel.find(run, results)
    tokenizer = trained.corpus(corpus).tokenizer()
    ids = tokenizer.encode(prompt).tolist() or [tokenizer.end_of_text]
    written = generate(
        trained.model.to(device),
        ids,
        tokens,
        generator=torch.Generator(device).manual_seed(seed),
        temperature=temperature,
        top_k=top_k,
        vocab_size=tokenizer.vocab_size,
    )
    print(prompt, end="", flush=True)
    shown, made, started = "", [], time.perf_counter()
    for token in written:
        if token == tokenizer.end_of_text:
            break
        made.append(token)
        text = tokenizer.decode(made)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half of a character
            print(text[len(shown) :], end="", flush=True)
            shown = text
    seconds = time.perf_counter() - started
    print(tokenizer.decode(made)[len(shown) :])
    end = "" if len(made) == tokens else ", then the end of the document"
    print(
        f"{trained.job.label}: {len(made)} tokens{end}, {(len(ids) + len(made)) / seconds:,.0f} tokens/s on {device}, "
        "prompt included",
        file=sys.stderr,
    )
