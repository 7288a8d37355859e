"""The language suite: a model of GPT-2's shape, trained on a corpus by the recipe of nanoGPT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from madbench.config import TASKS, Override, check_at_least, check_numbers, from_mapping
from madbench.details import Details
from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity, Job, Precision
from madbench.labels.budgets import BUDGETS
from madbench.models.shapes import GPTConfig
from madbench.suites.base import JobSize, Suite
from madbench.suites.columns import Column, ShownMetric
from madbench.suites.compute import with_steps
from madbench.suites.corpora import CorpusSource, NoCorpusError, StoredCorpus
from madbench.suites.language.columns import COLUMNS, LOSS, LOSSES, STEPS, steps_column, steps_name
from madbench.suites.overrides import Plan, canonical_job, drop_ineffective_overrides
from madbench.suites.planning import PlannedRun, plan_jobs, solve_mixers
from madbench.suites.profile import Profile, changed_overrides
from madbench.suites.protocol import changed_settings
from madbench.suites.training import Schedule, Training

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

NAME = "language"
PUBLISHED_VOCABULARY = 50304
"""The size of GPT-2's vocabulary, padded as in the paper's runs."""
TASK = "language_model"


@dataclass(frozen=True, kw_only=True)
class LanguageTraining(Training):
    """The training settings of the recipe of nanoGPT. The defaults are those of the shipped profile ``gpt2``."""

    recorded = (
        "steps", "tokens_per_step", "learning_rate", "min_learning_rate", "lr_decay_steps", "warmup_steps",
        "weight_decay", "beta1", "beta2", "grad_clip", "eval_every", "eval_sequences", "precision",
    )  # fmt: skip

    learning_rate: float = 6e-4
    """Peak step size, reached after the warm-up."""
    weight_decay: float = 0.1
    """Decoupled weight decay on linear maps; biases, norm gains and the diagonals p of R(1), R(2) do not decay."""
    warmup_steps: int = 2000
    """Steps in which the learning rate rises linearly from zero."""
    min_learning_rate: float = 6e-5
    """The learning rate at the end of the cosine."""
    beta1: float = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: float = 0.95
    """AdamW's decay of the mean squared gradient."""
    steps: int = 40_000
    """Optimizer steps."""
    tokens_per_step: int = 491_520
    """Tokens of one optimizer step, a multiple of seq_len, however many devices share them."""
    grad_clip: float = 1.0
    """Largest norm of the whole gradient; longer gradients are scaled down to it. 0: no clipping."""
    eval_every: int = 500
    """Steps between two evaluations."""
    eval_sequences: int = 2400
    """Windows of seq_len tokens in one evaluation of each split. 2,400 are nanoGPT's 200 batches of 12."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "steps", "tokens_per_step", "eval_every", "eval_sequences")
        check_numbers(self, "grad_clip")
        if self.steps % self.eval_every:
            raise ConfigError(f"steps {self.steps} must be a multiple of eval_every {self.eval_every}")


LanguageJob: TypeAlias = Job[GPTConfig, LanguageTraining]
"""A job of the language suite."""


@dataclass(frozen=True, kw_only=True)
class LanguageProfile(Profile[GPTConfig]):
    """A profile of the language suite: the model's size, its training settings and its default corpus."""

    folder = TASKS / NAME
    suite_name = NAME
    noun = "profile"
    Model = GPTConfig
    Training = LanguageTraining

    corpus: Literal["stdlib", ""] = ""
    """The default corpus: Python's standard library in bytes. Empty: a corpus must be named."""
    vocab_size: int = 0
    """Number of token ids of the intended corpus. A plan uses it for counting if no corpus is given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "vocab_size")
        tokens, seq_len = self.training_config("float32").tokens_per_step, self.model_config().seq_len
        if tokens % seq_len:
            raise ConfigError(f"tokens_per_step {tokens} must be a multiple of seq_len {seq_len}")

    def training_config(self, precision: Precision) -> LanguageTraining:
        """The training settings of every job of the profile, with the given precision."""
        return from_mapping(LanguageTraining, {**self.training, "precision": precision}, "training")

    def training_changes(self, job: Job) -> list[Override]:
        return changed_overrides("training", vars(job.training), vars(self.training_config(job.training.precision)))


def sequences_per_step(job: LanguageJob) -> int:
    """The number of windows of ``seq_len`` tokens in one optimizer step of a job."""
    return job.training.tokens_per_step // job.model.seq_len


def check_windows(corpus: Corpus, seq_len: int) -> None:
    """Raise ``ConfigError`` if a split of the corpus is too short for one window of ``seq_len`` tokens."""
    from madbench.text.corpus import window_count

    counts = {split: info.tokens for split, info in corpus.manifest.splits.items()}
    shorter = min(counts, key=counts.__getitem__)
    try:
        window_count(shorter, counts[shorter], seq_len)
    except ConfigError as error:
        share = 2 * (seq_len + 1) / sum(counts.values())
        resplit = f", or with --validation {share:.2g}" if shorter == "val" and share < 0.5 else ""
        raise ConfigError(f"corpus {str(corpus.folder)!r}: {error}{resplit}") from None


class LanguageSuite(Suite[LanguageProfile, LanguageJob]):
    """The suite of language models. It has one task, whose results are shown in several columns."""

    name = NAME
    title = "Language model"
    Profile = LanguageProfile
    default = "tiny"
    trial = "madbench.suites.language.trial:LanguageTrial"
    scoring = "madbench.suites.language.scores:LanguageScoring"
    override_name = TASK
    short_name = "lm"
    profiles_note = "tokens: for one label and one seed"
    shown_metric = ShownMetric(LOSS, "{:.3f}", "loss {:.3f}")
    claimed_columns = ("steps_to_3.1",)
    sort_order = 1
    file_key = "training"
    measure = "loss in nats per token"
    data_package = "madbench.text"
    logged = ("step", "tokens")
    keeps_weights = True
    uses_all_cores = True
    figures = {"loss": "madbench.analysis.figures.registry:LOSS"}
    budgets = tuple(BUDGETS)

    def plan(  # type: ignore[override]  # needs a corpus, which other suites do not take
        self,
        labels: Iterable[str],
        profile: LanguageProfile,
        *,
        corpus: Corpus | StoredCorpus,
        seeds: Sequence[int] = (0,),
        tasks: Iterable[str] | None = None,
        fidelity: Fidelity = "corrected",
        budget: Budget = "strict",
        precision: Precision = "float32",
    ) -> Plan[LanguageJob]:
        """Plan jobs of the language suite in the order label, seed, without duplicates.

        Raises ``BudgetError`` if no ranks of a label meet the budget. ``tasks`` and ``fidelity`` have no effect,
        because the suite has one task and one fidelity.
        """
        setting = {"corpus": corpus.digest, "vocab_size": corpus.padded_vocab_size}

        def planned(profile: LanguageProfile, labels: Sequence[str]) -> list[LanguageJob]:
            run = PlannedRun(TASK, setting, profile.model_config().seq_len, profile.training_config(precision))
            return with_steps(plan_jobs(NAME, labels, profile, [run], budget), self.size)

        return drop_ineffective_overrides(profile, labels, seeds, planned, self.canonical)

    def canonical(self, job: LanguageJob) -> LanguageJob:
        """The canonical form of a job. See :meth:`madbench.suites.base.Suite.canonical`."""
        model = replace(job.model, mlp_width=job.model.inner_width)
        training = job.training.canonical(lambda training: self.schedule(replace(job, training=training)))
        return canonical_job(job, model.d_model, model.seq_len, model=model, training=training)

    def schedule(self, job: LanguageJob) -> Schedule:
        """The learning-rate schedule of a job."""
        return job.training.schedule(job.training.steps, matched=job.steps)

    def size(self, job: LanguageJob) -> JobSize:
        """The size of a job: its parameters, steps, tokens and FLOPs."""
        config, seq_len = job.training, job.model.seq_len
        mixers, steps = solve_mixers(job, seq_len), self.schedule(job).steps
        cost = job.model.cost(mixers, job.setting["vocab_size"])
        return JobSize(
            parameters=cost.parameters,
            steps=steps,
            seq_len=seq_len,
            sequences_per_step=sequences_per_step(job),
            flops_per_token=cost.flops_per_token,
            trained_tokens=steps * config.tokens_per_step,
            evaluated_tokens=math.ceil(steps / config.eval_every) * 2 * config.eval_sequences * seq_len,
            mixers=mixers,
        )

    def check_processes(self, job: LanguageJob, processes: int) -> None:
        """Raise ``ConfigError`` if the number of processes does not divide the number of windows in a step."""
        if (count := sequences_per_step(job)) % processes:
            raise ConfigError(
                f"{processes} processes cannot share the {count} windows of a step evenly; start a number of them that "
                "divides it, or change training.tokens_per_step"
            )

    def tasks(self) -> Sequence[str]:
        return (TASK,)

    def column(self, name: str) -> Column | None:
        """The column of a loss, a perplexity, the steps to a loss, or the speed, by its name. None for another name."""
        return steps_column(name) if name.startswith(STEPS) else COLUMNS.get(name)

    def columns(self, tasks: Iterable[str]) -> list[Column]:
        return [COLUMNS[name] for name in LOSSES] if TASK in tasks else []

    def threshold_columns(self, thresholds: Iterable[float]) -> list[str]:
        return [steps_name(threshold) for threshold in thresholds]

    def order(self) -> list[str]:
        return list(LOSSES)

    def headline(self, tasks: Sequence[str]) -> tuple[str, ...]:
        return (LOSS,)

    def profile_of(self, job: LanguageJob, name: str, changes: Sequence[Override]) -> LanguageProfile:
        is_published = job.setting["vocab_size"] == PUBLISHED_VOCABULARY and not changes
        nearest = self.shipped().get(name)
        shipped = nearest if is_published else None
        return LanguageProfile(
            description="",
            comparable_with_paper=shipped is not None and shipped.comparable_with_paper,
            chosen_on=nearest.chosen_on if nearest else "",
            precision=job.training.precision,
            model=vars(job.model) | changed_settings(job),
            training={key: value for key, value in vars(job.training).items() if key != "precision"},
        )

    def shared_settings(self, job: LanguageJob) -> dict[str, Any]:
        return {name: getattr(job, name) for name in ("setting", "model", "training", "budget")}

    def about_task(self, task: str) -> str:
        return "Predict the next token of a text at every position."

    def about_profile(self, profile: LanguageProfile) -> dict[str, Any]:
        tokens = profile.training["steps"] * profile.training["tokens_per_step"]
        return {"tokens": tokens, "corpus": profile.corpus or "give --corpus"}

    def lacks_corpus(self, profile: LanguageProfile) -> bool:
        return not profile.corpus

    def corpus_for(self, profile: LanguageProfile, source: CorpusSource) -> Corpus:
        if source.is_named or profile.corpus:
            check_windows(source.opened, profile.model_config().seq_len)
            return source.opened
        if profile.vocab_size and (counted := source.imagined(profile.vocab_size, f"{profile.noun} {profile.source}")):
            return counted
        raise NoCorpusError(
            f"{profile.noun} {profile.source} has no corpus of its own: give --corpus FOLDER, made by madbench lm "
            "prepare, or with nanoGPT's train.bin and val.bin"
        )

    def corpus_of(self, job: LanguageJob, details: Details | None = None) -> StoredCorpus:
        return StoredCorpus.from_job(job, details or {})

    def check_job(self, job: LanguageJob, where: str) -> None:
        digest, size = job.setting.get("corpus"), job.setting.get("vocab_size")
        if type(digest) is not str or type(size) is not int or size < 2:
            raise ConfigError(f"{where}: setting: expected a corpus as text and a vocab_size of at least 2")

    def runs_per_label(self, profile: LanguageProfile) -> int:
        return len(self.tasks())

    def check_profile(self, profile: LanguageProfile) -> tuple[str, set[int]]:
        training = profile.training_config("float32")
        return f"{training.steps:,} steps of {training.tokens_per_step:,} tokens", {profile.model_config().seq_len}


SUITE = LANGUAGE = LanguageSuite()
