"""The code that affects the numbers of a job, as its record describes it and as it is installed now.

Code of plugins and of users' modules is recorded as lists of files. Code of this package is recorded as digests of
whole files, without comments and docstrings (:mod:`madbench.identity.package`). There is one digest per part. The code
of a package in ``madbench/papers`` belongs to the part that uses it:

- ``family``: the families of the label's mixers, the modules that build the mixers of a model, what all of these import
  from ``madbench.mixers``, and the class ``Traits``. Modules that only check or explain are left out. Of a family that
  lists published operators, only the operators of the label are included;
- ``task``: the task's generator, and the modules of ``madbench.tasks`` that the generator or the suite's trial imports.
  For a suite that reads text: the modules of ``madbench.text`` that the trial imports;
- ``suite``: the suite's trial, and the modules of ``madbench.suites`` or of a paper's package that the trial or the
  base class of trials imports;
- ``model``: the modules of ``madbench.models`` that the trial imports, with their own imports there;
- ``training``: the training loop and its imports from ``madbench.training``, without modules that only measure costs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from madbench.details import Details
from madbench.errors import LabelError, MadbenchError, TrainingError
from madbench.identity.listing import KIND, code_state
from madbench.identity.package import gives_equal_bits, imports_within, package_digest
from madbench.jobs import Job
from madbench.labels import family_name, family_of, label_code, label_identity, missing_package, own_modules
from madbench.labels.patterns import part_texts
from madbench.suites import find_suite, suite_code
from madbench.tasks import settings_class, task_code, task_names, task_source

Modules = tuple[list[str], list[str], Callable[[str], bool]]
"""The arguments of :func:`madbench.identity.package.package_digest`, which select the modules of one part."""
PARTS = ("family", "task", "suite", "model", "training")
NO_NUMBERS = (
    "madbench.mixers.my.code",
    "madbench.mixers.my.sources",
    "madbench.mixers.named.loops",
    "madbench.mixers.named.operators",
    "madbench.suites.code",
    "madbench.tasks.heuristics",
    "madbench.text.sources",
    "madbench.training.cost",
    "madbench.training.measured",
)
"""Modules that check, explain, list or measure, and affect no number of a run."""
NO_NUMBERS_OF_MIXERS = ("checks", "diagnosis", "explanations")
"""Names of modules and of folders of modules, in ``mixers`` and ``papers``, that affect no number of a run."""
MOST_LETTERS = 200
"""The largest number of characters of a file's location that are shown."""


def code_details(job: Job) -> Details:
    """The details of a record that describe the code that trains the job.

    ``package_code`` has the digests of :func:`package_code`. ``code`` has the lists of :func:`outside_code`, and is
    left out if there are none.
    """
    outside = outside_code(job)
    package = package_code(job)
    return {"code": outside, "package_code": package} if outside else {"package_code": package}


def check_planned_code(job: Job) -> None:
    """Raise ``TrainingError`` if code outside of this package changed since the job was planned.

    A worker process imports the code again and may find an edited version.
    """
    now = label_identity(job.label) if KIND in job.family else job.family
    source = task_source(job.task) if KIND in job.task_source else job.task_source
    if (now, source) != (job.family, job.task_source):
        what = job.label if now != job.family else f"task {job.task}"
        raise TrainingError(f"{what}: its code changed after this run was planned; give the command again")


@dataclass(frozen=True)
class RunCode:
    """The comparison of the code of a stored run with the installed code."""

    state: Literal["same", "changed", "absent", "unknown", "other"] = "same"
    """``same`` if no difference was found, and ``other`` if code of this package differs. Further states concern code
    outside of this package: ``changed``, ``absent`` if it is not on this machine, and ``unknown`` if the record does
    not list it.
    """
    what: str = ""
    """The subject of ``state``: the changed file, the absent file or package, or, for ``other``, the parts of this
    package whose code differs from that of the run. Empty for ``same`` and ``unknown``.
    """
    is_recorded: bool = True
    """True if the record has digests of this package's code."""

    @property
    def text(self) -> str:
        """The difference in a few words, such as ``my_mixers.py changed``.

        Empty if no difference was found, also if the record has no digests to compare. ``not recorded`` if the record
        does not list the run's code outside of this package.
        """
        texts = {"changed": f"{self.what} changed", "absent": f"{self.what} is not here", "unknown": "not recorded"}
        return texts.get(self.state, f"madbench's code of {self.what} changed" if self.state == "other" else "")


def run_code(job: Job, details: Details) -> RunCode:
    """Compare the code of a run, from the ``details`` of its record, with the installed code.

    The files of users' modules are read as text and not imported.
    """
    outside, package = details.get("code"), details.get("package_code")
    recorded = package if isinstance(package, dict) else None
    is_recorded = recorded is not None
    for code in outside.values() if isinstance(outside, dict) else ():
        if (state := code_state(code)).kind != "same":
            return RunCode(state.kind, _printable(state.file), is_recorded)
    if not isinstance(outside, dict) and job.has_outside_code:
        return RunCode("unknown", "", is_recorded)
    try:
        missing = missing_package(job.label)
    except LabelError:  # a family that is not installed, whose runs list their code
        missing = ""
    if missing:
        return RunCode("absent", missing, is_recorded)
    if recorded is None:
        return RunCode(is_recorded=False)
    here = package_code(job)
    parts = [part for part in PARTS if recorded.get(part, "") != here.get(part, "")]
    if "processor" in details:  # of a run on a CPU, where runs were trained again to show that digests are equal
        parts = [part for part in parts if not gives_equal_bits(part, str(recorded.get(part, "")), here.get(part, ""))]
    names = [f"the {'label family' if part == 'family' else part}" for part in parts]
    return RunCode("other", " and ".join(names)) if parts else RunCode()


def _printable(place: str) -> str:
    """The location of a file as a record names it, shortened and without control characters, for output to a terminal.

    The record may come from a stranger.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in place[:MOST_LETTERS])


def listed_code(details: Details, what: str) -> Any:
    """The list of code files that the ``details`` of a record have for the role ``what``. None if there is none.

    Roles are ``mixer``, ``mixer 2``, ..., ``task`` and ``suite``.
    """
    outside = details.get("code")
    return outside.get(what) if isinstance(outside, dict) else None


def outside_code(job: Job) -> dict[str, Any]:
    """The lists of files of a job's code outside of this package, by role. Empty if there is no such code.

    Roles are ``mixer``, ``task`` and ``suite``. If a label combines several mixers from outside, the second is ``mixer
    2``.
    """
    mixers = [code for part in part_texts(job.label) if (code := label_code(part))]
    lists: dict[str, Any] = {f"mixer {i}" if i > 1 else "mixer": code for i, code in enumerate(mixers, 1)}
    lists |= {"task": task_code(job.task), "suite": suite_code(job.suite)}
    return {name: code for name, code in lists.items() if code}


def package_code(job: Job) -> dict[str, str]:
    """The digests of this package's code that trains the job, by part: a subset of ``PARTS``.

    A part that comes from a plugin is left out.
    """
    return dict(_package_code(*_code_names(job)))


def job_modules(job: Job) -> dict[str, Modules]:
    """The result of :func:`package_modules` for the suite, task and label of a job."""
    return package_modules(*_code_names(job))


def _code_names(job: Job) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """The arguments of :func:`package_modules` for a job.

    They are the names of its suite, of its task and of the families of its mixers, and the modules that only some
    labels of these families need, among them the job's label (:func:`madbench.labels.own_modules`).
    """
    parts = part_texts(job.label)
    families = dict.fromkeys(map(family_name, parts))
    own = dict.fromkeys(name for part in parts for name in own_modules(part))
    return job.suite, job.task, tuple(families), tuple(own)


@functools.cache
def _package_code(suite: str, task: str, families: tuple[str, ...], own: tuple[str, ...]) -> dict[str, str]:
    digests = {name: package_digest(*where) for name, where in package_modules(suite, task, families, own).items()}
    return {name: digest for name, digest in digests.items() if digest}


def package_modules(suite: str, task: str, families: Sequence[str], own: Sequence[str] = ()) -> dict[str, Modules]:
    """A description of the modules of madbench whose code trains a job, for each part in ``PARTS``.

    A description has the three arguments of :func:`madbench.identity.package.package_digest`: the modules from which
    imports are followed, the subpackages in which they are followed, and a function that is true for modules to leave
    out.
    ``families`` are the names of the families of the label's mixers. ``own`` has the modules of the label's own
    operators (:func:`madbench.labels.own_modules`).
    """
    suite_object = find_suite(suite)
    trial = suite_object.trial.partition(":")[0]
    imported = imports_within(trial, ["madbench.suites", *_own_packages([trial])])
    imported += imports_within("madbench.suites.trial", ["madbench.suites"])  # the schedule of learning rates
    of_suite = {name for name in (trial, *imported) if not affects_no_number(name)}
    generators = [module for name in of_suite for module in imports_within(name, [suite_object.data_package])]
    if task in task_names():
        generators.append(settings_class(task).__module__)
    models = [module for name in of_suite for module in imports_within(name, ["madbench.models"])]
    of_families = [_module_of(family) for family in families]
    is_ours = any(module.startswith("madbench.") for module in of_families)
    building = imports_within("madbench.suites.trial", ["madbench.mixers"]) if is_ours else []
    return {
        "family": (
            [*of_families, *own, *building],
            ["madbench.mixers", "madbench.labels.traits", *_own_packages(of_families)],
            affects_no_number,
        ),
        "task": (generators, [suite_object.data_package, *_own_packages(generators)], affects_no_number),
        "suite": (sorted(of_suite), [], affects_no_number),
        "model": (models, ["madbench.models"], affects_no_number),
        "training": (["madbench.training.loop"], ["madbench.training"], affects_no_number),
    }


def affects_no_number(module: str) -> bool:
    """True if the code of a module cannot change the numbers of a run. ``module`` is its dotted name."""
    _, room, *places = module.split(".")
    return module in NO_NUMBERS or (
        room in ("mixers", "papers") and any(name in NO_NUMBERS_OF_MIXERS for name in places)
    )


def _own_packages(modules: Iterable[str]) -> list[str]:
    """The dotted names of the packages in ``madbench/papers`` that contain at least one of the modules."""
    places = (module.split(".") for module in modules)
    return [*dict.fromkeys(".".join(place[:3]) for place in places if place[:2] == ["madbench", "papers"])]


def _module_of(family: str) -> str:
    try:
        return type(family_of(f"{family}:" if family else "")).__module__
    except MadbenchError:  # the suite, task or family is not installed
        return ""
