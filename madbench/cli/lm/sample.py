from __future__ import annotations

import sys
import time
from pathlib import Path

from madbench.cli.lm.finding import ModelArgument, TrainedModel
from madbench.cli.options import RESULTS, DeviceOption, ResultsOption, option


def sample(
    run: ModelArgument,
    prompt: option(str, "Text to continue.", show_default="the beginning of a document") = "",
    tokens: option(int, "Tokens to write at most; the end of a document ends it.", min=1) = 200,
    temperature: option(float, "Below 1 likelier, above 1 bolder; 0 the likeliest.", min=0) = 0.8,
    top_k: option(int | None, "Choose among this many likeliest tokens only.", min=1) = None,
    seed: option(int, "Seed of the draws.") = 0,
    corpus: option(Path | None, "Folder of the corpus, for its tokenizer, where it has been moved.") = None,
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

    from madbench.models.gpt import generate
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
