"""The language suite: a GPT-2-shaped model trained by the nanoGPT recipe on a corpus (HyperMLP appendices K to M)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from madbench.config import PRESETS, check_at_least, check_numbers, from_mapping
from madbench.errors import ConfigError
from madbench.jobs import NOT_AT_DEFAULT, Budget, Job, Precision
from madbench.mixers import solve
from madbench.suites.base import Profile, Size, Suite, plan_jobs
from madbench.suites.mad import ModelConfig
from madbench.suites.overrides import Plan, content, decided

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

NAME = "language"
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
    """Blocks; a block is one mixer and one MLP."""
    seq_len: int = 1024
    """Tokens of context, in training and evaluation; the tables of R(1) and R(2) are as long."""
    positions: Literal["none", "learned"] = "none"
    """A learned vector for every position as in GPT-2, or positions from the mixer alone as in the paper."""
    mlp: Literal["gelu", "swiglu"] = field(default="gelu", metadata=NOT_AT_DEFAULT)
    """GPT-2's MLP, or MAD's."""
    output: Literal["tied", "untied"] = field(default="tied", metadata=NOT_AT_DEFAULT)
    """Whether the output shares the embedding's weights."""

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 1, "seq_len")


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
        check_at_least(self, 1, "steps", "tokens_per_step", "eval_every", "eval_sequences")
        check_at_least(self, 0, "warmup_steps")
        check_numbers(self, "learning_rate", "min_learning_rate", "weight_decay", "beta1", "beta2", "grad_clip")
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise ConfigError(f"{name} must be a number from 0 to below 1, got {getattr(self, name)}")
        if self.steps % self.eval_every:
            raise ConfigError(f"steps {self.steps} must be a multiple of eval_every {self.eval_every}")

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta1, self.beta2


@dataclass(frozen=True, kw_only=True)
class LanguageProfile(Profile):
    """A preset: the size, the schedule and the usual corpus of a language model."""

    folder = PRESETS
    noun = "preset"
    Model = GPTConfig
    Training = LanguageTraining

    corpus: Literal["stdlib", ""] = ""
    """The corpus when none is named: Python's standard library in bytes, or none."""

    def __post_init__(self):
        super().__post_init__()
        tokens, seq_len = self.training_config("float32").tokens_per_step, self.model_config().seq_len
        if tokens % seq_len:
            raise ConfigError(f"tokens_per_step {tokens} must be a multiple of seq_len {seq_len}")

    def training_config(self, precision: Precision) -> LanguageTraining:
        """The optimiser run of a job."""
        return from_mapping(LanguageTraining, {**self.training, "precision": precision}, "training")


def plan(
    labels: Iterable[str],
    profile: LanguageProfile,
    *,
    corpus: Corpus,
    seeds: Sequence[int] = (0,),
    budget: Budget = "strict",
    precision: Precision = "float32",
) -> Plan:
    """The jobs in the order label, seed, none twice. Raises ``BudgetError`` for a label that has no ranks."""
    setting = {"corpus": corpus.digest, "vocab_size": corpus.padded_vocab_size}

    def planned(profile: LanguageProfile, labels: Sequence[str]) -> list[Job]:
        run = (TASK, setting, profile.model_config().seq_len, profile.training_config(precision), "")
        return plan_jobs(NAME, labels, profile, [run], budget)

    return decided(profile, labels, seeds, planned, trained)


def jobs(labels: Iterable[str], profile: LanguageProfile, **how: Any) -> list[Job]:
    """The jobs of :func:`plan`; raises ``ConfigError`` for an override that decides nothing about any of them too."""
    return plan(labels, profile, **how).checked()


def trained(job: Job) -> Hashable:
    """What a job trains but for the seed; of a schedule the rates that tell it from any other."""
    model, config = job.model, job.training
    rates = [scheduled_rate(config, step) for step in (0, min(1, config.steps - 1), config.steps - 1)]
    changes = {"warmup_steps": rates, "min_learning_rate": None, "mlp_width": mlp_width(model)}
    return content(job, model.d_model, model.seq_len, changes)


def scheduled_rate(config: LanguageTraining, step: int) -> float:
    """Linear over the warm-up, then a cosine to the minimum; ``step`` counts the steps already taken."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    progress = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * cosine


def mlp_width(model: GPTConfig) -> int:
    """The inner width of the MLPs."""
    from madbench.models.blocks import swiglu_width

    is_swiglu = model.mlp == "swiglu"
    return swiglu_width(model.d_model, model.mlp_width) if is_swiglu else model.mlp_width or 4 * model.d_model


def sequences_per_step(job: Job) -> int:
    """Windows of one optimiser step."""
    return job.training.tokens_per_step // job.model.seq_len


def check_windows(corpus: Corpus, seq_len: int) -> None:
    """Raises ``ConfigError`` for a corpus with a split that has no window, in which nothing could be trained."""
    counts = {split: info.tokens for split, info in corpus.manifest.splits.items()}
    shorter = min(counts, key=counts.__getitem__)
    try:
        window_count(shorter, counts[shorter], seq_len)
    except ConfigError as error:
        share = 2 * (seq_len + 1) / sum(counts.values())
        resplit = f", or with --validation {share:.2g}" if shorter == "val" and share < 0.5 else ""
        raise ConfigError(f"corpus {str(corpus.folder)!r}: {error}{resplit}") from None


def window_count(split: str, n_tokens: int, seq_len: int) -> int:
    """Windows of ``seq_len`` tokens, each with the token after it, in a split; ``ConfigError`` where there is none."""
    if n_tokens <= seq_len:
        shorter = f"take a seq_len of at most {n_tokens - 1}, or " if n_tokens > 1 else ""
        raise ConfigError(
            f"the {split} split has {n_tokens} tokens; seq_len {seq_len} needs at least {seq_len + 1}: "
            f"{shorter}prepare the corpus again from more text"
        )
    return n_tokens - seq_len


def size(job: Job) -> Size:
    """``n_layer`` (mixer + 4 d ``mlp_width``) + 2 d ``vocab_size`` FLOPs a token; of a SwiGLU 6 d ``mlp_width``."""
    model, config, vocab_size = job.model, job.training, job.setting["vocab_size"]
    d_model, seq_len = model.d_model, model.seq_len
    mixer = solve(job.label, d_model, model.n_head, seq_len, job.budget, **job.mixer)
    mlp = (3 if model.mlp == "swiglu" else 2) * d_model * mlp_width(model)
    rows = vocab_size * (2 if model.output == "untied" else 1) + seq_len * (model.positions == "learned")
    return Size(
        parameters=rows * d_model + model.n_layer * (mixer.total + mlp + 2 * d_model) + d_model,
        steps=config.steps,
        seq_len=seq_len,
        sequences_per_step=sequences_per_step(job),
        flops_per_token=model.n_layer * (mixer.flops_per_token(seq_len) + 2 * mlp) + 2 * d_model * vocab_size,
        trained_tokens=config.steps * config.tokens_per_step,
        evaluated_tokens=config.steps // config.eval_every * 2 * config.eval_sequences * seq_len,
    )


LANGUAGE = Suite(
    name=NAME,
    Profile=LanguageProfile,
    trial="madbench.suites.language_trial:LanguageTrial",
    tasks=lambda: (TASK,),
    plan=plan,
    trained=trained,
    size=size,
    uses_all_cores=True,
)
