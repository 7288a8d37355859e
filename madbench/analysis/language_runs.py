"""Stored language-model runs by protocol: corpus, model, training and counting. Protocols are never mixed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.errors import ConfigError
from madbench.jobs import Counting, content_id
from madbench.language_jobs import GPTConfig, LanguageJob, LanguageTraining
from madbench.store.runs import Run, Store
from madbench.suites.preset import Preset, load_preset, preset_names

PUBLISHED_VOCABULARY = 50304  # GPT-2's, as padded for the paper's runs

MOST_CHANGES = 6  # beyond which a protocol is not called after a preset


@dataclass(frozen=True)
class LanguageProtocol:
    """Everything that runs of one table or one figure share: a :class:`LanguageJob` without its label and seed."""

    corpus: str
    vocab_size: int
    model: GPTConfig
    training: LanguageTraining
    counting: Counting

    @classmethod
    def of(cls, job: LanguageJob) -> LanguageProtocol:
        return cls(*(getattr(job, field.name) for field in dataclasses.fields(cls)))

    @property
    def id(self) -> str:
        """8 hexadecimal digits, the same on every machine."""
        return content_id(dataclasses.asdict(self))[:8]

    @property
    def preset(self) -> str:
        """The shipped preset nearest to the protocol and what is changed in it: ``tiny training.steps=600``."""
        changes = {name: self._changes(preset) for name, preset in _shipped_presets().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return "of its own" if len(changes[nearest]) > MOST_CHANGES else " ".join([nearest, *changes[nearest]])

    @property
    def is_comparable_with_paper(self) -> bool:
        """Whether sizes, schedule and vocabulary are those of the published language models."""
        return self.vocab_size == PUBLISHED_VOCABULARY and any(
            preset.comparable_with_paper and not self._changes(preset) for preset in _shipped_presets().values()
        )

    def matches(self, preset: Preset) -> bool:
        """Whether runs of ``preset`` follow this protocol, on whatever corpus; ``auto`` precision is either."""
        return not self._changes(preset) and preset.precision in ("auto", self.training.precision)

    def _changes(self, preset: Preset) -> list[str]:
        """The overrides, other than of the precision, that make ``preset`` into this protocol."""
        theirs = {"model": preset.model, "training": preset.training_config(self.training.precision)}
        return [
            f"{part}.{name}={getattr(getattr(self, part), name)}"
            for part, config in theirs.items()
            for name, value in vars(config).items()
            if getattr(getattr(self, part), name) != value
        ]


@functools.cache
def _shipped_presets() -> dict[str, Preset]:
    return {name: load_preset(name) for name in preset_names()}


def language_runs(store: Store) -> list[Run]:
    """The finished and diverged language-model runs of ``store``, by id and without their curves."""
    return [run for run in store.runs(with_curves=False, kind=LanguageJob) if run.record.status != "failed"]


def by_protocol(runs: Iterable[Run]) -> dict[LanguageProtocol, list[Run]]:
    """The runs of each protocol, in their order."""
    groups: dict[LanguageProtocol, list[Run]] = {}
    for run in runs:
        groups.setdefault(LanguageProtocol.of(run.job), []).append(run)
    return groups


def only_protocol(runs: Sequence[Run]) -> LanguageProtocol:
    """The one protocol of ``runs``. Raises ``ConfigError`` for none, and for several, which it lists."""
    groups = by_protocol(runs)
    if not groups:
        raise ConfigError("no language-model runs to show")
    if len(groups) > 1:
        raise ConfigError(
            f"the runs follow {len(groups)} protocols, which cannot be compared; choose one with --protocol ID, or with "
            "what tells it apart (--corpus, --preset, KEY=VALUE, --budget):\n" + protocol_list(runs)
        )
    return next(iter(groups))


def protocol_list(runs: Iterable[Run]) -> str:
    """A line a protocol of ``runs``: its id, what it is, and its labels."""
    lines = []
    for protocol, of_it in by_protocol(runs).items():
        labels = sorted({run.job.label for run in of_it})
        shown = ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")
        lines.append(f"  {protocol.id}  {describe(protocol, of_it[0])}: {shown}")
    return "\n".join(lines)


def describe(protocol: LanguageProtocol, run: Run) -> str:
    """The protocol of ``run`` in a line."""
    corpus = corpus_of(run)
    return (
        f"corpus {corpus['name']} ({corpus['digest'][:8]}), preset {protocol.preset}, {protocol.training.precision}, "
        f"budget {protocol.counting}"
    )


def corpus_of(run: Run) -> dict[str, Any]:
    """What the record says about its corpus; at least its ``name`` and ``digest``."""
    return {"name": run.job.corpus, "digest": run.job.corpus} | run.record.details.get("corpus", {})
