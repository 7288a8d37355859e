"""The registry of tasks: the tasks of this folder, and of installed packages (entry points ``madbench.tasks``).

The file of a task (``tasks/*.yaml``) lists its settings: the baseline, and settings that differ from it in one
variable. :func:`generate` draws the examples of a setting. Importing this module does not import numpy.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench import config
from madbench.config import from_mapping, read_yaml
from madbench.errors import ConfigError, did_you_mean
from madbench.plugins.registry import Registry, entry_point_name, resolve, wrap_load_errors
from madbench.tasks.base import IGNORE, SPLITS, Examples, Split, TaskSetting

if TYPE_CHECKING:
    import numpy as np

GROUP = "madbench.tasks"
HEURISTICS = config.TASKS / "heuristics.yaml"
TOKENS_PER_CHUNK = 1 << 17
"""Number of tokens that are drawn at a time, so that they stay in the processor's cache. Another value changes the data
of every task.
"""

_RESERVED = ("language_model", "mad_average", "task_mean")


@functools.cache
def _built_in() -> dict[str, str]:
    """The location ``module:Class`` of each built-in task, by the task's name. No class is imported.

    A built-in task has a YAML file in the folder ``tasks``, and a class with a corresponding name in a module of this
    folder. For example, the class of ``noisy_in_context_recall`` is ``NoisyInContextRecall``.
    """
    classes = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        for name in re.findall(r"^class (\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE):
            classes[re.sub("(?<!^)(?=[A-Z])", "_", name).lower()] = f"madbench.tasks.{file.stem}:{name}"
    names = sorted(path.stem for path in config.TASKS.glob("*.yaml"))
    return {name: classes[name] for name in names if name in classes}


def task_names() -> tuple[str, ...]:
    """The names of all tasks: first the built-in tasks, then those of installed packages, each sorted.

    No task is imported.
    """
    return REGISTRY.names


def tasks_of(suite: str) -> tuple[str, ...]:
    """The names of the tasks of the suite named ``suite``, in the order of :func:`task_names`.

    Tasks that cannot be loaded count as tasks of the default suite of a task.
    """

    def suite_of(task: str) -> str:
        try:
            return settings_class(task).suite
        except ConfigError:
            return TaskSetting.suite

    return tuple(task for task in task_names() if suite_of(task) == suite)


def loaded_tasks() -> dict[str, TaskFile]:
    """The task files of all tasks that can be loaded, by name of the task. Tasks that cannot be loaded are left out."""
    return {name: task for name in task_names() if not isinstance(task := _try_to_load(name), ConfigError)}


def broken_tasks() -> dict[str, str]:
    """The reason why a task cannot be used, by name of the task, sorted. Tasks that can be used are left out."""
    failed = {name: str(error) for name in task_names() if isinstance(error := _try_to_load(name), ConfigError)}
    return dict(sorted((failed | REGISTRY.refused).items()))


def task_problem(task: str) -> str:
    """The reason why a task cannot be used. Empty if it can be used, and for an unknown name."""
    if task not in task_names():
        return REGISTRY.refused.get(task, "")
    return str(error) if isinstance(error := _try_to_load(task), ConfigError) else ""


def is_built_in(task: str) -> bool:
    """True if the task is part of madbench. False for a task of an installed package, and for an unknown name."""
    return task in REGISTRY.built_in


@dataclass(frozen=True)
class TaskContent:
    """The content of a task file before validation. ``vary`` maps fields of the baseline to lists of other values.

    :func:`load_task_file` makes a :class:`TaskFile` of it.
    """

    task: str
    description: str
    baseline: dict  # type: ignore[type-arg]  # the digest of stored runs covers annotations of fields
    vary: dict = field(default_factory=dict)  # type: ignore[type-arg]  # as the field above


@dataclass(frozen=True)
class TaskFile:
    """A validated task file, with one setting for the baseline and one for each value of a varied field."""

    path: Path
    task: str
    description: str
    """The task in one sentence."""
    settings: tuple[TaskSetting, ...]
    """The baseline, then settings that differ in one field, in the file's order."""

    @property
    def baseline(self) -> TaskSetting:
        """The first setting, from which every other setting differs in one field."""
        return self.settings[0]

    def change_of(self, setting: TaskSetting) -> dict[str, Any]:
        """The fields in which ``setting`` differs from the baseline, with their values. Empty for the baseline."""
        baseline = asdict(self.baseline)
        return {name: value for name, value in asdict(setting).items() if value != baseline[name]}


def settings_class(task: str) -> type[TaskSetting]:
    """The class of the settings of ``task``. Raises ``ConfigError`` if the task is unknown or cannot be loaded."""
    check_task(task)
    return REGISTRY.load(task)


def _load_class(task: str, value: str) -> type[TaskSetting]:
    where = entry_point_name("task", task, value)
    with wrap_load_errors(where, ConfigError):
        cls = resolve(value)
    if not (isinstance(cls, type) and issubclass(cls, TaskSetting)):
        raise ConfigError(f"{where}: expected a subclass of madbench.tasks.base.TaskSetting, got {cls!r}")
    if missing := next((name for name in ("heading", "title", "roles") if not hasattr(cls, name)), None):
        raise ConfigError(f"{where}: the class has no {missing!r}")
    return cls


def task_path(task: str) -> Path:
    """The path of the YAML file of ``task``. For an installed task, it lies next to the module of its class.

    Raises ``ConfigError`` for an unknown task.
    """
    if is_built_in(task):
        return config.TASKS / f"{task}.yaml"
    cls = settings_class(task)
    with wrap_load_errors(REGISTRY.where(task), ConfigError):
        return Path(inspect.getfile(cls)).with_name(f"{task}.yaml")


def task_source(task: str) -> str:
    """A text that identifies the source code of an installed task. Empty for a built-in task.

    It is part of a job's identity, so that runs with an edited generator are new runs. Raises ``ConfigError`` for an
    unknown task.
    """
    check_task(task)
    return REGISTRY.identity(task)


def task_code(task: str) -> dict[str, Any] | None:
    """The code listing (:mod:`madbench.identity.listing`) of an installed task. None for a built-in task."""
    return REGISTRY.code(task)


def check_task(task: str, where: str = "") -> None:
    """Raise ``ConfigError`` unless ``task`` is the name of a task. The message begins with ``where``."""
    REGISTRY.check(task, where)


def load_task_file(path: Path, mapping: Mapping[str, Any] | None = None) -> TaskFile:
    """Load the task file at ``path``. If ``mapping`` is given, it is used in place of the file's content.

    Raises ``ConfigError`` for an unknown task or key, a wrong type, or two equal settings.
    """
    content = from_mapping(TaskContent, read_yaml(path) if mapping is None else mapping, str(path))
    check_task(content.task, f"{path}: task: ")
    cls = settings_class(content.task)
    settings, where = [from_mapping(cls, content.baseline, f"{path}: baseline")], f"{path}: vary"
    for name, values in content.vary.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}: {name}: expected a list of values, got {values!r}")
        for value in values:
            setting = from_mapping(cls, {**content.baseline, name: value}, where)
            if setting in settings:
                raise ConfigError(f"{where}: {name}: {value!r} gives a setting that the file has already")
            settings.append(setting)
    return TaskFile(path, content.task, content.description.strip(), tuple(settings))


@functools.cache
def load_task(task: str) -> TaskFile:
    """Load and validate the YAML file of ``task``.

    Raises ``ConfigError`` if the task is unknown, or if its class or file cannot be loaded.
    """
    path = task_path(task)
    with wrap_load_errors(str(path), ConfigError, own=(ConfigError,)):
        file = load_task_file(path)
    if file.task != task:
        raise ConfigError(f"{file.path}: task: expected {task!r}, got {file.task!r}")
    return file


@functools.cache
def _try_to_load(task: str) -> TaskFile | ConfigError:
    try:
        return load_task(task)
    except ConfigError as error:
        return error


def make_setting(task: str, mapping: Mapping[str, Any], where: str) -> TaskSetting:
    """The setting of ``task`` with the values in ``mapping``, and with the baseline's values of all other fields.

    Raises ``ConfigError``, whose message begins with ``where``, for an unknown task or field, and for a value of the
    wrong type or outside the task's limits.
    """
    check_task(task, f"{where}: ")
    return from_mapping(settings_class(task), {**asdict(load_task(task).baseline), **mapping}, where)


def fault_of_name(name: str) -> str:
    """The reason why ``name`` cannot be the name of a task. Empty if it can."""
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in _RESERVED:
        return ""
    return f"the name has to be of the form my_task, and none of {', '.join(_RESERVED)}"


REGISTRY: Registry[type[TaskSetting]] = Registry(
    GROUP, "task", fault_of_name=fault_of_name, load=_load_class, built_in=_built_in
)


def generate(task: str, setting: TaskSetting, split: Split, seed: int) -> Examples:
    """Generate the examples of ``split`` for a setting. They are the same on every machine.

    The split ``train`` has training targets, and the other splits have evaluation targets.

    Raises ``ConfigError`` for an unknown task or split, and ``TypeError`` if ``setting`` belongs to another task.
    """
    import numpy as np

    rng = stream(task, setting, split, seed)
    count = setting.count(split)
    inputs: np.ndarray = np.empty((count, setting.input_len), np.int64)
    targets = np.empty_like(inputs)
    rows = max(1, TOKENS_PER_CHUNK // setting.seq_len)
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        inputs[start:stop], targets[start:stop] = setting.draw(rng, stop - start, training=split == "train")
    return Examples(inputs, targets)


def ceiling(task: str, setting: TaskSetting, seed: int) -> float:
    """The best test accuracy that the data allow. Every target that does not follow from the data counts as wrong.

    A model can exceed the ceiling by lucky guesses. For example, in fuzzy recall with 16 ids (the task's baseline
    setting), the first token of an unknown value is guessed with probability 1/8.
    """
    return setting.ceiling(lambda split: generate(task, setting, split, seed))


def heuristic(task: str, setting: TaskSetting) -> float:
    """The test accuracy of the best rule that ignores the order of the context (:mod:`madbench.tasks.heuristics`).

    For settings of shipped profiles it is read from a file that ``studies/heuristics.py`` writes. For other settings it
    is computed, which takes about a second. NaN if the setting draws no question.
    """
    shipped = _shipped_heuristics().get(task, {}).get(questions_text(setting))
    return _compute_heuristic(setting) if shipped is None else shipped


def questions_text(setting: TaskSetting) -> str:
    """The fields of a setting except the numbers of examples, as text.

    Settings with equal texts ask the same questions.
    """
    counts = {f"num_{split}_examples" for split in SPLITS}
    return ", ".join(f"{name} {value}" for name, value in asdict(setting).items() if name not in counts)


@functools.cache
def _shipped_heuristics() -> Mapping[str, Mapping[str, float]]:
    return read_yaml(HEURISTICS)


@functools.cache
def _compute_heuristic(setting: TaskSetting) -> float:
    from madbench.tasks.heuristics import heuristic_accuracy

    return heuristic_accuracy(setting)


def stream(task: str, setting: TaskSetting, split: Split, seed: int) -> np.random.Generator:
    """The random generator for all draws of one split. Its seed is a hash of all four arguments.

    Every field of the setting enters the hash, including the numbers of examples. The data of different settings are
    therefore independent, and a mean over settings does not count the luck of one test set several times.

    Raises ``ConfigError`` for an unknown task or split, and ``TypeError`` if ``setting`` belongs to another task.
    """
    import numpy as np

    if type(setting) is not settings_class(task):
        raise TypeError(f"task {task} needs a {settings_class(task).__name__}, got a {type(setting).__name__}")
    if split not in SPLITS:
        raise ConfigError(f"unknown split {split!r}{did_you_mean(split, SPLITS)}")
    content = {"task": task, "setting": asdict(setting), "split": split, "seed": int(seed)}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def find_violations(setting: TaskSetting, examples: Examples, split: Split) -> list[str]:
    """Check the examples of a split against the rules of ``setting``.

    Return one message per violation, or an empty list. The answers of every example are computed again from its tokens
    (:meth:`TaskSetting.read`), without the code that generated them.
    """
    shape = (setting.count(split), setting.input_len)
    if examples.inputs.shape != shape or examples.targets.shape != shape:
        return [f"inputs {examples.inputs.shape} and targets {examples.targets.shape}, expected {shape} for both"]
    violations = []
    for index, (inputs, targets) in enumerate(zip(examples.inputs.tolist(), examples.targets.tolist())):
        foreign = [token for token in {*inputs} | ({*targets} - {IGNORE}) if not 0 <= token < setting.vocab_size]
        if foreign:
            problems = [f"ids {sorted(foreign)} are outside 0..{setting.vocab_size - 1}"]
        else:
            reading = setting.read(inputs, targets, split == "train")
            unknown = {*reading.roles} - {*setting.roles}
            problems = [*reading.problems, *(f"role {role!r} is not among the task's roles" for role in unknown)]
            problems += [
                f"position {position}: target {target}, expected {expected}"
                for position, (target, expected) in enumerate(zip(targets, reading.targets, strict=True))
                if target != expected
            ]
        violations += [f"example {index}: {problem}" for problem in problems]
    return violations
