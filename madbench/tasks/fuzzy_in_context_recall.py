"""The task fuzzy in-context recall: in-context recall with keys and values of several tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from madbench.errors import ConfigError
from madbench.tasks.base import IGNORE, CheckedExample, Examples, Split, TaskSetting
from madbench.tasks.in_context_recall import InContextRecall, first_occurrence


@dataclass(frozen=True)
class FuzzyInContextRecall(TaskSetting):
    """Fuzzy in-context recall: a sequence of keys and values, in which a repeated key has its earlier value again.

    Each key and each value has one or more tokens, and is called a motif. The last pair of a key and a value is the
    probe. The probe also stands at a random earlier place. T is ``seq_len`` and V is ``vocab_size``.

    The id V-1 is padding. The first half of the other ids are key ids, and the second half are value ids. A motif of
    size s is a uniform ordered choice of s distinct ids. Sizes are uniform from 1 to ``max_key_size`` or
    ``max_value_size``, except that keys of an evaluation always have ``max_key_size`` tokens.

    A sequence of T + 1 tokens is drawn in these steps:

    1. The probe is drawn, with k tokens of the key and v of the value. The insertion point, a number of tokens, is
       drawn uniformly from 0..T-2(k+v)-1.
    2. Random pairs are appended while the length is below T - (k + v) - (``max_key_size`` + ``max_value_size``). A pair
       with a repeated key gets the value that the key had first, or the probe's value if it has the probe's key.
    3. The probe is inserted before the first pair that would start at or after the insertion point. It is not inserted
       if an earlier pair has its key, or if all pairs start before the insertion point. The second case happens in
       about 2.4% of evaluation sequences with the baseline setting. They show the probe only at the end.
    4. The probe is appended, and the sequence is padded on the left.

    The input has the first T tokens, and the targets are the last T tokens. In training all of them count, including
    padding. In an evaluation only the tokens of values whose key was shown before count, and those of the probe's value
    at the end.
    """

    heading, title = "Fuzzy recall", "fuzzy recall"
    roles = InContextRecall.roles | {"pad": "_"}

    max_key_size: int
    """Tokens of the longest key; every key of an evaluation sequence has this size."""
    max_value_size: int
    """Tokens of the longest value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_key_size", 1)
        self.require("max_value_size", 1)
        fewest = max(2 * self.max_key_size, 2 * self.max_value_size - 1) + 1
        sizes = f"motifs of {self.max_key_size} and {self.max_value_size} distinct ids"
        self.require("vocab_size", fewest, f"{sizes}, and the padding id")
        largest = self.max_key_size + self.max_value_size
        self.require("seq_len", 2 * largest + 1, f"pairs of up to {largest} tokens")
        if (self.num_key_ids + 1) ** self.max_key_size >= 1 << 40:
            raise ConfigError(f"max_key_size {self.max_key_size} with vocab_size {self.vocab_size}: over 2^40 keys")

    @property
    def num_key_ids(self) -> int:
        """The number n of key ids, which are 0..n-1. All other ids except padding are value ids."""
        return (self.vocab_size - 1) // 2

    @property
    def num_answers(self) -> int:
        return self.vocab_size - 1 - self.num_key_ids

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``count`` examples from ``rng``. Return inputs and targets, int32 (count, ``seq_len``).

        More pairs are drawn than fit into a sequence. They are put in order, and pairs that do not fit are left out.
        Positions without a target have the target ``IGNORE``.
        """
        max_key, max_value = self.max_key_size, self.max_value_size
        # Column 0 is the probe. The other columns fill a sequence even with the shortest pairs.
        shape = (count, 1 + -(-self.seq_len // (2 if training else 1 + max_key)))
        keys = distinct_ids(rng, self.num_key_ids, shape, max_key)
        values: np.ndarray = distinct_ids(rng, self.num_answers, shape, max_value) + self.num_key_ids
        key_size: np.ndarray = np.full(shape, max_key, np.int32)
        if training:
            key_size = rng.integers(1, max_key, size=shape, dtype=np.int32, endpoint=True)
        value_size = rng.integers(1, max_value, size=shape, dtype=np.int32, endpoint=True)
        probe_len = (key_size + value_size)[:, :1]
        insertion = rng.integers(self.seq_len - 2 * probe_len)

        digits = np.where(np.arange(max_key) < key_size[..., None], keys + 1, 0)
        weights: np.ndarray = (self.num_key_ids + 1) ** np.arange(max_key)
        first = first_occurrence((digits * weights).sum(axis=2))
        pair_len = key_size + np.take_along_axis(value_size, first, axis=1)

        rows = np.arange(count)[:, None]
        order = _order_of_pairs(pair_len, first, insertion)
        first, pair_len = first[rows, order], pair_len[rows, order]
        appended = np.cumsum(pair_len, axis=1) - pair_len < self.seq_len - probe_len - (max_key + max_value)
        appended[:, -1] = True

        pairs = np.concatenate([keys[rows, order], values[rows, first]], axis=2)
        in_key = np.arange(max_key) < key_size[rows, order][..., None]
        in_value = np.arange(max_value) < value_size[rows, first][..., None]
        present = np.concatenate([in_key, in_value], axis=2) & appended[..., None]

        # Both sides list tokens row by row, so each token lands after the padding of its own row.
        filled = np.arange(self.seq_len, -1, -1) < present.sum(axis=(1, 2))[:, None]
        tokens = np.full(filled.shape, self.vocab_size - 1, np.int32)
        tokens[filled] = pairs[present]
        targets = tokens
        if not training:
            # The closing probe counts as shown before, even if its insertion point is past the last append.
            is_probe = first == 0
            is_shown = np.where(is_probe, np.cumsum(is_probe, axis=1) > 1, first < order)
            pairs[~is_shown] = pairs[..., :max_key] = IGNORE
            targets = np.full_like(tokens, IGNORE)
            targets[filled] = pairs[present]
        return tokens[:, :-1], targets[:, 1:]

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        """Compute the answers of one example again (:meth:`madbench.tasks.base.TaskSetting.read`).

        Adjacent key ids are one key, and adjacent value ids are one value. Reported faults are wrong padding, keys and
        values that do not alternate, a key or value that repeats an id or has a wrong size, and a key with two values.
        """
        tokens = [*inputs, targets[-1]]
        roles = ["pad" if t == self.vocab_size - 1 else "key" if t < self.num_key_ids else "value" for t in tokens]
        runs = [(role, tuple(t for _, t in run)) for role, run in groupby(zip(roles, tokens), lambda pair: pair[0])]
        problems = []
        padding = runs.pop(0)[1] if runs[0][0] == "pad" else ()
        if not 2 <= len(padding) <= self.max_key_size + self.max_value_size + 1:
            problems.append(f"{len(padding)} padding tokens")
        if not runs or [role for role, _ in runs] != ["key", "value"] * (len(runs) // 2):
            return CheckedExample(
                roles[:-1], tokens[1:], [*problems, "keys and values do not alternate after the padding"]
            )

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
        return CheckedExample(
            roles[:-1], (tokens if training else expected)[1:], problems, 0 if is_known else len(value)
        )

    def ceiling(self, examples: Callable[[Split], Examples]) -> float:
        test = examples("test")
        rows = zip(test.inputs.tolist(), test.targets.tolist())
        missed = sum(self.read(inputs, targets, training=False).num_unknowable for inputs, targets in rows)
        asked = (test.targets != IGNORE).sum()
        return float((asked - missed) / asked)


def _order_of_pairs(pair_len: np.ndarray, first: np.ndarray, insertion: np.ndarray) -> np.ndarray:
    """The order in which the M pairs of each of N sequences are appended: column indices (N, M + 1).

    Column 0 is the probe, and the other M - 1 columns are the random pairs. The probe is appended last, and is also
    inserted before the first pair that would start at or after ``insertion``. It is not inserted if an earlier pair has
    the probe's key. The last entry but one then repeats the last column. The sequence has no room for this entry.

    Args:
        pair_len: number of tokens of each pair (N, M).
        first: first column with the same key, for each pair (N, M).
        insertion: insertion point in tokens (N, 1).
    """
    num_pairs = pair_len.shape[1]
    drawn_len = pair_len[:, 1:]
    earlier = np.cumsum(drawn_len, axis=1) - drawn_len < insertion
    place = earlier.sum(axis=1, keepdims=True)
    place[(earlier & (first[:, 1:] == 0)).any(axis=1)] = num_pairs
    column = np.arange(num_pairs)
    order = np.zeros((len(first), num_pairs + 1), np.intp)
    order[:, :-1] = np.where(column == place, 0, column + (column < place))
    # Without an insertion the last column is one more pair than was drawn; the sequence is full before it.
    np.minimum(order, num_pairs - 1, out=order)
    return order


def distinct_ids(rng: np.random.Generator, n: int, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Draw ordered choices of ``size`` distinct ids out of 0..n-1, all equally likely.

    The result is int32 (*shape, size). For place j, a rank among the n - j ids that are not chosen yet is drawn. To
    convert it to an id, the chosen ids are visited in ascending order, and one is added for each that is not larger
    than the number so far.
    """
    chosen: np.ndarray = np.empty((*shape, size), np.int32)
    for j in range(size):
        ids = rng.integers(n - j, size=shape, dtype=np.int32)
        taken = np.sort(chosen[..., :j], axis=-1)
        for i in range(j):
            ids += ids >= taken[..., i]
        chosen[..., j] = ids
    return chosen
