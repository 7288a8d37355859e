"""Generation of token ids that continue a batch of prompts, until every text is complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from madbench.models.gpt import GPT


@torch.inference_mode()
def continuations(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    count: int,
    *,
    is_over: Callable[[int, Sequence[int]], bool],
    draw: Callable[[Tensor], int],
    vocab_size: int | None = None,
) -> list[list[int]]:
    """Return at most ``count`` new ids for each prompt, computed token by token with the mixers' caches.

    All prompts have the same length. Once a text is longer than the model's context, each id depends only on the newest
    ``seq_len`` tokens (:meth:`GPT.decode` with ``slide``). If a mixer has no method ``step``, the model reads all
    tokens again for each id.

    Args:
        model: on any device; read, not changed.
        prompts: ids of each prompt, at least one.
        count: largest number of new ids per prompt.
        is_over: called with the index of a prompt and its new ids. True ends the text of this prompt.
        draw: returns the next id from logits in float32, one per id that can be drawn.
        vocab_size: number of ids that can be drawn. Higher ids are padding of the embedding. If None, all ids.

    Raises ``TrainingError`` if positions are learned and a text is longer than the model's context.
    """
    ids = torch.tensor(prompts, device=model.embedding.weight.device)
    decodes = all(hasattr(block.mixer, "step") for block in model.blocks)
    unread, state = ids, None
    written: list[list[int]] = [[] for _ in prompts]
    open_places = set(range(len(prompts)))
    for _ in range(count):
        if decodes:
            logits, state = model.decode(unread, state, slide=True)
        else:
            logits = model(model.newest(ids))[:, -1]
        tokens = [draw(row) for row in logits[:, :vocab_size].float()]
        for place in sorted(open_places):
            written[place].append(tokens[place])
        open_places = {place for place in open_places if not is_over(place, written[place])}
        if not open_places:
            break
        unread = ids.new_tensor(tokens)[:, None]
        ids = ids if decodes else torch.cat((ids, unread), 1)
    return written
