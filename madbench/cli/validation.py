"""Every problem of a YAML file: a set of variants, a task, a profile or a preset."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from madbench.suites import Suite

KEY_OF_KIND = {"variants": "labels", "task": "task", "profile": "learning_rates", "preset": "training"}
FOLDER_OF_KIND = {"variants": "variants", "task": "tasks", "profile": "profiles", "preset": "presets"}

Load = Callable[[Mapping[str, Any]], Any]
"""Makes of a file's content what it stands for, or raises the user's error."""


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
    """Every set of variants a label can name, every installed task, every profile, every preset."""
    from madbench.labels import available_sets
    from madbench.suites import SUITES
    from madbench.tasks import task_names
    from madbench.tasks.registry import task_path

    profiles = [path for suite in SUITES.values() for path in sorted(suite.Profile.folder.glob("*.yaml"))]
    paths = [*available_sets().values(), *map(task_path, task_names()), *profiles]
    here = Path.cwd()
    return [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]


def check_file(path: Path) -> Report:
    """Checks one file of whatever kind it is."""
    from madbench.config import read_yaml
    from madbench.errors import ConfigError
    from madbench.suites import LANGUAGE, MAD

    try:
        mapping = read_yaml(path)
    except ConfigError as error:
        return Report(str(path), "", problems=[str(error)])
    of_content = [kind for kind, key in KEY_OF_KIND.items() if key in mapping]
    of_folder = [kind for kind, folder in FOLDER_OF_KIND.items() if path.resolve().parent.name == folder]
    kind = next(iter([*of_content, *of_folder]), "")
    if kind == "variants":
        return _check_variants(path, mapping)
    if kind == "task":
        return _check_task(path, mapping)
    if kind:
        return _check_profile(path, mapping, {"profile": MAD, "preset": LANGUAGE}[kind])
    keys = ", ".join(f"{key} ({name})" for name, key in KEY_OF_KIND.items())
    return Report(str(path), "", problems=[f"{path}: cannot tell what this is; expected one of the keys {keys}"])


def _check_variants(path: Path, mapping: Mapping[str, Any]) -> Report:
    from madbench.config import from_mapping
    from madbench.errors import MadbenchError
    from madbench.labels import LabelSet, expand

    sound = {"description": "", "labels": ["S"]}
    problems = find_problems(lambda content: from_mapping(LabelSet, content, str(path)), mapping, sound, path)
    specs = mapping.get("labels")
    specs = specs if isinstance(specs, list) else []
    for i, spec in enumerate(specs):
        where = f"{path}: labels[{i}]"
        if isinstance(spec, str):
            if spec in specs[:i]:
                problems.append(f"{where}: {spec!r} is in the set already, as labels[{specs.index(spec)}]")
            from_here = re.sub(r"@([^/{},][^{},]*\.ya?ml)", lambda file: f"@{path.parent / file[1]}", spec)
            try:
                expand([from_here])
            except MadbenchError as error:
                problems.append(f"{error}\nin {where}")
    if problems:
        return Report(str(path), "variants", problems=problems)
    return Report(str(path), "variants", f"{len(expand([f'@{path}']))} labels")


def _check_task(path: Path, mapping: Mapping[str, Any]) -> Report:
    from madbench.tasks import MAD_TASKS, load_task, task_names
    from madbench.tasks.protocol import parse_task_file

    is_known = mapping.get("task") in task_names()
    file = load_task(mapping["task"] if is_known else MAD_TASKS[0])
    sound = {"task": file.task, "description": file.description, "baseline": dataclasses.asdict(file.baseline)}
    if not is_known:
        del sound["task"]
    problems = find_problems(lambda content: parse_task_file(content, path), mapping, sound, path)
    if problems:
        return Report(str(path), "task", problems=problems)
    return Report(str(path), "task", f"{file.task}, {len(parse_task_file(mapping, path).settings)} settings")


def _check_profile(path: Path, mapping: Mapping[str, Any], suite: Suite) -> Report:
    from madbench.config import from_mapping, read_yaml
    from madbench.suites import MAD
    from madbench.tasks import MAD_TASKS

    cls = suite.Profile

    def load(content: Mapping[str, Any]) -> Any:
        profile = from_mapping(cls, content, str(path))
        for task in dict.fromkeys((*MAD_TASKS, *profile.tasks)) if suite is MAD else ():
            profile.settings(task), profile.trainings(task, "float32")
        return profile

    shipped = read_yaml(cls.folder / f"{cls.names()[0]}.yaml")
    required = [one.name for one in dataclasses.fields(cls) if one.default is one.default_factory]
    problems = find_problems(load, mapping, {name: shipped[name] for name in required}, path)
    if problems:
        return Report(str(path), cls.noun, problems=problems)
    profile = cls.load(str(path))
    if suite is MAD:
        settings = {task: profile.settings(task) for task in MAD_TASKS}
        count = sum(len(of_task) for of_task in settings.values())
        runs = sum(len(of_task) * len(profile.trainings(task, "float32")) for task, of_task in settings.items())
        summary = f"{count} settings, {runs} runs a label"
        lengths = {setting["seq_len"] for of_task in settings.values() for setting in of_task}
    else:
        training, lengths = profile.training_config("float32"), {profile.model_config().seq_len}
        summary = f"{training.steps:,} steps of {training.tokens_per_step:,} tokens"
    return Report(str(path), cls.noun, summary, notes=list(_without_budget(profile, lengths)))


def _without_budget(profile: Any, lengths: set[int]) -> Iterator[str]:
    """A note for each length at which labels of the paper's table have no ranks under the strict budget."""
    from madbench.errors import BudgetError
    from madbench.labels import expand
    from madbench.mixers import solve

    model = profile.model_config()
    for length in sorted(lengths):
        failed = []
        for label in expand(["@table1"]):
            try:
                solve(label, model.d_model, model.n_head, length, "strict", **profile.mixer_settings(label))
            except BudgetError:
                failed.append(label)
        if failed:
            yield f"no ranks at seq_len {length} under the strict budget: {', '.join(failed)}"


def find_problems(load: Load, mapping: Mapping[str, Any], sound: Mapping[str, Any], path: Path) -> list[str]:
    """Every error of ``mapping``: where one is found, the part that causes it is mended, and the rest loaded again.

    ``sound`` has a value for every required key. A part is the cause of an error if without it the error is gone.
    """
    problems: list[str] = []
    message = _error(load, mapping, path)
    while message and message not in problems:
        problems.append(message)
        for changed, missing in _mended(mapping, sound, message.removeprefix(str(path))):
            following = _error(load, changed, path)
            if following != message:
                mapping, message = changed, "" if following.endswith(missing) else following
                break
    return problems


def _error(load: Load, mapping: Mapping[str, Any], path: Path) -> str:
    from madbench.errors import MadbenchError

    try:
        load(mapping)
    except MadbenchError as error:
        return str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
    return ""


def _mended(mapping: Mapping[str, Any], sound: Mapping[str, Any], message: str) -> Iterator[tuple[dict[str, Any], str]]:
    """``mapping`` without each part that ``message`` names, the smallest first; and how the message of its lack ends.

    What ``sound`` has is put in the part's place, or where it is missing.
    """
    for *outer, key in sorted({**_places(mapping), **_places(sound)}, key=len, reverse=True):
        changed = copy.deepcopy(dict(mapping))
        parent = _at(changed, outer)
        if isinstance(parent, list):
            there = _at(sound, (*outer, 0))
            is_named = f"[{key}]" in message or ("[" not in message and outer[-1] in message)
            can_change = key < len(parent) and (there is not None or len(parent) > 1)  # an empty list is an error too
        else:
            there = _at(sound, (*outer, key))
            is_named, can_change = str(key) in message, parent is not None
        if not is_named or not can_change or there == _at(parent, (key,)):
            continue
        if there is None:
            del parent[key]
        else:
            parent[key] = copy.deepcopy(there)
        yield changed, f"key {key!r} is missing"


def _places(node: Any, outer: tuple = ()) -> dict[tuple, None]:
    """The keys and indices that lead to each part of ``node``."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    places: dict[tuple, None] = {}
    for key, value in items:
        places |= {(*outer, key): None, **_places(value, (*outer, key))}
    return places


def _at(node: Any, place: tuple) -> Any:
    """The part of ``node`` at ``place``; None where it has none."""
    for key in place:
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            return None
    return node
