"""Fuzzy in-context recall: in-context recall with keys and values of several tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from madbench.tasks.base import IGNORE, Examples, Reading, TaskSetting, require
from madbench.tasks.sampling import distinct_ids, first_occurrence


@dataclass(frozen=True)
class FuzzyInContextRecall(TaskSetting):
    """Pairs of a key motif and a value motif; the last pair, the probe, was shown at a random place before.

    Id V-1 is padding. Of the others the first half are key ids, the second half value ids; a motif of size s is an
    ordered choice of s distinct ids, uniform. Training draws key and value sizes uniformly from 1 to their maximum;
    evaluation has keys of the largest size only.

    The probe, of key size k and value size v, is drawn first, and an insertion point uniform on 0..T-2(k+v)-1.
    Pairs are appended while the length is below T - (k + v) - (largest pair); the first append at or past the
    insertion point is the probe. A drawn key that equals the probe's takes the probe's value and counts as the
    insertion; any other keeps the first value it had in the sequence. The probe ends the sequence, padded on the
    left to T + 1. Training asks for every next token, padding included; evaluation for the value tokens after a key
    shown before, and for the probe's at the end. The shift by one leaves T positions.

    A few insertion points lie past the last append: such a probe is never shown before it is asked for (about 2.2%
    of evaluation sequences at the baseline).
    """

    max_key_size: int
    """Tokens of the longest key; every key of an evaluation sequence has this size."""
    max_value_size: int
    """Tokens of the longest value."""

    def __post_init__(self):
        super().__post_init__()
        largest = self.max_key_size + self.max_value_size
        for name in ("max_key_size", "max_value_size"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        fewest = max(2 * self.max_key_size, 2 * self.max_value_size - 1) + 1
        require(
            self.vocab_size >= fewest,
            f"vocab_size must be at least {fewest} for motifs of {self.max_key_size} and {self.max_value_size} "
            f"distinct ids and the padding id, got {self.vocab_size}",
        )
        shortest = 2 * largest + 1
        require(
            self.seq_len >= shortest,
            f"seq_len must be at least {shortest} for pairs of up to {largest} tokens, got {self.seq_len}",
        )
        require(
            (self.num_key_ids + 1) ** self.max_key_size < 1 << 40,
            f"max_key_size {self.max_key_size} is too large for vocab_size {self.vocab_size}: over 2^40 keys",
        )

    @property
    def num_key_ids(self) -> int:
        """Ids that keys are made of, from 0 up; the value ids follow."""
        return (self.vocab_size - 1) // 2

    @property
    def num_answers(self) -> int:
        return self.vocab_size - 1 - self.num_key_ids

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        max_key, max_value = self.max_key_size, self.max_value_size
        shortest_pair = 1 + (1 if training else max_key)
        # Column 0 is the probe; the others suffice to fill a sequence with the shortest pairs.
        shape = (count, 1 + -(-self.seq_len // shortest_pair))
        keys = distinct_ids(rng, self.num_key_ids, shape, max_key)
        values = distinct_ids(rng, self.num_answers, shape, max_value) + self.num_key_ids
        key_size = np.full(shape, max_key, np.int32)
        if training:
            key_size = rng.integers(1, max_key, size=shape, dtype=np.int32, endpoint=True)
        value_size = rng.integers(1, max_value, size=shape, dtype=np.int32, endpoint=True)
        probe_len = (key_size + value_size)[:, :1]
        insertion = rng.integers(self.seq_len - 2 * probe_len)

        digits = np.where(np.arange(max_key) < key_size[..., None], keys + 1, 0)
        weights = (self.num_key_ids + 1) ** np.arange(max_key)
        first = first_occurrence((digits * weights).sum(axis=2))
        pair_len = key_size + np.take_along_axis(value_size, first, axis=1)

        order = _order_of_pairs(pair_len, first, insertion)
        first = np.take_along_axis(first, order, axis=1)
        pair_len = np.take_along_axis(pair_len, order, axis=1)
        appended = np.cumsum(pair_len, axis=1) - pair_len < self.seq_len - probe_len - (max_key + max_value)
        appended[:, -1] = True

        rows = np.arange(count)[:, None]
        pairs = np.concatenate([keys[rows, order], values[rows, first]], axis=2)
        present = np.empty(pairs.shape, bool)
        present[..., :max_key] = np.arange(max_key) < key_size[rows, order][..., None]
        present[..., max_key:] = np.arange(max_value) < value_size[rows, first][..., None]
        present &= appended[..., None]

        # Both sides run through the tokens row by row, so each token lands behind the padding of its own row.
        filled = np.arange(self.seq_len, -1, -1) < present.sum(axis=(1, 2))[:, None]
        tokens = np.full(filled.shape, self.vocab_size - 1, np.int32)
        tokens[filled] = pairs[present]
        targets = tokens
        if not training:
            asked = np.zeros(pairs.shape, bool)
            asked[..., max_key:] = _is_shown_before(order, first)[..., None]
            targets = np.full_like(tokens, IGNORE)
            targets[filled] = np.where(asked, pairs, IGNORE)[present]
        return tokens[:, :-1], targets[:, 1:]

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> Reading:
        tokens = [*inputs, targets[-1]]
        kinds = {}
        for token in set(tokens):
            kinds[token] = "pad" if token == self.vocab_size - 1 else "key" if token < self.num_key_ids else "value"
        runs = [(kind, tuple(run)) for kind, run in groupby(tokens, kinds.__getitem__)]
        roles = [kind for kind, run in runs for _ in run]
        problems = []
        padding = runs.pop(0)[1] if runs[0][0] == "pad" else ()
        if not 2 <= len(padding) <= self.max_key_size + self.max_value_size + 1:
            problems.append(f"{len(padding)} padding tokens")
        if not runs or [kind for kind, _ in runs] != ["key", "value"] * (len(runs) // 2):
            return Reading(roles[:-1], tokens[1:], [*problems, "keys and values do not alternate after the padding"])

        motifs = [run for _, run in runs]
        value_of: dict[tuple[int, ...], tuple[int, ...]] = {}
        expected = [IGNORE] * len(padding)
        for key, value in zip(motifs[0::2], motifs[1::2]):
            is_known = key in value_of
            for motif, largest in ((key, self.max_key_size), (value, self.max_value_size)):
                if len(set(motif)) != len(motif) or len(motif) > largest:
                    problems.append(f"motif {motif} repeats an id or is longer than {largest}")
            if not training and len(key) != self.max_key_size:
                problems.append(f"key {key} has not the evaluation size {self.max_key_size}")
            if value_of.setdefault(key, value) != value:
                problems.append(f"key {key} had the value {value_of[key]}, now {value}")
            expected += [IGNORE] * len(key) + (list(value_of[key]) if is_known else [IGNORE] * len(value))
        expected[-len(value) :] = value
        roles[-len(key) - len(value) :] = ["probe key"] * len(key) + ["probe value"] * len(value)
        unknowable = () if is_known else range(self.seq_len - len(value), self.seq_len)
        return Reading(roles[:-1], (tokens if training else expected)[1:], problems, frozenset(unknowable))

    def knowable(self, test: Examples, train: Callable[[], Examples]) -> np.ndarray:
        known = test.targets != IGNORE
        for row, (inputs, targets) in enumerate(zip(test.inputs.tolist(), test.targets.tolist())):
            known[row, list(self.read(inputs, targets, training=False).unknowable)] = False
        return known


def _order_of_pairs(pair_len: np.ndarray, first: np.ndarray, insertion: np.ndarray) -> np.ndarray:
    """Columns of the pairs in the order they are appended, (N, M + 1): the probe (0) put in, and again at the end.

    The probe goes before the first drawn pair that would start at or past ``insertion`` (N, 1), unless a pair
    before that place has the probe's key already.
    """
    num_pairs = pair_len.shape[1]
    drawn_len = pair_len[:, 1:]
    earlier = np.cumsum(drawn_len, axis=1) - drawn_len < insertion
    place = earlier.sum(axis=1, keepdims=True)
    place[(earlier & (first[:, 1:] == 0)).any(axis=1)] = num_pairs
    column = np.arange(num_pairs)
    order = np.zeros((len(first), num_pairs + 1), np.intp)
    order[:, :-1] = np.where(column == place, 0, column + (column < place))
    # Without an insertion the last column would be a pair more than were drawn; the sequence is full before it.
    np.minimum(order, num_pairs - 1, out=order)
    return order


def _is_shown_before(order: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Whether the key of each pair stands earlier in ``order``.

    Always true of the closing probe: its key is in ``order`` once before, be it past the last append.
    """
    is_probe = first == 0
    return np.where(is_probe, np.cumsum(is_probe, axis=1) > 1, first < order)
