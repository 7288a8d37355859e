"""A profile: which settings of which tasks, at what size, for how long. One YAML file in ``tasks/profiles/``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from madbench.config import PROFILES, from_mapping, overridden, read_yaml
from madbench.errors import ConfigError, did_you_mean
from madbench.jobs import ModelConfig, Precision, TrainingConfig
from madbench.tasks import TASK_NAMES

_FILE_ONLY = ("description", "comparable_with_paper")


@dataclass(frozen=True)
class TaskPlan:
    """How a profile changes one task."""

    setting: dict[str, Any] = field(default_factory=dict)
    """Parameters of the task that differ from its baseline."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings that differ from the profile's."""
    learning_rates: tuple[float, ...] = ()
    """Learning rates tried instead of the profile's."""


@dataclass(frozen=True)
class Profile:
    """What a run trains; labels, seeds, fidelity and counting come from the command line."""

    description: str
    """What the profile is for and how long it takes."""
    comparable_with_paper: bool
    """Whether its numbers may be set against the published ones."""
    learning_rates: tuple[float, ...]
    """Learning rates tried on every setting; the best by validation counts (published fidelity: by test)."""
    weight_decays: tuple[float, ...]
    """Weight decays tried on every setting."""
    difficulty: Literal["baseline", "all"]
    """Each task's baseline only, or its one-variable changes too."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of matrix products; auto is bfloat16 where the hardware has it."""
    model: ModelConfig = ModelConfig()
    """Model around the mixer."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings, without the learning rate, the weight decay and the precision above."""
    tasks: dict[str, TaskPlan] = field(default_factory=dict)
    """Changes for single tasks."""
    language_model: str = ""
    """Preset of the language model that goes with the profile, shipped or a YAML file; empty for none."""

    def __post_init__(self):
        for name in ("learning_rates", "weight_decays"):
            if not getattr(self, name):
                raise ConfigError(f"{name}: give at least one value")
        for name in self.tasks:
            if name not in TASK_NAMES:
                raise ConfigError(f"tasks: unknown task {name!r}{did_you_mean(name, TASK_NAMES)}")
        for where, training in [("training", self.training)] + [
            (f"tasks: {name}: training", plan.training) for name, plan in self.tasks.items()
        ]:
            for key, instead in (
                ("learning_rate", "learning_rates"),
                ("weight_decay", "weight_decays"),
                ("precision", "precision"),
            ):
                if key in training:
                    raise ConfigError(f"{where}: {key!r} has no effect here; set the profile's own {instead!r}")
            from_mapping(TrainingConfig, training, where)
        if self.difficulty == "all" and any(plan.setting for plan in self.tasks.values()):
            raise ConfigError("tasks: a changed setting goes with difficulty: baseline; 'all' takes the task files")

    def rates(self, task: str) -> tuple[float, ...]:
        """The learning rates tried on ``task``."""
        return self.tasks.get(task, TaskPlan()).learning_rates or self.learning_rates

    def training_config(self, task: str, learning_rate: float, weight_decay: float, precision: Precision):
        """The optimiser run of one job."""
        plan = self.tasks.get(task, TaskPlan())
        return from_mapping(
            TrainingConfig,
            {
                **self.training,
                **plan.training,
                "learning_rate": learning_rate,
                "weight_decay": weight_decay,
                "precision": precision,
            },
            f"training of {task}",
        )


def profile_names() -> list[str]:
    """Names of the shipped profiles."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def load_profile(name: str, overrides: Iterable[str] = ()) -> Profile:
    """The profile ``name``, shipped or a path to a YAML file, with ``overrides`` such as ``training.epochs=20``.

    An override of ``training.KEY`` or ``learning_rates`` holds for every task, also for one to which the profile gives a
    value of its own; one that begins with ``tasks.TASK`` holds for that task, whatever the order. An override of anything but the precision and the preset
    of the language model makes the profile one of its own, not comparable with the paper.

    Raises ``ConfigError`` for an unknown profile, key or type, and for an override without effect.
    """
    overrides = tuple(overrides)
    path = Path(name) if name.endswith((".yaml", ".yml")) else PROFILES / f"{name}.yaml"
    if not path.is_file():
        choices = [*profile_names(), *([f"{name}.yaml"] if Path(f"{name}.yaml").is_file() else [])]
        raise ConfigError(f"profile {name!r}: no such profile or file{did_you_mean(name, choices)}")
    mapping = read_yaml(path)
    from_mapping(Profile, mapping, str(path))
    keys = [override.partition("=")[0] for override in overrides]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"override {key!r} is given twice; only one value can hold")
        whole = [known for known in override_docs() if known.endswith(f".{key}")]
        if whole and key not in override_docs():
            raise ConfigError(f"override {key!r}: unknown key; did you mean {whole[0]!r}?")
        if key in _FILE_ONLY:
            raise ConfigError(f"override {key!r} has no effect on a run; it belongs in the profile's file")
    for override in sorted(overrides, key=lambda override: override.startswith("tasks.")):
        mapping = _overridden(mapping, override)
        from_mapping(Profile, mapping, f"override {override!r}")
    profile = from_mapping(Profile, mapping, str(path))
    if set(keys) - {"precision", "language_model"}:
        profile = dataclasses.replace(profile, comparable_with_paper=False)
    return profile


def _overridden(mapping: Mapping[str, Any], override: str) -> dict[str, Any]:
    changed = overridden(mapping, override)
    names = override.partition("=")[0].split(".")
    for plan in changed.get("tasks", {}).values():
        if names[0] == "training" and len(names) == 2:
            plan.get("training", {}).pop(names[1], None)
        if names == ["learning_rates"]:
            plan.pop("learning_rates", None)
    return changed


@functools.cache
def override_docs() -> dict[str, str]:
    """Every dotted key a profile understands, with its sentence of documentation."""
    from madbench.config import field_docs

    docs = {}
    for name, sentence in field_docs(Profile).items():
        if name in _FILE_ONLY:
            continue
        if name == "model":
            docs |= {f"model.{key}": text for key, text in field_docs(ModelConfig).items()}
        elif name == "training":
            own = ("learning_rate", "weight_decay", "precision")
            docs |= {f"training.{key}": text for key, text in field_docs(TrainingConfig).items() if key not in own}
        elif name == "tasks":
            for part, text in field_docs(TaskPlan).items():
                docs[f"tasks.TASK.{part}" + ".KEY" * (part != "learning_rates")] = text
        else:
            docs[name] = sentence
    return docs
