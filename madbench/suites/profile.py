"""A profile: what a suite trains, at what size, for how long. One YAML file, with changes written KEY=VALUE."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from madbench.config import field_docs, from_mapping, key_of, overridden, read_yaml
from madbench.errors import ConfigError, LabelError, did_you_mean
from madbench.labels import families, family_of

FILE_ONLY = ("description", "comparable_with_paper", "corpus")
"""Keys that say what a file is; they belong in it and cannot be overridden."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What every suite's profile has; labels, seeds, fidelity and budget come from the command line."""

    folder: ClassVar[Path]
    """Where the shipped profiles are."""
    noun: ClassVar[str]
    """What messages call it."""
    Model: ClassVar[type]
    Training: ClassVar[type]
    not_training: ClassVar[dict[str, str]] = {"precision": "precision"}
    """Training settings that are keys of the profile itself, and which."""
    stays_comparable: ClassVar[tuple[str, ...]] = ("precision",)
    """Keys that can be overridden without making the profile another one."""

    description: str
    """What the profile is for and how long it takes."""
    comparable_with_paper: bool
    """Whether its numbers may be set against the published ones."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of matrix products; auto is bfloat16 where the hardware has it."""
    model: dict[str, Any] = field(default_factory=dict)
    """Model around the mixer, and settings of mixers."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings that all runs share."""
    overridden: tuple[str, ...] = field(default=(), metadata={"internal": True})
    """Keys that an override gave."""

    def __post_init__(self):
        of_mixers = {name for family in _families() for name in setting_names(family)}
        known = [*setting_names(self), *of_mixers]
        for name in self.model:
            if name not in known:
                raise ConfigError(f"model: unknown key {name!r}{did_you_mean(name, known)}")
        self.model_config()
        for family in _families():
            self._settings(family)
        self.check_training(self.training, "training")

    def check_training(self, training: Mapping[str, Any], where: str) -> None:
        """Raises ``ConfigError`` for training settings that do not exist or belong elsewhere."""
        for key, instead in self.not_training.items():
            if key in training:
                raise ConfigError(f"{where}: {key!r} has no effect here; set the {self.noun}'s own {instead!r}")
        from_mapping(self.Training, training, where)

    def model_config(self) -> Any:
        """The model around the mixer."""
        names = setting_names(self)
        return from_mapping(self.Model, {key: value for key, value in self.model.items() if key in names}, "model")

    def mixer_settings(self, label: str) -> dict[str, Any]:
        """The settings of the label's family. Raises ``ConfigError`` for an override that the family does not have."""
        family = family_of(label)
        for key in self.overridden:
            section, _, name = key.partition(".")
            if section == "model" and name not in [*setting_names(self), *setting_names(family)]:
                has = ", ".join(f"model.{known}" for known in setting_names(family)) or "none"
                raise ConfigError(f"{key} has no effect on {label!r}; settings of its mixer: {has}")
        return dataclasses.asdict(self._settings(family))

    def _settings(self, family: Any) -> Any:
        names = setting_names(family)
        own = {key: value for key, value in self.model.items() if key in names}
        return from_mapping(family.Settings, own, "model")

    @classmethod
    def names(cls) -> list[str]:
        """Names of the shipped files."""
        return sorted(path.stem for path in cls.folder.glob("*.yaml"))

    @classmethod
    def load(cls, name: str, overrides: Iterable[str] = ()) -> Self:
        """The profile ``name``, shipped or a path to a YAML file, with ``overrides`` such as ``training.epochs=20``.

        An override of anything but the precision makes it a profile of its own, not comparable with the paper. Raises
        ``ConfigError`` for an unknown profile, key or type, and for an override without effect.
        """
        overrides = tuple(overrides)
        path = Path(name) if name.endswith((".yaml", ".yml")) else cls.folder / f"{name}.yaml"
        if not path.is_file():
            choices = [*cls.names(), *([f"{name}.yaml"] if Path(f"{name}.yaml").is_file() else [])]
            raise ConfigError(f"{cls.noun} {name!r}: no such {cls.noun} or file{did_you_mean(name, choices)}")
        mapping = read_yaml(path)
        from_mapping(cls, mapping, str(path))
        keys = tuple(key_of(override) for override in overrides)
        for key in keys:
            cls._check_key(key, keys)
        for override in sorted(overrides, key=cls.order):
            mapping = cls.changed(mapping, override)
        if set(keys) - set(cls.stays_comparable):
            mapping = {**mapping, "comparable_with_paper": False}
        where = f"override {', '.join(map(repr, overrides))}" if overrides else str(path)
        return dataclasses.replace(from_mapping(cls, mapping, where), overridden=keys)

    @classmethod
    def order(cls, override: str) -> int:
        """Overrides of a lower order come first, whatever the order they are given in."""
        return 0

    @classmethod
    def changed(cls, mapping: Mapping[str, Any], override: str) -> dict[str, Any]:
        """``mapping`` with one override."""
        return overridden(mapping, override)

    @classmethod
    def docs(cls) -> dict[str, str]:
        """Every dotted key that can be overridden, with its sentence of documentation."""
        docs = {}
        documented = field_docs(cls)
        for name in _names_of(cls):
            if name == "model":
                docs |= {f"model.{key}": text for key, text in field_docs(cls.Model).items()}
                for family in _families():
                    docs |= {f"model.{key}": text for key, text in field_docs(family.Settings).items()}
            elif name == "training":
                of_training = field_docs(cls.Training).items()
                docs |= {f"training.{key}": text for key, text in of_training if key not in cls.not_training}
            elif name not in (*FILE_ONLY, "overridden"):
                docs |= cls.nested_docs(name) or {name: documented[name]}
        return docs

    @classmethod
    def nested_docs(cls, name: str) -> dict[str, str]:
        """The documented keys below the key ``name``; none where it has a value."""
        return {}

    @classmethod
    def _check_key(cls, key: str, keys: Sequence[str]) -> None:
        if keys.count(key) > 1:
            raise ConfigError(f"override {key!r} is given twice; only one value can hold")
        if key in FILE_ONLY:
            raise ConfigError(f"override {key!r} has no effect on a run; it belongs in the {cls.noun}'s file")
        known = cls.docs()
        whole = [name for name in known if name.endswith(f".{key}")]
        if whole and key not in known:
            raise ConfigError(f"override {key!r}: unknown key; did you mean {whole[0]!r}?")


def _families() -> list[Any]:
    """Every family that can be loaded: a broken package matters only to its own labels."""
    found = []
    for name in families():
        with suppress(LabelError):
            found.append(family_of(f"{name}:" if name else ""))
    return found


@functools.cache
def _names_of(cls: type) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(cls))


def setting_names(owner: Any) -> tuple[str, ...]:
    """The settings of a family's mixers, or those of a profile's model."""
    return _names_of(owner.Model if isinstance(owner, Profile) else owner.Settings)
