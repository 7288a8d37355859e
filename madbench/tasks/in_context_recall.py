"""The tasks in-context recall and noisy in-context recall: the target is the value of a key that was shown before.

Each sequence has pairs of a key and a value. Within a sequence, the value of a key is fixed. In noisy in-context
recall, noise replaces some pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from madbench.errors import ConfigError
from madbench.tasks.base import IGNORE, CheckedExample, TaskSetting


@dataclass(frozen=True)
class InContextRecall(TaskSetting):
    """In-context recall: T / 2 pairs of a key and a value, with T = ``seq_len``. The last pair repeats a key.

    Of the A ids that are not noise, the keys are 0..A//2-1 and the values A//2..A-1. Every pair but the last has a
    uniform key. Two keys may have the same value. The key of the last pair is uniform among the distinct keys shown
    before. Training targets are all next tokens. Evaluation targets are the values of keys that were shown before. An
    input has T - 1 positions: all tokens but the last.
    """

    heading, title = "In-ctx recall", "in-context recall"
    roles: ClassVar = {"key": "k", "value": "v", "probe key": "K", "probe value": "V"}

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = f", {self.num_noise_ids} noise ids" if self.num_noise_ids else ""
        self.require("vocab_size", 4 + self.num_noise_ids, f"two keys, two values{noise}")
        self.require("seq_len", 4, "pairs of a key and a value", is_even=True)

    @property
    def num_noise_ids(self) -> int:
        """The number of noise ids, which are the highest ids of the vocabulary. They are neither keys nor values."""
        return 0

    @property
    def num_keys(self) -> int:
        """The number n of key ids, which are 0..n-1. Value ids begin at n."""
        return (self.vocab_size - self.num_noise_ids) // 2

    @property
    def input_len(self) -> int:
        return self.seq_len - 1

    @property
    def num_answers(self) -> int:
        return self.vocab_size - self.num_noise_ids - self.num_keys

    def draw_noise(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw which pairs of ``count`` sequences are replaced by noise. Return a mask, bool (count, seq_len / 2)."""
        return np.zeros((count, self.seq_len // 2), bool)

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        num_keys, used, num_pairs = self.num_keys, self.vocab_size - self.num_noise_ids, self.seq_len // 2
        rows = np.arange(count)[:, None]
        noise = self.draw_noise(rng, count)
        keys = rng.integers(num_keys, size=(count, num_pairs), dtype=np.int32)
        value_of = rng.integers(num_keys, used, size=(count, num_keys), dtype=np.int32)

        num_shown: np.ndarray = np.zeros((count, num_keys + 1), bool)
        num_shown[rows, np.where(noise, num_keys, keys)[:, :-1]] = True
        num_shown = np.cumsum(num_shown[:, :num_keys], axis=1)
        keys[:, -1] = np.argmax(num_shown > rng.integers(num_shown[:, -1:]), axis=1)

        tokens = np.stack([keys, value_of[rows, keys]], axis=2)
        if self.num_noise_ids:
            tokens[noise] = rng.integers(used, self.vocab_size, size=(np.count_nonzero(noise), 2), dtype=np.int32)
        targets = tokens
        if not training:
            is_repeated = first_occurrence(np.where(noise, num_keys, keys)) < np.arange(num_pairs)
            targets = np.full_like(tokens, IGNORE)
            targets[..., 1] = np.where(is_repeated & ~noise, tokens[..., 1], IGNORE)
        return tokens.reshape(count, -1)[:, :-1], targets.reshape(count, -1)[:, 1:]

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        tokens = [*inputs, targets[-1]]
        num_keys, used = self.num_keys, self.vocab_size - self.num_noise_ids
        value_of: dict[int, int] = {}
        roles, expected, problems = [], [], []
        for position in range(0, self.seq_len, 2):
            key, value = tokens[position : position + 2]
            asked = IGNORE
            if key >= used and value >= used:
                roles += ["noise", "noise"]
            else:
                roles += ["key", "value"]
                if not 0 <= key < num_keys or not num_keys <= value < used:
                    problems.append(f"position {position}: {key} {value} is neither a pair nor noise")
                if value_of.get(key, value) != value:
                    problems.append(f"position {position}: key {key} had the value {value_of[key]}, now {value}")
                asked = value_of.get(key, IGNORE)
                value_of.setdefault(key, value)
            expected += [asked, IGNORE]
        if roles[-1] == "noise" or asked == IGNORE:
            problems.append("the last pair was not shown before")
        if roles[-2] == "key":
            roles[-2:] = ["probe key", "probe value"]
        return CheckedExample(roles[:-1], tokens[1:] if training else expected[:-1], problems)


@dataclass(frozen=True)
class NoisyInContextRecall(InContextRecall):
    """In-context recall in which two independent uniform noise ids replace each pair with probability ``frac_noise``.

    One uniformly drawn pair is kept free of noise, and the last pair is never noise. If all pairs but the last are
    noise, there is no key to repeat, and the noise is drawn again. Evaluation targets are never noise. Training targets
    are all next tokens, including noise.
    """

    heading, title = "Noisy recall", "noisy recall"
    roles = InContextRecall.roles | {"noise": "n"}

    noise_vocab_size: int
    """Number of noise ids. They are at the top of the vocabulary and counted in vocab_size."""
    frac_noise: float
    """Probability that a pair is noise."""

    def __post_init__(self) -> None:
        self.require("noise_vocab_size", 1)
        super().__post_init__()
        if not 0 < self.frac_noise <= 1:
            wanted = "above 0 (else use in_context_recall) and at most 1"
            raise ConfigError(f"frac_noise must be {wanted}, got {self.frac_noise}")

    @property
    def num_noise_ids(self) -> int:
        return self.noise_vocab_size

    def draw_noise(self, rng: np.random.Generator, count: int) -> np.ndarray:
        noise = rng.random((count, self.seq_len // 2)) < self.frac_noise
        noise[np.arange(count), rng.integers(noise.shape[1], size=count)] = False
        noise[:, -1] = False
        empty = noise[:, :-1].all(axis=1)
        if empty.any():
            noise[empty] = self.draw_noise(rng, int(np.count_nonzero(empty)))
        return noise


def first_occurrence(codes: np.ndarray) -> np.ndarray:
    """For each entry of ``codes`` (N, M), the first column of the same row with an equal code. Integers (N, M)."""
    places: np.ndarray = (codes[:, :, None] == codes[:, None, :]).argmax(axis=2)
    return places
