from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from madbench.cli.machine import check_machine
from madbench.cli.options import RESULTS, JsonOption
from madbench.cli.parameters import argument, option
from madbench.cli.printing import counted, print_json
from madbench.cli.stored_files import check_store
from madbench.config import from_mapping, read_yaml
from madbench.errors import BudgetError, ConfigError, MadbenchError
from madbench.labels import LabelSet, available_sets, expand
from madbench.mixers import solve
from madbench.suites import Suite, suite_called, suites
from madbench.suites.profile import Profile
from madbench.tasks import broken_tasks, load_task_file, loaded_tasks

KINDS = {"variants": "labels", "task": "task"}
"""The key that tells the kind of a file that is no profile."""

Finding = tuple[list[str], str, list[str]]
"""The problems of a file; what a sound one holds; notes on what is allowed and worth knowing."""


def validate(
    files: argument(
        list[Path] | None, "FILE", "Files to check instead of everything shipped.", show_default=False
    ) = None,
    store: option(bool, "Check a results folder instead, all of its files.", "--store") = False,
    machine: option(bool, "Check this machine and the installed packages instead.", "--machine") = False,
    results: option(
        Path | None, "Folder of the run store, with --store or --machine.", show_default=str(RESULTS)
    ) = None,
    as_json: JsonOption = False,
) -> None:
    """Check YAML files and their labels before any training, a results folder, or this machine: every problem.

    A file with the key labels is a set of variants, one with the key task a
    task, one with learning_rates a profile, one with training but without
    learning_rates a preset, and one with tasks alone a profile of interactions.
    The key suite says of which other suite a profile is. Exit code 2 when
    anything is wrong.

    --store reads every file of a results folder to its last bit: records,
    curves, weights, measurements, checkpoints, corpora, index, journals. What is
    damaged is named with what to do; nothing is changed.

    --machine shows what this machine has, runs every path of the operator once,
    and names what training needs and is missing. A family or task of another
    package that is broken is named, and is none of that.

    [bold]Examples[/bold]

      madbench validate                       every shipped file and label
      madbench validate variants/mine.yaml
      madbench validate my_task.yaml my_profile.yaml --json
      madbench validate --store --results /data/runs
      madbench validate --machine --results /data/runs
    """
    if machine and (files or store):
        raise ConfigError(f"--machine has no effect with {'--store' if store else files[0]}; give one of the two")
    if machine:
        check_machine(results or RESULTS, as_json)
        return
    if files and store:
        raise ConfigError(f"{files[0]}: has no effect with --store, which checks the folder of --results")
    if results and not store:
        raise ConfigError(f"--results {results}: has no effect without --store or --machine")
    if store:
        reports = check_store(results or RESULTS)
    else:
        reports = [_check(path) for path in files or _shipped_files()]
        reports += [] if files else _broken_tasks()
    if as_json:
        print_json(reports)
    else:
        _print(reports)
    if wrong := [report for report in reports if not report["ok"]]:
        where = ", ".join(report["kind"] for report in wrong)
        if not store:
            where = f"{len(wrong)} of {counted(len(reports), 'file')}"
        raise ConfigError(f"{counted(sum(len(report['problems']) for report in wrong), 'problem')} in {where}")


def _print(reports: Sequence[Mapping[str, Any]]) -> None:
    console = Console(highlight=False)
    for report in reports:
        verdict = ("ok   ", "green") if report["ok"] else ("wrong", "bold red")
        content = f"  {report['kind']}: {report['summary']}" if report["ok"] else ""
        console.print(Text.assemble(verdict, f"  {report['file']}", (content, "dim")), soft_wrap=True)
        for text in (*report["problems"], *(f"note: {note}" for note in report["notes"])):
            console.print(Text("       " + text.replace("\n", "\n       ")), soft_wrap=True)


def _shipped_files() -> list[Path]:
    """Every set of variants a label can name, every installed task, every profile, every preset."""
    profiles = [path for suite in suites().values() for path in sorted(suite.Profile.folder.glob("*.yaml"))]
    paths = [*available_sets().values(), *(file.path for file in loaded_tasks().values()), *profiles]
    here = Path.cwd()
    return [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]


def _broken_tasks() -> list[dict[str, Any]]:
    """The installed tasks that cannot be loaded, each as a file that is wrong."""
    about = {"ok": False, "kind": "task", "summary": "", "notes": []}
    return [about | {"file": name, "problems": [why]} for name, why in broken_tasks().items()]


def _check(path: Path) -> dict[str, Any]:
    """What the check of one file gave, as ``--json`` has it."""
    kind, summary, notes = "", "", []
    try:
        mapping = read_yaml(path)
        kind, check = _kind_of(path, mapping)
        problems, summary, notes = check(path, mapping)
    except ConfigError as error:
        problems = [str(error)]
    about = {"ok": not problems, "file": str(path), "kind": kind, "summary": summary * (not problems)}
    return about | {"problems": problems, "notes": notes}


def _kind_of(path: Path, mapping: Mapping[str, Any]) -> tuple[str, Callable[[Path, Mapping[str, Any]], Finding]]:
    """What a file is, and its check: by the suite it names, its folder, or a key that it has."""
    folder, of_file = path.resolve().parent, mapping.get("suite")
    profiles = {one: functools.partial(_check_profile, one) for one in suites().values()}
    if of_file is not None:
        return (suite := suite_called(str(of_file), f"{path}: suite: ")).Profile.noun, profiles[suite]
    checks: dict[str, Any] = {"variants": _check_variants, "task": _check_task}
    checks |= {suite.Profile.noun: check for suite, check in profiles.items()}
    keys = KINDS | {suite.Profile.noun: suite.file_key for suite in profiles if suite.file_key}
    kinds = [suite.Profile.noun for suite in profiles if folder == suite.Profile.folder.resolve()]
    kinds = kinds or [name for name, key in keys.items() if key in mapping]
    kinds = kinds or [name for name in checks if folder.name in (name, f"{name}s")]
    if not kinds:
        named = ", ".join(f"{key} ({name})" for name, key in keys.items())
        raise ConfigError(f"{path}: cannot tell what this is; expected one of the keys {named}")
    return kinds[0], checks[kinds[0]]


def _check_variants(path: Path, mapping: Mapping[str, Any]) -> Finding:
    sound = {"description": "", "labels": ["S"]}
    problems = _find_problems(lambda content: from_mapping(LabelSet, content, str(path)), mapping, sound, path)
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
    return problems, "" if problems else f"{len(expand([f'@{path}']))} labels", []


def _check_task(path: Path, mapping: Mapping[str, Any]) -> Finding:
    tasks = loaded_tasks()
    is_known = mapping.get("task") in tuple(tasks)  # which may be anything, a list too
    file = tasks[mapping["task"] if is_known else next(iter(tasks))]
    sound = {"description": file.description, "baseline": dataclasses.asdict(file.baseline)}
    sound |= {"task": file.task} if is_known else {}
    problems = _find_problems(lambda content: load_task_file(path, content), mapping, sound, path)
    settings = () if problems else load_task_file(path).settings
    return problems, f"{file.task}, {len(settings)} settings", []


def _check_profile(suite: Suite, path: Path, mapping: Mapping[str, Any]) -> Finding:
    cls = suite.Profile

    def load(content: Mapping[str, Any]) -> None:
        suite.check_profile(from_mapping(cls, content, str(path)))

    shipped = read_yaml(cls.folder / f"{cls.names()[0]}.yaml")
    required = [one.name for one in dataclasses.fields(cls) if one.default is one.default_factory]
    problems = _find_problems(load, mapping, {name: shipped[name] for name in required}, path)
    if problems:
        return problems, "", []
    profile = cls.load(str(path))
    summary, lengths = suite.check_profile(profile)
    return [], summary, _notes(profile, lengths)


def _notes(profile: Profile, lengths: set[int]) -> list[str]:
    """The lengths at which labels of the paper's table have no ranks under the strict budget."""
    model, failed = profile.model_config(), {}
    for length, label in itertools.product(sorted(lengths), expand(["@table1"])):
        try:
            solve(label, model.d_model, model.n_head, length, "strict", **profile.mixer_settings(label))
        except BudgetError:
            failed.setdefault(length, []).append(label)
    return [f"no ranks at seq_len {n} under the strict budget: {', '.join(labels)}" for n, labels in failed.items()]


def _find_problems(
    load: Callable[[Mapping[str, Any]], Any], mapping: Mapping[str, Any], sound: Mapping[str, Any], path: Path
) -> list[str]:
    """Every error of ``mapping``: where one is found, the part that causes it is mended, and the rest loaded again.

    ``sound`` has a value for every required key. A part is the cause of an error if without it the error is gone.
    """

    def error_of(content: Mapping[str, Any]) -> str:
        try:
            load(content)
        except MadbenchError as error:
            return str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        return ""

    problems: list[str] = []
    message = error_of(mapping)
    while message and message not in problems:
        problems.append(message)
        changes = _mended(mapping, sound, message.removeprefix(str(path)))
        mapping = next((changed for changed in changes if error_of(changed) != message), mapping)
        message = error_of(mapping)
    return problems


def _mended(node: Any, sound: Any, message: str, name: str = "") -> Iterator[Any]:
    """``node``, which is called ``name``, without each part that ``message`` names, the parts of a part before itself.

    What ``sound`` has is put in the part's place, or where it is missing.
    """
    is_list = isinstance(node, list)
    parts = dict(enumerate(node)) if is_list else dict(node)
    instead = sound if isinstance(sound, type(node)) else type(node)()
    for key in parts if is_list else {**parts, **instead}:
        there = next(iter(instead), None) if is_list else instead.get(key)
        changes = []
        if isinstance(parts.get(key), (list, dict)):
            changes += _mended(parts[key], there, message, str(key))
        if is_list:
            is_named = f"[{key}]" in message or ("[" not in message and name in message)
            is_named = is_named and (there is not None or len(parts) > 1)  # an empty list is an error too
        else:
            is_named = str(key) in message
        if is_named and there != parts.get(key):
            changes.append(there)
        for change in changes:
            changed = {**parts, key: change}
            if change is None:
                del changed[key]
            yield [*changed.values()] if is_list else changed
