"""Log-probabilities of continuations of any length, given a context, for benchmarks of language models."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from madbench.mixers.lengths import depends_on_length
from madbench.mixers.traits import mixers_in
from madbench.models.token_loss import MOST_LOGITS, logits_of

if TYPE_CHECKING:
    from madbench.models.token_loss import TokenModel

Ids = Sequence[int]


@dataclass
class Likelihood:
    """The log-probability of a continuation in nats. ``is_greedy`` says if greedy decoding gives this continuation."""

    log_p: float = 0.0
    is_greedy: bool = True


def windows(context: Ids, continuation: Ids, seq_len: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield inputs of at most ``seq_len`` ids, each with the ids (targets) that its last positions predict.

    The first input begins with the last ids of ``context``. Every id of the continuation is a target once. A
    continuation of more than ``seq_len`` ids is cut into pieces of ``seq_len`` targets, and a last piece with the rest.
    Each input has as many of the ids before its targets as fit; the earliest ids are left out.

    >>> list(windows([7], [0, 1, 2, 3, 4], 4))
    [((7, 0, 1, 2), (0, 1, 2, 3)), ((0, 1, 2, 3), (4,))]
    """
    whole = (*context, *continuation)
    for start in range(len(context), len(whole), seq_len):
        end = min(start + seq_len, len(whole))
        yield whole[max(0, end - 1 - seq_len) : end - 1], whole[start:end]


@dataclass
class _Row:
    """An input of the model, and the requests whose targets the last positions of this input predict.

    Each request in ``asked`` is given by its index and its targets.
    """

    inputs: tuple[int, ...]
    asked: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


@torch.inference_mode()
def log_likelihoods(
    model: nn.Module,
    requests: Sequence[tuple[Ids, Ids]],
    *,
    seq_len: int,
    batch_tokens: int,
    device: str,
    autocast: Any,
    vocab_size: int | None = None,
    batch_size: int | None = None,
) -> Iterator[tuple[int, Likelihood]]:
    """Yield the index of each request with the likelihood of its continuation, as soon as it is known.

    Requests that differ only in the last id share a row, that is, an input of the model. Rows are sorted by length,
    longest first, so the order of the requests does not matter. Shorter rows are padded at the end, which a causal
    model does not see. If outputs of a mixer depend on the length of the input
    (:func:`madbench.mixers.lengths.depends_on_length`), only rows of one length go through the model together.

    Args:
        model: :class:`madbench.models.gpt.GPT` on ``device``, or a model with the same ``hidden`` and ``readout``.
        requests: pairs of a context, of at least one id, and the ids of its continuation.
        seq_len: length of the longest input in tokens (:func:`windows`).
        batch_tokens: largest number of tokens in a batch. A batch of a single row may have more.
        device: device of the model.
        autocast: context manager of the forward pass (:func:`madbench.models.blocks.autocast`).
        vocab_size: number of ids that greedy decoding can choose. Higher ids are padding. If None, all ids.
        batch_size: largest number of rows in a batch. None for no limit.
    """
    rows: dict[tuple[int, ...], _Row] = {}
    unknown: dict[int, int] = defaultdict(int)  # by request: number of windows without a score yet
    for place, (context, continuation) in enumerate(requests):
        for inputs, targets in windows(context, continuation, seq_len):
            rows.setdefault(inputs, _Row(inputs)).asked.append((place, targets))
            unknown[place] += 1
        if not unknown[place]:
            yield place, Likelihood()
    answers: dict[int, Likelihood] = defaultdict(Likelihood)
    ordered = sorted(rows.values(), key=lambda row: (-len(row.inputs), row.inputs))
    groups = [ordered]
    if len({len(row.inputs) for row in ordered}) > 1 and _depends_on_length(model, seq_len):
        groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda row: len(row.inputs))]
    for batch in itertools.chain.from_iterable(_batches(group, batch_tokens, batch_size) for group in groups):
        asked = [request for row in batch for request in row.asked]
        for (place, _), (log_p, is_greedy) in zip(asked, _score(model, batch, device, autocast, vocab_size)):
            answer = answers[place]
            answer.log_p, answer.is_greedy = answer.log_p + log_p, answer.is_greedy and is_greedy
            unknown[place] -= 1
            if not unknown[place]:
                yield place, answers.pop(place)


def _depends_on_length(model: nn.Module, seq_len: int) -> bool:
    return any(
        depends_on_length(mixer, cast("Any", model).embedding.weight.shape[1], seq_len)
        for _, mixer, _ in mixers_in(model)
    )


def _batches(rows: Sequence[_Row], most_tokens: int, most_rows: int | None) -> Iterator[Sequence[_Row]]:
    """Yield batches of at most ``most_rows`` rows and ``most_tokens`` tokens, padding included.

    ``rows`` are sorted by length, longest first. A batch may be a single row with more tokens.
    """
    first = 0
    while first < len(rows):
        count = max(1, most_tokens // len(rows[first].inputs))
        count = min(count, most_rows or count)
        yield rows[first : first + count]
        first += count


def _score(
    model: nn.Module, batch: Sequence[_Row], device: str, autocast: Any, vocab_size: int | None
) -> list[tuple[float, bool]]:
    """For each request of each row: its log-probability in nats, and True if greedy decoding gives its targets."""
    ids = torch.zeros(len(batch), len(batch[0].inputs), dtype=torch.int64)
    for i, row in enumerate(batch):
        ids[i, : len(row.inputs)] = torch.tensor(row.inputs)
    with autocast:
        hidden = cast("TokenModel", model).hidden(ids.to(device))
        pairs = [pair for i, row in enumerate(batch) for pair in _row_scores(model, hidden[i], row, vocab_size)]
    log_p, is_greedy = (torch.stack(column).tolist() for column in zip(*pairs))
    return [*zip(log_p, is_greedy)]


def _row_scores(model: nn.Module, hidden: Tensor, row: _Row, vocab_size: int | None) -> list[tuple[Tensor, Tensor]]:
    """The results of :func:`_score` for one row, as tensors: a float64 and a bool scalar per request.

    ``hidden`` (T, D) has the model's vectors for the row, followed by those for padding.
    """
    end, longest = len(row.inputs), max(len(targets) for _, targets in row.asked)
    predicting = hidden[end - longest : end]
    logits_at_once = max(1, MOST_LOGITS // logits_of(model, hidden[:1]).shape[-1])
    log_p, likeliest = [], []
    targets = torch.zeros(len(row.asked), longest, dtype=torch.int64)
    for i, (_, ids) in enumerate(row.asked):
        targets[i, longest - len(ids) :] = torch.tensor(ids)
    targets = targets.to(hidden.device)
    for first in range(0, longest, logits_at_once):
        logits = logits_of(model, predicting[first : first + logits_at_once])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        part = targets[:, first : first + logits_at_once]
        log_p.append(logits.log_softmax(-1).gather(-1, part.T).T)
        likeliest.append(logits[:, :vocab_size].argmax(-1))
    log_p, is_likeliest = torch.cat(log_p, 1).double(), torch.cat(likeliest) == targets
    starts = [longest - len(ids) for _, ids in row.asked]
    return [(log_p[i, start:].sum(), is_likeliest[i, start:].all()) for i, start in enumerate(starts)]
