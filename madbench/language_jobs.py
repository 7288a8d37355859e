"""LanguageJob: everything that decides the numbers of one language-model run, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from madbench.errors import ConfigError
from madbench.jobs import Counting, JobBase, ModelConfig, Precision

TASK = "language_model"
LAST_EVALUATIONS = 5  # in L5


def loss_l5(train_losses: Sequence[float]) -> float:
    """L5: the mean of the last five training-batch evaluations, of all where there are fewer; NaN for none."""
    last = train_losses[-LAST_EVALUATIONS:]
    return sum(last) / len(last) if last else math.nan


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """Shape of the GPT-2 model around the mixer; the defaults are the paper's, GPT-2 small with two heads."""

    d_model: int = 768
    """Width of the residual stream."""
    n_layer: int = 12
    """Blocks; a block is one mixer and one MLP of inner width 4 d_model."""
    seq_len: int = 1024
    """Tokens of context, in training and evaluation; the tables of R(1) and R(2) are as long."""
    positions: Literal["none", "learned"] = "none"
    """A learned vector for every position as in GPT-2, or positions from the mixer alone as in the paper."""

    def __post_init__(self):
        super().__post_init__()
        if self.seq_len < 1:
            raise ConfigError(f"seq_len must be at least 1, got {self.seq_len}")


@dataclass(frozen=True)
class LanguageTraining:
    """One run of the nanoGPT recipe: AdamW, linear warm-up, cosine decay; the defaults are the paper's."""

    steps: int = 40_000
    """Optimiser steps."""
    tokens_per_step: int = 491_520
    """Tokens of one optimiser step, a multiple of seq_len, however many devices share them."""
    learning_rate: float = 6e-4
    """Peak step size, reached after the warm-up."""
    min_learning_rate: float = 6e-5
    """Where the cosine ends, at the last step."""
    warmup_steps: int = 2000
    """Steps over which the rate rises linearly from zero."""
    weight_decay: float = 0.1
    """Decoupled weight decay on linear maps; biases, norm gains and the diagonals p of R(1), R(2) do not decay."""
    beta1: float = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: float = 0.95
    """AdamW's decay of the mean squared gradient."""
    grad_clip: float = 1.0
    """Largest norm of the whole gradient; longer ones are scaled down to it. 0 leaves them as they are."""
    eval_every: int = 500
    """Steps from one evaluation to the next."""
    eval_sequences: int = 2400
    """Windows of seq_len tokens in one evaluation of either split; 2,400 are nanoGPT's 200 batches of 12."""
    precision: Precision = "float32"
    """Arithmetic of matrix products; parameters and optimiser stay in float32."""

    def __post_init__(self):
        for name in ("steps", "tokens_per_step", "eval_every", "eval_sequences"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.warmup_steps < 0:
            raise ConfigError(f"warmup_steps must be at least 0, got {self.warmup_steps}")
        for name in ("learning_rate", "min_learning_rate", "weight_decay", "beta1", "beta2", "grad_clip"):
            limit = 1 if name.startswith("beta") else float("inf")
            if not 0 <= getattr(self, name) < limit:
                raise ConfigError(f"{name} must be a number from 0 to below {limit:g}, got {getattr(self, name)}")
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 are one job
        if self.steps % self.eval_every:
            raise ConfigError(f"steps {self.steps} must be a multiple of eval_every {self.eval_every}")


@dataclass(frozen=True)
class LanguageJob(JobBase):
    """One training run of one label on one corpus."""

    label: str
    """Canonical label of the mixer."""
    corpus: str
    """Digest of the prepared corpus: its tokens, split and tokeniser, whatever its name and place."""
    vocab_size: int
    """Rows of the token embedding: the tokeniser's vocabulary, rounded up to a multiple of 64."""
    model: GPTConfig = GPTConfig()
    """Model around the mixer."""
    training: LanguageTraining = LanguageTraining()
    """Optimiser run."""
    seed: int = 0
    """Decides initialisation and batches, each through a stream of its own."""
    counting: Counting = "strict"
    """What the parameter budget counts."""
    task: Literal["language_model"] = TASK
    """Always ``language_model``."""

    def __post_init__(self):
        if self.training.tokens_per_step % self.model.seq_len:
            raise ConfigError(
                f"tokens_per_step {self.training.tokens_per_step} must be a multiple of seq_len {self.model.seq_len}"
            )

    @property
    def sequences_per_step(self) -> int:
        """Windows of one optimiser step."""
        return self.training.tokens_per_step // self.model.seq_len
