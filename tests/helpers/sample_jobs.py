"""Jobs of the MAD and the language suite, with defaults for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from madbench.jobs import Budget, Fidelity, Job, Progress, Record
from madbench.labels import family_identity, family_of
from madbench.models.shapes import GPTConfig, ModelConfig
from madbench.suites.language.suite import LanguageTraining
from madbench.suites.tokens import TrainingConfig
from madbench.tasks import make_setting
from madbench.text.corpus import Corpus
from madbench.training.options import LoopOptions


def mixer_settings(label: str, **settings: Any) -> dict[str, Any]:
    """All settings of the mixer of ``label``: those in ``settings``, and the defaults of the family for the others."""
    return dataclasses.asdict(family_of(label).Settings(**settings))


def mad_job(
    label: str = "S",
    task: str = "compression",
    seed: int = 0,
    *,
    setting: dict[str, Any] | None = None,
    model: ModelConfig = ModelConfig(),
    mixer: dict[str, Any] | None = None,
    training: TrainingConfig = TrainingConfig(),
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
) -> Job:
    """A job of the MAD suite. ``setting`` and ``mixer`` are changes to the default settings of task and mixer."""
    whole = dataclasses.asdict(make_setting(task, setting or {}, "test"))
    mixer, family = mixer_settings(label, **(mixer or {})), family_identity(family_of(label))
    return Job("mad", task, label, family, whole, model, mixer, training, seed, fidelity, budget)


def language_job(
    label: str = "S",
    corpus: str = "c0ffee0123456789",
    vocab_size: int = 320,
    seed: int = 0,
    *,
    model: GPTConfig = GPTConfig(16, 2, 1, seq_len=16),
    mixer: dict[str, Any] | None = None,
    training: LanguageTraining = LanguageTraining(steps=60, tokens_per_step=64, eval_every=10),
    budget: Budget = "strict",
) -> Job:
    """A job of the language suite. ``mixer`` has changes to the default settings of the label's family.

    ``corpus`` is the digest of the corpus.
    """
    setting = {"corpus": corpus, "vocab_size": vocab_size}
    mixer, family = mixer_settings(label, **(mixer or {})), family_identity(family_of(label))
    return Job("language", "language_model", label, family, setting, model, mixer, training, seed, budget=budget)


def train_job(job: Job, work: Path, report: Callable[[Progress], None], **how: Any) -> Record:
    """Train and evaluate one job in the folder ``work``, and return its record.

    ``report`` is called with each progress report. ``how`` is as in :func:`loop_arguments`.
    """
    from madbench.training.loop import train

    return train([job], [work], lambda _, progress: report(progress), **loop_arguments(**how))[0]


def loop_arguments(*, device: str = "cpu", corpora: Mapping[str, Corpus] | None = None, **options: Any) -> Any:
    """The keyword arguments of :func:`madbench.training.loop.train` with these fields of ``LoopOptions``."""
    return {"device": device, "corpora": corpora, "options": LoopOptions(**options)}
