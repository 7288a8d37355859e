"""Decoding of the tokens of a prompt that a mixer does not compute at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

C = TypeVar("C")


def decode_rest(
    step: Callable[[Tensor, C, bool], tuple[Tensor, C]], rows: Tensor, cache: C, rest: Tensor, slide: bool = False
) -> tuple[Tensor, C]:
    """Decodes the end of a prompt, one step per token.

    Args:
        step: decodes one token (B, D); the method ``step`` of a mixer.
        rows: the rows (B, T, D) of the start of the prompt, computed at once.
        cache: the cache after the start.
        rest: the tokens (B, N, D) after the start, of which there may be none.
        slide: passed to ``step``.

    Returns all rows (B, T + N, D) and the cache after the prompt.
    """
    parts = [rows]
    for token in rest.unbind(1):
        row, cache = step(token, cache, slide)
        parts.append(row[:, None])
    return torch.cat(parts, dim=1), cache
