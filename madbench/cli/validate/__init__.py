"""``madbench validate``: check YAML files, a results folder, or this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

from madbench.cli.shared.options import RESULTS
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import count_text, print_json
from madbench.cli.validate.file_problems import find_problems
from madbench.cli.validate.machine import check_machine
from madbench.cli.validate.stored_files import check_store
from madbench.config import from_mapping, read_yaml, short_repr
from madbench.config.options import argument, option
from madbench.errors import BudgetError, ConfigError, MadbenchError, did_you_mean, no_effect
from madbench.grid import GridFile, expand_grid
from madbench.labels import LabelSet, available_sets, expand
from madbench.mixers import solve
from madbench.suites import Suite, find_suite, suites
from madbench.suites.addressing import check_suites_in
from madbench.suites.corpora import NoCorpusError
from madbench.suites.profile import LIKE, Profile
from madbench.tasks import broken_tasks, load_task_file, loaded_tasks

Finding = tuple[list[str], str, list[str]]
"""The problems of a file, the summary of a valid file, and notes."""

GRID_KEYS = {field.name for field in dataclasses.fields(GridFile)} - {"description", "labels", "tasks"}
"""The keys by which a grid is recognized. Sets of labels and profiles have none of them."""


def validate(
    files: Annotated[
        list[Path] | None, argument("FILE", "Files to check instead of everything shipped.", show_default=False)
    ] = None,
    store: Annotated[bool, option("Check all files of a results folder instead.", "--store")] = False,
    machine: Annotated[bool, option("Check this machine and the installed packages instead.", "--machine")] = False,
    results: Annotated[
        Path | None, option("Folder of the run store, with --store or --machine.", show_default=str(RESULTS))
    ] = None,
    format: FormatOption = "terminal",
) -> None:
    """Check YAML files, a results folder, or this machine.

    Every problem of a file is listed, without training. A file with the key task
    is a task. A file with vary, set, mode, rows, seeds or another key of a grid
    is a grid. Any other file with labels is a set of labels. A profile belongs to
    the suite that it names. If it names none, it belongs to the suite of the
    profile under like, else to MAD if it has learning_rates, to language models
    if it has training, or to a suite that recognizes another key. The exit code
    is 2 if anything is wrong.

    --store reads every file of a results folder to its last bit: records, curves,
    weights, measurements, checkpoints, corpora, index, journals. It names damaged
    files with a remedy, and changes nothing.

    --machine shows the properties of this machine, runs every path of the
    operator once, and names missing requirements of training. A broken family or
    task of another package is also named, which is not an error.

    [bold]Examples[/bold]

      madbench validate                       every shipped file and label
      madbench validate variants/mine.yaml
      madbench validate my_task.yaml my_profile.yaml -f json
      madbench validate --store --results /data/runs
      madbench validate --machine --results /data/runs
    """
    as_json = format == "json"
    if machine and (files or store):
        raise no_effect("--machine", f"with {files[0] if files and not store else '--store'}; give one of the two")
    if machine:
        check_machine(results or RESULTS, as_json)
        return
    if files and store:
        raise no_effect(str(files[0]), "with --store, which checks the folder of --results")
    if results and not store:
        raise no_effect(f"--results {results}", "without --store or --machine")
    if store:
        reports = check_store(results or RESULTS)
    else:
        reports = [check_file(path) for path in files or _shipped_files()]
        reports += [] if files else _broken_tasks()
    if as_json:
        print_json(reports)
    else:
        _print(reports)
    if wrong := [report for report in reports if not report["ok"]]:
        where = ", ".join(report["kind"] for report in wrong)
        if not store:
            where = f"{len(wrong)} of {count_text(len(reports), 'file')}"
        raise ConfigError(f"{count_text(sum(len(report['problems']) for report in wrong), 'problem')} in {where}")


def _print(reports: Sequence[Mapping[str, Any]]) -> None:
    console = Console(highlight=False)
    for report in reports:
        verdict = ("ok   ", "green") if report["ok"] else ("wrong", "bold red")
        content = f"  {report['kind']}: {report['summary']}" if report["ok"] else ""
        console.print(Text.assemble(verdict, f"  {report['file']}", (content, "dim")), soft_wrap=True)
        for text in (*report["problems"], *(f"note: {note}" for note in report["notes"])):
            console.print(Text("       " + text.replace("\n", "\n       ")), soft_wrap=True)


def _shipped_files() -> list[Path]:
    """The files of all named sets of labels, all tasks and all profiles, including those of installed packages."""
    profiles = [path for suite in suites().values() for path in suite.Profile.files().values()]
    paths = [*available_sets().values(), *(file.path for file in loaded_tasks().values()), *profiles]
    working_folder = Path.cwd()
    return [path.relative_to(working_folder) if path.is_relative_to(working_folder) else path for path in paths]


def _broken_tasks() -> list[dict[str, Any]]:
    """One report for each installed task that cannot be loaded, in the form of :func:`check_file`."""
    report = {"ok": False, "kind": "task", "summary": "", "notes": []}
    return [report | {"file": name, "problems": [reason]} for name, reason in broken_tasks().items()]


def check_file(path: Path) -> dict[str, Any]:
    """Check one YAML file.

    The report has the keys ``ok``, ``file``, ``kind``, ``summary``, ``problems`` and ``notes``.
    """
    kind, summary, notes = "", "", list[str]()
    try:
        if path.is_dir():
            raise ConfigError(f"{path}: a folder; for results: madbench validate --store --results {path}")
        if path.name.endswith(".tar.xz"):
            raise ConfigError(f"{path}: an archive; to check and add its runs: madbench import {path}")
        mapping = read_yaml(path)
        kind, check = _kind_of(path, mapping)
        problems, summary, notes = check(path, mapping)
    except ConfigError as error:
        problems = [str(error)]
    report = {"ok": not problems, "file": str(path), "kind": kind, "summary": "" if problems else summary}
    return report | {"problems": problems, "notes": notes}


def _kind_of(path: Path, mapping: Mapping[str, Any]) -> tuple[str, Callable[[Path, Mapping[str, Any]], Finding]]:
    """The kind of a YAML file with the content ``mapping``, such as ``grid``, and the function that checks such files.

    A file with the key ``suite``, or in a folder of profiles, is a profile. Otherwise the keys in ``mapping`` or the
    name of the folder tell the kind. Raises ``ConfigError`` if they do not, and for an unknown suite or profile.
    """
    if mapping.get("suite") is not None:
        suite = find_suite(str(mapping["suite"]), f"{path}: suite: ")
        return suite.Profile.noun, functools.partial(_check_profile, suite)
    folder, all_suites = path.resolve().parent, [*suites().values()]
    if of_folder := [suite for suite in all_suites if folder in _profile_folders(suite)]:
        return of_folder[0].Profile.noun, functools.partial(_check_profile, of_folder[0])
    kinds = [("task", "task", _check_task), ("variants", "labels", _check_variants)]
    kinds += [(suite.Profile.noun, suite.file_key, functools.partial(_check_profile, suite)) for suite in all_suites]
    if "task" not in mapping and (GRID_KEYS & mapping.keys() or {"labels", "tasks"} <= mapping.keys()):
        return "grid", _check_grid
    if "task" not in mapping and (similar_suite := _suite_like(mapping)):
        return similar_suite.Profile.noun, functools.partial(_check_profile, similar_suite)
    if LIKE in mapping and "task" not in mapping and "labels" not in mapping:
        raise ConfigError(f"{path}: {LIKE}: {_unknown_profile(mapping[LIKE])}")
    matching = [(kind, check) for kind, key, check in kinds if key and key in mapping]
    matching = matching or [(kind, check) for kind, _, check in kinds if folder.name in (kind, f"{kind}s")]
    if not matching:
        known_keys = ", ".join([*(f"{key} ({kind})" for kind, key, _ in kinds if key), f"{LIKE} (any profile)"])
        raise ConfigError(f"{path}: cannot tell what this is; expected one of the keys {known_keys}")
    return matching[0]


def _suite_like(mapping: Mapping[str, Any]) -> Suite | None:
    """The suite of a profile whose file, with the content ``mapping``, names another profile under the key ``like``.

    It is a suite with a profile of this name, preferably one that has all tasks of the file. None if no suite has such
    a profile.
    """
    suites_with_profile = [suite for suite in suites().values() if mapping.get(LIKE) in suite.Profile.names()]
    tasks = mapping.get("tasks") or ()
    fitting = [
        suite for suite in suites_with_profile if isinstance(tasks, Mapping) and set(tasks) <= set(suite.tasks())
    ]
    return next(iter([*fitting, *suites_with_profile]), None)


def _unknown_profile(named: Any) -> str:
    """The end of the error message for an invalid value ``named`` of the key ``like``. It suggests a valid value."""
    every = list(dict.fromkeys(name for suite in suites().values() for name in suite.Profile.names()))
    if isinstance(named, str):
        return f"{short_repr(named)}: no such profile{did_you_mean(named, every, 'madbench ls profiles')}"
    name = named[0] if isinstance(named, list) and len(named) == 1 and named[0] in every else "quick"
    return f"expected the name of one shipped profile, such as {LIKE}: {name}, got {short_repr(named)}"


def _profile_folders(suite: Suite) -> set[Path]:
    """The folders that have the named profiles of a suite."""
    return {file.parent.resolve() for file in suite.Profile.files().values()}


def _check_variants(path: Path, mapping: Mapping[str, Any]) -> Finding:
    sound = {"description": "", "labels": ["S"]}
    problems = find_problems(lambda content: from_mapping(LabelSet, content, str(path)), mapping, sound, path)
    specs = mapping["labels"] if isinstance(mapping.get("labels"), list) else []
    for i, spec in enumerate(specs):
        where = f"{path}: labels[{i}]"
        if isinstance(spec, str):
            if spec in specs[:i]:
                problems.append(f"{where}: {short_repr(spec)} is in the set already, as labels[{specs.index(spec)}]")
            try:
                expand([spec], path.parent)
            except MadbenchError as error:
                problems.append(f"{error}\nin {where}")
    return problems, "" if problems else f"{len(expand([f'@{path}']))} labels", []


def _check_task(path: Path, mapping: Mapping[str, Any]) -> Finding:
    tasks = loaded_tasks()
    is_known = mapping.get("task") in tuple(tasks)  # the value may be of any type, also a list
    file = tasks[mapping["task"] if is_known else next(iter(tasks))]
    sound = {"description": file.description, "baseline": dataclasses.asdict(file.baseline)}
    sound |= {"task": file.task} if is_known else {}
    problems = find_problems(lambda content: load_task_file(path, content), mapping, sound, path)
    settings = () if problems else load_task_file(path).settings
    return problems, f"{file.task}, {len(settings)} settings", []


def _check_grid(path: Path, mapping: Mapping[str, Any]) -> Finding:
    from madbench.experiment import ExperimentOptions, prepare  # imports torch

    def load(content: Mapping[str, Any]) -> None:
        grid = expand_grid(from_mapping(GridFile, content, str(path)), str(path))
        with contextlib.suppress(NoCorpusError):  # it is prepared when the grid is trained
            prepare(grid, ExperimentOptions(is_plan=True, makes_corpus=False))

    sound = {"rows": [{"label": "S"}]} if mapping.get("mode") == "list" else {"labels": ["S"]}
    problems = find_problems(load, mapping, sound, path)
    count = 0 if problems else len(expand_grid(from_mapping(GridFile, mapping, str(path))).rows)
    return problems, count_text(count, "row"), []


def _check_profile(suite: Suite, path: Path, mapping: Mapping[str, Any]) -> Finding:
    cls = suite.Profile

    def load(content: Mapping[str, Any]) -> None:
        profile = from_mapping(cls, content, str(path), (LIKE,))
        check_suites_in(profile, suite)
        suite.check_profile(profile)

    mapping, shipped_mapping = cls.read(path), cls.read(next(iter(cls.files().values())))
    required_fields = [field.name for field in dataclasses.fields(cls) if field.default is field.default_factory]
    problems = find_problems(load, mapping, {name: shipped_mapping[name] for name in required_fields}, path)
    if problems:
        return problems, "", []
    profile = cls.load(str(path))
    summary, lengths = suite.check_profile(profile)
    return [], summary, _notes(profile, lengths)


def _notes(profile: Profile[Any], lengths: set[int]) -> list[str]:
    """Notes on sequence lengths at which labels of ``@table1`` cannot meet the strict budget in this profile."""
    model = profile.model_config()
    failed: dict[int, list[str]] = {}
    for length, label in itertools.product(sorted(lengths), expand(["@table1"])):
        try:
            solve(label, model.d_model, model.n_head, length, "strict", **profile.mixer_settings(label))
        except BudgetError:
            failed.setdefault(length, []).append(label)
    return [f"no ranks at seq_len {n} under the strict budget: {', '.join(labels)}" for n, labels in failed.items()]
