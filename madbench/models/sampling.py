"""Text from a language model, token by token through the mixers' caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from madbench.errors import TrainingError
from madbench.models.gpt import GPT


def generate(
    model: GPT,
    prompt: Sequence[int],
    count: int,
    *,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    vocab_size: int | None = None,
) -> Iterator[int]:
    """Yields ``count`` ids that follow ``prompt``, each drawn as soon as it is asked for.

    Beyond ``seq_len`` tokens every mixer sees its newest ``seq_len`` only.

    Args:
        model: on any device; read, not changed.
        prompt: ids, at least one: the end-of-text token where there is no text to begin with.
        generator: source of the draws, on the device of the model.
        temperature: divides the logits; 0 takes the likeliest id each time.
        top_k: draws among this many likeliest ids only.
        vocab_size: ids from here on are padding of the embedding and never drawn.

    Raises:
        TrainingError: an empty prompt, a setting out of range, a mixer that cannot decode token by token, or more
            tokens than learned positions.
    """
    rows = model.embedding.weight.shape[0]
    vocab_size = rows if vocab_size is None else vocab_size
    if not prompt or not all(0 <= token < rows for token in prompt):
        raise TrainingError(f"the prompt must be one or more ids from 0 to {rows - 1}, got {list(prompt[:8])}")
    if not 0 <= temperature < float("inf"):
        raise TrainingError(f"temperature must be a number of at least 0, got {temperature}")
    if top_k is not None and top_k < 1:
        raise TrainingError(f"top_k must be at least 1, got {top_k}")
    if top_k is not None and temperature == 0:
        raise TrainingError("top_k has no effect at temperature 0, which takes the likeliest id")
    longest = len(prompt) + count - 1
    if model.positions is not None and longest > model.seq_len:
        raise TrainingError(
            f"{longest} tokens, but the model learned positions for seq_len = {model.seq_len}; use a shorter prompt or "
            "ask for fewer tokens"
        )
    return _generate(model, prompt, count, generator, temperature, top_k, vocab_size)


def _generate(
    model: GPT,
    prompt: Sequence[int],
    count: int,
    generator: torch.Generator,
    temperature: float,
    top_k: int | None,
    vocab_size: int,
) -> Iterator[int]:
    device, state = model.embedding.weight.device, None
    pending = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            for token in pending:
                logits, state = model.step(torch.tensor([token], device=device), state, slide=True)
            token = _draw(logits[0, :vocab_size].float(), generator, temperature, top_k)
        yield token
        pending = [token]


def _draw(logits: Tensor, generator: torch.Generator, temperature: float, top_k: int | None) -> int:
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits, ids = logits.topk(top_k)
    else:
        ids = torch.arange(len(logits), device=logits.device)
    probabilities = (logits / temperature).softmax(-1)
    return int(ids[torch.multinomial(probabilities, 1, generator=generator)])
