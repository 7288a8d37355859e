"""Decoding of the end of a prompt token by token, and the count of the numbers in a cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

C = TypeVar("C")


def decode_rest(
    step: Callable[[Tensor, C, bool], tuple[Tensor, C]], rows: Tensor, cache: C, rest: Tensor, slide: bool = False
) -> tuple[Tensor, C]:
    """Decode the end of a prompt, one step per token.

    Args:
        step: decodes one token (B, D): the method ``step`` of a mixer.
        rows: the outputs (B, T, D) for the start of the prompt, which was computed at once.
        cache: the cache after the start of the prompt.
        rest: the remaining tokens (B, N, D) of the prompt. N may be 0.
        slide: passed to ``step``; see :meth:`madbench.mixers.mixer.Mixer.step`.

    Return the outputs (B, T + N, D) for the whole prompt, and the cache after it.
    """
    parts = [rows]
    for token in rest.unbind(1):
        row, cache = step(token, cache, slide)
        parts.append(row[:, None])
    return torch.cat(parts, dim=1), cache


def held_numbers(cache: Any) -> int:
    """The count of the numbers in a cache: the elements of all its tensors.

    Tensors may be nested in dataclasses, mappings, lists and tuples. Integers, such as positions, do not count, and a
    complex number counts as two. If a cache has an integer attribute ``numbers``, this is its count, for example
    because its tensors have unused space.
    """
    if isinstance(cache, Tensor):
        is_counted = cache.is_floating_point() or cache.is_complex()
        return cache.numel() * (1 + cache.is_complex()) * is_counted
    if isinstance(numbers := getattr(cache, "numbers", None), int):
        return numbers
    if dataclasses.is_dataclass(cache):
        return sum(map(held_numbers, vars(cache).values()))
    parts = cache.values() if isinstance(cache, Mapping) else cache if isinstance(cache, list | tuple) else ()
    return sum(map(held_numbers, parts))
