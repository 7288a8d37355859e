"""Noisy in-context recall: in-context recall with noise in place of some pairs."""

from dataclasses import dataclass

import numpy as np

from madbench.errors import ConfigError
from madbench.tasks.in_context_recall import InContextRecall


@dataclass(frozen=True)
class NoisyInContextRecall(InContextRecall):
    """In-context recall in which a pair is, with some probability, two independent uniform noise ids instead.

    One pair slot, uniform among all, is kept free of noise, and the last pair is never noise. Where the slot is the
    last and all others are noise, no key is left to ask for and the noise is drawn again. Evaluation never asks for
    noise; training asks for every next token, noise included.
    """

    heading, title, published_column = "Noisy recall", "noisy recall", "noisy_in_context_recall"
    roles = InContextRecall.roles | {"noise": "n"}

    noise_vocab_size: int
    """Noise ids, at the top of the vocabulary and counted in vocab_size."""
    frac_noise: float
    """Probability that a pair is noise."""

    def __post_init__(self):
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
            noise[empty] = self.draw_noise(rng, np.count_nonzero(empty))
        return noise
