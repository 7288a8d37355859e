"""Every problem of a YAML file: a set of variants, a task, a profile or a preset."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from madbench.suites import Suite

KINDS = {
    "variants": ("labels", "variants"),
    "task": ("task", "tasks"),
    "profile": ("learning_rates", "profiles"),
    "preset": ("training", "presets"),
}
"""The key that tells the kind of a file, and the folder that does where no key does."""

Load = Callable[[Mapping[str, Any]], Any]
"""Makes of a file's content what it stands for, or raises the user's error."""
Finding = tuple[list[str], str] | tuple[list[str], str, Sequence[str]]
"""The problems of a file; what a sound one holds; notes on what is allowed and worth knowing."""


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


def check_file(path: Path) -> dict[str, Any]:
    """What the check of one file of whatever kind gave: ``ok``, and more as ``validate --json`` has it."""
    from madbench.config import read_yaml
    from madbench.errors import ConfigError
    from madbench.suites import LANGUAGE, MAD

    def report(problems: list[str], summary: str = "", notes: Sequence[str] = ()) -> dict[str, Any]:
        about = {"ok": not problems, "file": str(path), "kind": kind}
        return about | {"summary": summary * (not problems), "problems": problems, "notes": list(notes)}

    kind = ""
    try:
        mapping = read_yaml(path)
    except ConfigError as error:
        return report([str(error)])
    of_content = [kind for kind, (key, _) in KINDS.items() if key in mapping]
    of_folder = [kind for kind, (_, folder) in KINDS.items() if path.resolve().parent.name == folder]
    kind = next(iter([*of_content, *of_folder]), "")
    if not kind:
        keys = ", ".join(f"{key} ({name})" for name, (key, _) in KINDS.items())
        return report([f"{path}: cannot tell what this is; expected one of the keys {keys}"])
    if kind in ("variants", "task"):
        return report(*{"variants": _check_variants, "task": _check_task}[kind](path, mapping))
    return report(*_check_profile(path, mapping, MAD if kind == "profile" else LANGUAGE))


def _check_variants(path: Path, mapping: Mapping[str, Any]) -> Finding:
    from madbench.config import from_mapping
    from madbench.errors import MadbenchError
    from madbench.labels import LabelSet, expand

    sound = {"description": "", "labels": ["S"]}
    problems = find_problems(lambda content: from_mapping(LabelSet, content, str(path)), mapping, sound, path)
    specs = mapping["labels"] if isinstance(mapping.get("labels"), list) else []
    for i, spec in enumerate(specs):
        where = f"{path}: labels[{i}]"
        if isinstance(spec, str):
            if spec in specs[:i]:
                problems.append(f"{where}: {spec!r} is in the set already, as labels[{specs.index(spec)}]")
            try:
                expand([re.sub(r"@([^/{},][^{},]*\.ya?ml)", lambda file: f"@{path.parent / file[1]}", spec)])
            except MadbenchError as error:
                problems.append(f"{error}\nin {where}")
    return problems, "" if problems else f"{len(expand([f'@{path}']))} labels"


def _check_task(path: Path, mapping: Mapping[str, Any]) -> Finding:
    from madbench.tasks import MAD_TASKS, load_task, task_names
    from madbench.tasks.protocol import parse_task_file

    is_known = mapping.get("task") in task_names()
    file = load_task(mapping["task"] if is_known else MAD_TASKS[0])
    sound = {"description": file.description, "baseline": dataclasses.asdict(file.baseline)}
    sound |= {"task": file.task} if is_known else {}
    problems = find_problems(lambda content: parse_task_file(content, path), mapping, sound, path)
    settings = () if problems else parse_task_file(mapping, path).settings
    return problems, f"{file.task}, {len(settings)} settings"


def _check_profile(path: Path, mapping: Mapping[str, Any], suite: Suite) -> Finding:
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
        return problems, ""
    profile = cls.load(str(path))
    if suite is MAD:
        settings = [(task, setting) for task in MAD_TASKS for setting in profile.settings(task)]
        runs = sum(len(profile.trainings(task, "float32")) for task, _ in settings)
        lengths = {setting["seq_len"] for _, setting in settings}
        summary = f"{len(settings)} settings, {runs} runs a label"
    else:
        training, lengths = profile.training_config("float32"), {profile.model_config().seq_len}
        summary = f"{training.steps:,} steps of {training.tokens_per_step:,} tokens"
    return [], summary, list(_without_budget(profile, lengths))


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
