"""``madbench lm sample``: write text with a trained language model."""

from __future__ import annotations

import codecs
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.trained_models import ModelArgument, TrainedModel, TrustOption
from madbench.config.options import option
from madbench.errors import no_effect
from madbench.labels.names import display_name
from madbench.text.options import CorpusOptions
from madbench.training.devices import resolve_device


@dataclass(frozen=True)
class CorpusWithTokenizer(CorpusOptions):
    """The options of the corpus from which ``madbench lm sample`` takes the tokenizer of a model."""

    corpus: Annotated[Path | None, option("Folder of the corpus with the tokenizer, if it was moved.")] = None


def sample(
    run: ModelArgument,
    prompt: Annotated[str, option("Text to continue.", show_default="the start of a document")] = "",
    tokens: Annotated[
        int, option("Most tokens to write; the end of a document ends the text.", min=1, max=1_000_000)
    ] = 200,
    temperature: Annotated[
        float, option("Below 1 favors likely tokens, above 1 unlikely ones; 0 always takes the likeliest.", min=0)
    ] = 0.8,
    top_k: Annotated[int | None, option("Draw only from this number of likeliest tokens.", min=1)] = None,
    seed: Annotated[int, option("Seed of the draws.", min=0)] = 0,
    *,
    data: CorpusWithTokenizer,
    trust: TrustOption = None,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Write text with a trained language model.

    Tokens go one by one through the caches of the mixers. Beyond the context of
    the model, its newest tokens are read again for each new token, which is
    slower. The text is printed as it is made, and the speed at the end.

    [bold]Examples[/bold]

      madbench lm sample G-cg-q-12o
      madbench lm sample 3f9a --prompt 'def main(' --tokens 400 --temperature 0.5
      madbench lm sample results/work/3f9a/checkpoint.pt
    """
    import torch

    from madbench.models.gpt import generate, past_context
    from madbench.text.documents import valid_unicode

    if top_k and not temperature:
        raise no_effect(f"--top-k {top_k}", "with --temperature 0, which takes the likeliest token")
    device = resolve_device(device)
    trained = TrainedModel(run, results, trust=trust)
    tokens_of_text, prompt = trained.corpus(data).tokenizer(), valid_unicode(prompt)
    if top_k and top_k >= tokens_of_text.vocab_size:
        count = tokens_of_text.vocab_size
        raise no_effect(f"--top-k {top_k}", because=f"tokenizer {tokens_of_text.spec} has {count} tokens")
    ids = tokens_of_text.encode(prompt).tolist() or [tokens_of_text.end_of_text]
    model = trained.language_model
    new_ids = generate(
        model.to(device),
        ids,
        tokens,
        generator=torch.Generator(device).manual_seed(seed % 2**63),
        temperature=temperature,
        top_k=top_k,
        vocab_size=tokens_of_text.vocab_size,
    )
    if len(ids) + tokens - 1 > model.seq_len:
        options.warn(past_context(model.seq_len))
    print(prompt, end="", flush=True)
    decoder, new_count, start_time = codecs.getincrementaldecoder("utf-8")("replace"), 0, time.perf_counter()
    for token in itertools.takewhile(lambda token: token != tokens_of_text.end_of_text, new_ids):
        new_count += 1
        print(decoder.decode(tokens_of_text.tokens[token]), end="", flush=True)  # a token may hold half of a character
    seconds = time.perf_counter() - start_time
    print(decoder.decode(b"", final=True))
    end = "" if new_count == tokens else ", then the end of the document"
    speed = f"{(len(ids) + new_count) / seconds:,.0f} tokens/s on {device}, prompt included"
    print(f"{display_name(trained.job.label)}: {new_count} tokens{end}, {speed}", file=sys.stderr)
