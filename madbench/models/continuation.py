"""Text that language models write after prompts, many at a time, until each is at its end."""

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
    """At most ``count`` ids after each prompt, whose lengths are equal, token by token through the mixers' caches.

    Past the context each id follows from the newest ``seq_len`` tokens only (:meth:`GPT.decode` with ``slide``). A
    mixer without a step reads all of these again for each id within the context too.

    Args:
        model: on any device; read, not changed.
        prompts: ids, at least one each.
        is_over: whether the prompt of this place has been continued enough by these ids.
        draw: the next id of logits (V,) in float32.
        vocab_size: ids from here on are padding of the embedding and never drawn.

    Raises ``TrainingError`` beyond the positions that the model learned.
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
