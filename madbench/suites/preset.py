"""A preset: the size, the schedule and the usual corpus of a language-model experiment. YAML in ``tasks/presets/``."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from madbench.config import PRESETS, field_docs, from_mapping, overridden, read_yaml
from madbench.errors import ConfigError, did_you_mean
from madbench.language_jobs import GPTConfig, LanguageTraining

_FILE_ONLY = ("description", "comparable_with_paper", "corpus")


@dataclass(frozen=True)
class Preset:
    """What a language-model run trains; labels, seeds, corpus and budget counting come from the command line."""

    description: str
    """What the preset is for and how long it takes."""
    comparable_with_paper: bool
    """Whether, on OpenWebText2 in GPT-2 tokens, its losses may be set against the published ones."""
    corpus: Literal["stdlib", ""] = ""
    """The corpus when none is named: Python's standard library in bytes, or none."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of matrix products; auto is bfloat16 where the hardware has it."""
    model: GPTConfig = GPTConfig()
    """Model around the mixer."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings, without the precision above."""

    def __post_init__(self):
        if "precision" in self.training:
            raise ConfigError("training: 'precision' has no effect here; set the preset's own 'precision'")
        self.training_config("float32")

    def training_config(self, precision: str) -> LanguageTraining:
        """The optimiser run of a job."""
        return from_mapping(LanguageTraining, {**self.training, "precision": precision}, "training")


def preset_names() -> list[str]:
    """Names of the shipped presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_preset(name: str, overrides: Iterable[str] = ()) -> Preset:
    """The preset ``name``, shipped or a path to a YAML file, with ``overrides`` such as ``training.steps=1000``.

    An override of anything but the precision makes the preset one of its own, not comparable with the paper. Raises
    ``ConfigError`` for an unknown preset, key or type, and for an override without effect.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else PRESETS / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(f"preset {name!r}: no such preset or file{did_you_mean(name, preset_names())}")
    mapping = read_yaml(path)
    from_mapping(Preset, mapping, str(path))
    seen = set()
    for override in overrides:
        key = override.partition("=")[0]
        if key in seen:
            raise ConfigError(f"override {key!r} is given twice; only one value can hold")
        if key not in preset_docs():
            whole = [known for known in preset_docs() if known.endswith(f".{key}")]
            hint = f"; did you mean {whole[0]!r}?" if whole else did_you_mean(key, preset_docs())
            raise ConfigError(f"override {key!r}: unknown key{hint}")
        seen.add(key)
        mapping = overridden(mapping, override)
        if key != "precision":
            mapping["comparable_with_paper"] = False
    where = f"{path} with {', '.join(sorted(seen))}" if seen else str(path)
    return from_mapping(Preset, mapping, where)


@functools.cache
def preset_docs() -> dict[str, str]:
    """Every dotted key that can be overridden, with its sentence of documentation."""
    docs = {name: text for name, text in field_docs(Preset).items() if name not in (*_FILE_ONLY, "model", "training")}
    docs |= {f"model.{name}": text for name, text in field_docs(GPTConfig).items()}
    return docs | {
        f"training.{name}": text for name, text in field_docs(LanguageTraining).items() if name != "precision"
    }
