"""Every problem of a YAML file: a set of variants, a task, a profile or a preset."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from madbench.jobs import ModelConfig

KEY_OF_KIND = {"variants": "labels", "task": "task", "profile": "learning_rates", "preset": "training"}
FOLDER_OF_KIND = {"variants": "variants", "task": "tasks", "profile": "profiles", "preset": "presets"}
SMALLEST_PROFILE = {
    "description": "",
    "comparable_with_paper": False,
    "learning_rates": [1.0],
    "weight_decays": [0.0],
    "difficulty": "baseline",
}
"""The keys every profile has, for checking each value of a file by itself."""


@dataclass(frozen=True)
class Report:
    """What the check of one file gave."""

    file: str
    kind: str
    """variants, task, profile, preset, or empty where the file is none of them."""
    summary: str = ""
    """What a sound file holds."""
    problems: list[str] = field(default_factory=list)
    """Everything that is wrong with it."""
    notes: list[str] = field(default_factory=list)
    """What is allowed and worth knowing."""


def shipped_files() -> list[Path]:
    """Every set of variants a label can name, every task, every profile, every preset."""
    from madbench.config import PRESETS, PROFILES, TASKS
    from madbench.labels import available_sets

    folders = (TASKS, PROFILES, PRESETS)
    paths = [*available_sets().values(), *(path for folder in folders for path in sorted(folder.glob("*.yaml")))]
    here = Path.cwd()
    return [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]


def check_file(path: Path) -> Report:
    """Checks one file of whatever kind it is."""
    from madbench.config import read_yaml
    from madbench.errors import ConfigError

    try:
        mapping = read_yaml(path)
    except ConfigError as error:
        return Report(str(path), "", problems=[str(error)])
    kind = _kind(path, mapping)
    if not kind:
        keys = ", ".join(f"{key} ({name})" for name, key in KEY_OF_KIND.items())
        return Report(str(path), "", problems=[f"{path}: cannot tell what this is; expected one of the keys {keys}"])
    return _CHECKS[kind](path, mapping)


def _kind(path: Path, mapping: Mapping[str, Any]) -> str:
    of_content = [kind for kind, key in KEY_OF_KIND.items() if key in mapping]
    of_folder = [kind for kind, folder in FOLDER_OF_KIND.items() if path.resolve().parent.name == folder]
    return next(iter([*of_content, *of_folder]), "")


def _check_variants(path: Path, mapping: Mapping[str, Any]) -> Report:
    from madbench.errors import MadbenchError
    from madbench.labels import LabelSet, expand

    problems = list(_find_problems(LabelSet, mapping, str(path)))
    specs = mapping.get("labels")
    for i, spec in enumerate(specs if isinstance(specs, list) else []):
        where = f"{path}: labels[{i}]"
        if not isinstance(spec, str):
            continue
        if spec in specs[:i]:
            problems.append(f"{where}: {spec!r} is in the set already, as labels[{specs.index(spec)}]")
        try:
            expand([_with_folder(spec, path.parent)])
        except MadbenchError as error:
            problems.append(f"{error}\nin {where}")
    found: list[str] = []
    _add_unless_known(problems, lambda: found.extend(expand([f"@{path}"])))
    return Report(str(path), "variants", f"{len(found)} labels", problems)


def _with_folder(spec: str, folder: Path) -> str:
    """``spec`` with the files it names relative to ``folder`` named from here."""
    return re.sub(r"@([^/{},][^{},]*\.ya?ml)", lambda match: f"@{folder / match[1]}", spec)


def _check_task(path: Path, mapping: Mapping[str, Any]) -> Report:
    from madbench.config import from_mapping
    from madbench.errors import did_you_mean
    from madbench.tasks import TASK_NAMES, load_task_file, settings_class
    from madbench.tasks.protocol import TaskContent

    problems = list(_find_problems(TaskContent, mapping, str(path)))
    task, baseline, vary = (mapping.get(key) for key in ("task", "baseline", "vary"))
    if task in TASK_NAMES and isinstance(baseline, Mapping):
        cls = settings_class(task)
        fields = [field.name for field in dataclasses.fields(cls)]
        of_baseline = list(_find_problems(cls, baseline, f"{path}: baseline"))
        problems += of_baseline
        for name, values in vary.items() if isinstance(vary, Mapping) else ():
            if name not in fields:
                problems.append(f"{path}: vary: unknown key {name!r}{did_you_mean(name, fields)}")
            elif not isinstance(values, list):
                problems.append(f"{path}: vary: {name}: expected a list of values, got {values!r}")
            elif not of_baseline:
                for i, value in enumerate(values):
                    if value in (baseline[name], *values[:i]):
                        problems.append(f"{path}: vary: {name}: {value!r} gives a setting that the file has already")
                    changed = {**baseline, name: value}
                    _add_unless_known(problems, lambda: from_mapping(cls, changed, f"{path}: vary: {name}"))
    summary: list[str] = []
    _add_unless_known(problems, lambda: summary.append(f"{task}, {len(load_task_file(path).settings)} settings"))
    return Report(str(path), "task", "".join(summary), problems)


def _check_profile(path: Path, mapping: Mapping[str, Any]) -> Report:
    from madbench.config import from_mapping
    from madbench.suites.plan import task_settings
    from madbench.suites.profile import Profile, load_profile
    from madbench.tasks import TASK_NAMES

    problems = list(_find_problems(Profile, mapping, str(path)))
    for leaf in _leaves(mapping):
        _add_unless_known(problems, lambda: from_mapping(Profile, {**SMALLEST_PROFILE, **leaf}, str(path)))
    loaded: list[Profile] = []
    _add_unless_known(problems, lambda: loaded.append(load_profile(str(path))))
    if not loaded:
        return Report(str(path), "profile", problems=problems)
    profile, count = loaded[0], 0
    lengths: set[int] = set()
    for task in TASK_NAMES:
        settings: list[dict[str, Any]] = []
        _add_unless_known(problems, lambda: settings.extend(task_settings(task, profile)), f"{path}: ")
        for rate in profile.learning_rates:
            for decay in profile.weight_decays:
                _add_unless_known(problems, lambda: profile.training_config(task, rate, decay, "float32"), f"{path}: ")
        lengths |= {setting["seq_len"] for setting in settings}
        count += len(settings)
    runs = count * len(profile.learning_rates) * len(profile.weight_decays)
    summary = f"{count} settings, {runs} runs a label"
    return Report(str(path), "profile", summary, problems, _without_budget(profile.model, lengths))


def _check_preset(path: Path, mapping: Mapping[str, Any]) -> Report:
    from madbench.language_jobs import LanguageTraining
    from madbench.suites.preset import Preset, load_preset

    problems = list(_find_problems(Preset, mapping, str(path)))
    if isinstance(training := mapping.get("training"), Mapping):
        of_training = {key: value for key, value in training.items() if key != "precision"}
        problems += _find_problems(LanguageTraining, of_training, f"{path}: training")
    loaded: list[Preset] = []
    _add_unless_known(problems, lambda: loaded.append(load_preset(str(path))))
    if not loaded:
        return Report(str(path), "preset", problems=problems)
    training, model = loaded[0].training_config("float32"), loaded[0].model
    summary = f"{training.steps:,} steps of {training.tokens_per_step:,} tokens"
    return Report(str(path), "preset", summary, problems, _without_budget(model, {model.seq_len}))


def _leaves(mapping: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """``mapping`` taken apart: for every value in it, a mapping with that value alone in its place."""
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from ({key: leaf} for leaf in _leaves(value))
        else:
            yield {key: value}


def _without_budget(model: ModelConfig, lengths: set[int]) -> list[str]:
    """A note for each length at which labels of the paper's table have no ranks under strict counting."""
    from madbench.errors import BudgetError
    from madbench.labels import expand, parse
    from madbench.mixers.srg.budget import solve

    notes = []
    for length in sorted(lengths):
        failed = []
        for label in expand(["@table1"]):
            try:
                solve(parse(label), model.d_model, model.n_head, length, "strict", model.mix_rank, model.rank_multiple)
            except BudgetError:
                failed.append(label)
        if failed:
            notes.append(f"no budget at seq_len {length} under strict counting: {', '.join(failed)}")
    return notes


def _find_problems(cls: type, mapping: Mapping[str, Any], where: str) -> Iterator[str]:
    """Every unknown key, wrong type and missing key of ``mapping``, as :func:`madbench.config.from_mapping` words them.

    Of a value that is itself a mapping only the first problem; rules that join several fields are not looked at.
    """
    from madbench.config import convert
    from madbench.errors import ConfigError, did_you_mean

    types = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key, value in mapping.items():
        if key not in fields:
            yield f"{where}: unknown key {key!r}{did_you_mean(key, fields)}"
            continue
        parts = {f"{where}: {key}": (value, types[key])}
        if typing.get_origin(types[key]) is tuple and isinstance(value, list):
            of_item = typing.get_args(types[key])[0]
            parts = {f"{where}: {key}[{i}]": (item, of_item) for i, item in enumerate(value)}
        for place, (part, expected) in parts.items():
            try:
                convert(part, expected, place)
            except ConfigError as error:
                yield str(error)
    for name, declared in fields.items():
        required = declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            yield f"{where}: key {name!r} is missing"


def _add_unless_known(problems: list[str], attempt: Callable[[], Any], prefix: str = "") -> None:
    """Runs ``attempt`` and adds the user's error it ends in, unless that problem is in the list."""
    from madbench.errors import MadbenchError

    try:
        attempt()
    except MadbenchError as error:
        message = f"{prefix}{error}"
        if message not in problems:
            problems.append(message)


_CHECKS = {"variants": _check_variants, "task": _check_task, "profile": _check_profile, "preset": _check_preset}
