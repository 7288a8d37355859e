"""Checks of the constructions in Appendices I.3.1 and I.3.2: averages of noise, and summaries of a context.

Every token has the channels that an embedding could give it: some for keys, some for values, and, in the last token,
some for its query. One head computes the result, and the weights of the other heads are zero.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from madbench.mixers import Check
from madbench.mixers.checks.residuals import ROUNDING, difference, maximum
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import EPS, SequenceMixing
from madbench.mixers.srg.theorems import measures
from madbench.mixers.srg.theorems.statements import Statements, why_unselected

SIGNAL, NOISE = 2, 5  # numbers of signal tokens and of noise tokens
ADDRESS, ASKS, IS_SIGNAL, IS_NOISE = range(4)  # channels of noisy recall
CONTEXT, SUMMARIES, WIDTH = 5, 3, 4  # numbers of tokens, of their summaries, and of channels of a value
PLACES, VALUES, QUESTIONS = (slice(start, start + n) for start, n in ((0, CONTEXT), (5, WIDTH), (9, CONTEXT)))
"""The channels of a token that have its place, its value, and (in the last token) the number of the summary to give."""
HEADS_DRAWN = 20  # number of random heads


def checks(statements: Statements) -> Iterable[Check]:
    """The checks of averages of noise (Appendix I.3.1) and of summaries of a context (I.3.2) for a label."""
    label, check, differ = statements.label, statements.check, statements.differ
    no_selection = why_unselected(label)
    wide = functools.partial(measures.with_ranks, qk=8 * label.query_heads(2))
    unless = no_selection or ("GLU has two scores per slot" if label.base == "G" else "")
    unless = unless or ("RoPE rotates the scores" if label.rope else "")
    unless = unless or ("registers are the first slots" if label.registers else "")
    of_first = unless or ("" if label.mix1 else "the label has no R(1)")
    of_second = unless or ("" if label.mix2 else "the label has no R(2)")
    alone = unless or ("mixing makes each slot from all tokens" if label.has_mixing else "")
    alone = alone or ("a convolution reads other tokens" if label.conv else "")

    what = (
        "R(1) averages m = 5 noise tokens into one slot, whose score has 1/m of the variance. On average half a noise"
        " slot is active instead of m/2, and the signal tokens are summed in one slot."
    )
    two = functools.partial(measures.with_ranks, vo=4)  # also with the letter v, a head reads out two channels
    yield check("noise average", what, "Appendix I.3.1", noise_average, unless=of_first, make=two)
    what = "The signal slot has a larger share of a row's normalized scores than all signal tokens without R(1)."
    yield differ("signal margin", what, "Appendix I.3.1", signal_margin, unless=of_first, make=two)
    what = "R(2) makes k slots from the summaries C^T X, for any C, and a query selects and reads one of them."
    yield check("context summaries", what, "Appendix I.3.2", context_summaries, unless=of_second, make=wide)
    what = "The weights of a token-wise head on the values of its context have one sign: it cannot form a difference."
    yield check("weights of one sign", what, "Appendix I.3.2", one_sign, 1e-6, alone, wide)
    what = "A single token-wise head gives C^T X, up to the norm, for any C above 0, if tokens know their places."
    one_head = check("summary by one head", what, "against Appendix I.3.2", one_head_summary, ROUNDING, alone, wide)
    yield replace(one_head, contradicts=True)


def noisy_tokens(like: Tensor) -> Tensor:
    """Sequences (2^5, 8, D) of two signal tokens, five noise tokens, and a last token that scores the others.

    The sequences have all patterns of signs of the noise: a noise token has the score +1 or -1. A signal token has the
    score +1. D, dtype and device are those of ``like`` (..., D).
    """
    signs = like.new_tensor([*itertools.product((1.0, -1.0), repeat=NOISE)])
    tokens = like.new_zeros(len(signs), SIGNAL + NOISE + 1, like.shape[-1])
    tokens[:, :SIGNAL, ADDRESS] = tokens[:, :SIGNAL, IS_SIGNAL] = tokens[:, -1, ASKS] = 1
    tokens[:, SIGNAL:-1, ADDRESS], tokens[:, SIGNAL:-1, IS_NOISE] = signs, 1
    return tokens


def _recall(mixer: DynamicMLP) -> float:
    """Set weights so that the last row of :func:`noisy_tokens` gives every token the score that the token stores.

    The output sums signals and noise in separate channels. Return 2 if gates halve the outputs, else 1.
    """
    half = _clear(mixer)
    mixer.q.weight[0, ASKS], mixer.k.weight[0, ADDRESS] = half, 1
    for row, channel in enumerate((IS_SIGNAL, IS_NOISE)):
        mixer.v.weight[row, channel], mixer.o.weight[channel, row] = 1, half
    return half


def _clear(mixer: DynamicMLP) -> float:
    """Set all parameters to zero, and convolutions to the identity. Return 2 if gates halve the outputs, else 1."""
    for parameter in mixer.parameters():
        parameter.zero_()
    for conv in filter(None, (mixer.k_conv, mixer.v_conv)):
        conv.weight[:, -1] = 1
    return 2.0 if mixer.label.gates else 1.0


def _slots(mixer: DynamicMLP, tokens: int) -> list[int]:
    """The slot of each of the ``tokens`` tokens in the last row, for the oldest token first."""
    return [tokens - 1 - token if mixer.by_lag else token for token in range(tokens)]


def _collect(mix: SequenceMixing, slots: list[int], into: int, weights: Tensor, rank: int) -> None:
    """Set the tables of the first head so that slot ``into`` of a mixed row is a weighted sum of the slots ``slots``.

    The other ``slots`` become zero. Column ``into`` of R then has the ``weights`` in the rows ``slots``. Component
    ``rank`` of the low-rank part is used, and all strengths s are assumed to be one half.
    """
    mix.p[0, slots] = -1
    mix.A[0, slots, rank], mix.B[0, into, rank] = weights, 2.0


def noise_average(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the last rows of the mixer on :func:`noisy_tokens` with their expected values, for weights set by hand.

    The mixing matrix R(1) gives the last token two slots: the sum of the signal tokens, and the average of the m noise
    tokens. Over all patterns of noise signs, the score of the noise slot must also have the variance 1 / m, and be
    positive in half of the patterns. The result is the largest of the three errors.
    """
    tokens = noisy_tokens(x)
    _recall(mixer)
    _concentrate(mixer, tokens.shape[1])
    average = tokens[:, SIGNAL:-1, ADDRESS].mean(1)
    expected = torch.zeros_like(tokens[:, -1])
    norm = (SIGNAL**2 + average.square() + EPS).sqrt()
    expected[:, IS_SIGNAL], expected[:, IS_NOISE] = SIGNAL / norm, average.relu() / norm
    rows = mixer(tokens)[:, -1]
    of_noise = rows[:, IS_NOISE] / rows[:, IS_SIGNAL] * SIGNAL  # the positive scores; negative ones are symmetric
    variance, active = 2 * of_noise.square().mean(), (of_noise > 0).double().mean()
    return maximum(difference(rows, expected), abs(float(NOISE * variance) - 1), abs(float(active) - 0.5))


def _concentrate(mixer: DynamicMLP, tokens: int) -> None:
    """Set the mixing matrix R(1) for :func:`noisy_tokens`, so that the last token sees two slots only.

    One slot is the sum of the signal tokens, and one is the average of the noise tokens. The other slots of these
    tokens become zero.
    """
    assert mixer.mix1 is not None
    slots = _slots(mixer, tokens)
    signal, noise = slots[:SIGNAL], slots[SIGNAL:-1]
    _collect(mixer.mix1, signal, signal[0], mixer.q.weight.new_ones(SIGNAL), 0)
    _collect(mixer.mix1, noise, noise[0], mixer.q.weight.new_full((NOISE,), 1 / NOISE), 1)


def signal_margin(mixer: DynamicMLP, x: Tensor) -> float:
    """The smallest increase of the weight of signal tokens in the last row if R(1) is set, over all patterns of noise.

    The weight is the sum of normalized activations. The mixing matrix R(1) is first the identity, and then set as in
    :func:`noise_average`.
    """
    tokens = noisy_tokens(x)
    _recall(mixer)
    token_wise = mixer(tokens)[:, -1, IS_SIGNAL]
    _concentrate(mixer, tokens.shape[1])
    return float((mixer(tokens)[:, -1, IS_SIGNAL] - token_wise).min())


def _context(like: Tensor, asked: int) -> Tensor:
    """Sequences (``asked``, 6, D) with the same random context of five tokens.

    The last token of sequence i asks for summary i. D, dtype and device are those of ``like`` (..., D).
    """
    generator = torch.Generator().manual_seed(0)
    tokens = like.new_zeros(asked, CONTEXT + 1, like.shape[-1])
    tokens[:, :CONTEXT, VALUES] = torch.randn(CONTEXT, WIDTH, generator=generator).to(like)
    tokens[:, :CONTEXT, PLACES] = torch.eye(CONTEXT).to(like)
    tokens[:, -1, QUESTIONS] = torch.eye(CONTEXT).to(like)[:asked]
    return tokens


def _weights(like: Tensor, summaries: int) -> Tensor:
    """Random weights C (5, ``summaries``) for summaries C^T X of five tokens. Every column has both signs."""
    generator = torch.Generator().manual_seed(1)
    c = torch.randn(CONTEXT, summaries, generator=generator).to(like)
    c[0], c[1] = c[0].abs(), -c[1].abs()
    return c


def _reads(mixer: DynamicMLP, half: float, scores: Tensor) -> None:
    """Set weights for the tokens of :func:`_context`, so that the last token reads the values of the others.

    If it asks for summary i, it gives the token at place j the score ``scores[j, i]``. ``half`` is the result of
    :func:`_clear`, by which queries and outputs are multiplied to make up for gates.
    """
    for j in range(CONTEXT):
        mixer.k.weight[j, PLACES.start + j] = 1
        mixer.q.weight[j, QUESTIONS.start : QUESTIONS.start + scores.shape[1]] = half * scores[j]
    for row in range(WIDTH):
        mixer.v.weight[row, VALUES.start + row], mixer.o.weight[VALUES.start + row, row] = 1, half


def context_summaries(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare output rows with summaries C^T X of a context X, for a random C.

    The mixing matrix R(2) is set so that it makes one slot per summary, and each row selects one of these slots. Return
    the relative difference.
    """
    assert mixer.mix2 is not None
    asked = min(SUMMARIES, mixer.mix2.A.shape[-1])
    tokens, c = _context(x, asked), _weights(x, asked)
    half, slots = _clear(mixer), _slots(mixer, CONTEXT + 1)
    _reads(mixer, half, torch.eye(CONTEXT).to(x)[:, :asked])
    for i in range(asked):
        mixer.mix2.p[0, slots[i]] = -1
        mixer.mix2.A[0, slots[:CONTEXT], i], mixer.mix2.B[0, slots[i], i] = c[:, i], 2.0
    expected = torch.zeros_like(tokens[:, -1])
    expected[:, VALUES] = c.T @ tokens[0, :CONTEXT, VALUES]
    return difference(mixer(tokens)[:, -1], expected)


def one_head_summary(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the output of a head without mixing with summaries C^T X of a context X, divided by the norms of C.

    C are the scores of the head, which are positive, and each summary is divided by the norm of its column of C. Return
    the relative difference.
    """
    tokens, c = _context(x, SUMMARIES), _weights(x, SUMMARIES).abs()
    _reads(mixer, _clear(mixer), c)
    expected = torch.zeros_like(tokens[:, -1])
    expected[:, VALUES] = c.T @ tokens[0, :CONTEXT, VALUES] / (c.square().sum(0) + EPS).sqrt()[:, None]
    return difference(mixer(tokens)[:, -1], expected)


def one_sign(mixer: DynamicMLP, x: Tensor) -> float:
    """1 minus the smallest cosine between the derivatives of an output row by two values, over random heads.

    It is 0 if all weights of values have the same sign: since scores do not read the values here, the derivative of the
    row by a value is the weight of the value times a common matrix. Derivatives of zero are left out.
    """
    tokens, generator, least = _context(x, 1), torch.Generator().manual_seed(2), 1.0
    moved = tokens.repeat(CONTEXT * WIDTH + 1, 1, 1)
    for i, (token, channel) in enumerate(itertools.product(range(CONTEXT), range(WIDTH))):
        moved[i + 1, token, VALUES.start + channel] += 1
    for _ in range(HEADS_DRAWN):
        _clear(mixer)
        for weight in (mixer.q.weight, mixer.k.weight, mixer.v.weight, mixer.o.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator).to(weight))
        mixer.k.weight[:, VALUES] = 0
        mixer.o.weight[:, mixer.allocation.vo_width :] = 0  # only the first head has an output
        rows = mixer(moved)[:, -1]
        slopes = (rows[1:] - rows[0]).view(CONTEXT, -1)
        slopes = slopes[slopes.norm(dim=1) > EPS]
        unit = slopes / slopes.norm(dim=1, keepdim=True)
        if len(unit) > 1:
            least = min(least, float((unit @ unit.T).min()))
    return 1 - least
