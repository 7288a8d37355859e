"""A broken installed family or task is named, and affects only its own labels and tasks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import madbench
from conftest import forget_installed
from madbench.config import TASKS
from madbench.jobs import Record
from madbench.training import cost
from sample_jobs import mad_job

CHECKOUT = str(Path(madbench.__file__).resolve().parents[1])
BROKEN_MODULES = {
    "a syntax error": ("def family(:\n", "SyntaxError"),
    "a value error": ("int('seven')\n", "ValueError: invalid literal"),
    "an exit": ("import sys\nsys.exit('usage: mend me')\n", "SystemExit: usage: mend me"),
    "a missing import": ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
    "no such attribute": ("", "has no attribute"),
    "a number": ("FAMILY = Task = 7\n", "got 7"),
    "a class": ("class FAMILY: pass\nTask = FAMILY\n", ""),
    "an error that is none": ("class Stop(BaseException): pass\nraise Stop('now')\n", "Stop: now"),
    "a label of its own": ("import madbench\nmadbench.parse('S-zzz')\n", "S-zzz"),
    "an attribute that fails": (
        "class Family:\n    @property\n    def name(self): raise OSError('no license')\nFAMILY = Task = Family()\n",
        "",
    ),
}


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """``install({"bad.py": source}, "madbench.families", "bad = bad:FAMILY")``: a package, for new processes too."""

    def call(files, group, *points, name="bad"):
        site = tmp_path_factory.mktemp("site")
        for path, source in files.items():
            (site / path).write_text(source)
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *points]) + "\n")
        monkeypatch.syspath_prepend(site)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
        forget_installed()
        return site

    yield call
    monkeypatch.undo()
    forget_installed()


@pytest.fixture(params=BROKEN_MODULES)
def broken_family(request, install):
    """Install a faulty family ``bad``. Return a part of the reason that messages must give."""
    source, reason = BROKEN_MODULES[request.param]
    module = f"bad_family_{list(BROKEN_MODULES).index(request.param)}"
    install({f"{module}.py": source}, "madbench.families", f"bad = {module}:FAMILY")
    return reason


@pytest.fixture(params=[*BROKEN_MODULES, "no file of settings", "YAML that is none", "a file that does not fit"])
def broken_task(request, install):
    """Install a faulty task ``bad``. Return a part of the reason that messages must give."""
    sound = (
        "from dataclasses import dataclass\nfrom madbench.tasks.base import TaskSetting\n"
        "@dataclass(frozen=True)\nclass Task(TaskSetting):\n    heading, title, roles = 'B', 'b', {}\n"
    )
    source, reason = BROKEN_MODULES.get(request.param, (sound, ""))
    module = f"bad_task_{request.param_index}"
    files = {f"{module}.py": source}
    if request.param == "YAML that is none":
        files["bad.yaml"], reason = "task: [bad\n", "not valid YAML"
    if request.param == "a file that does not fit":
        files["bad.yaml"], reason = "task: bad\ndescription: d\nbaseline: {vocab: 3}\n", "unknown key 'vocab'"
    install(files, "madbench.tasks", f"bad = {module}:Task")
    return reason


def test_a_broken_family_fails_its_own_labels_and_no_others(main, broken_family):
    assert main("explain", "S").code == 0
    assert main("data", "compression", "vocab_size=16").code == 0  # reads a profile, whose keys are all families'
    assert main("ls", "labels", "hfa:2", "cd:gla").code == 0
    for words in (["explain", "bad:1"], ["run", "S", "bad:1", "--dry-run"], ["ls", "labels", "bad:1"]):
        ended = main(*words)
        assert ended.code == 2 and "family 'bad' (bad_family_" in ended.stderr and broken_family in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_broken_family_is_listed_with_the_reason(main, broken_family):
    rows = json.loads(main("ls", "families", "-f", "json").stdout)
    assert {"", "bad"} < {"", *(row["family"] for row in rows)} and len(rows) > 3
    (problem,) = [row["problem"] for row in rows if "problem" in row]
    assert "family 'bad' (bad_family_" in problem and broken_family in problem
    assert problem in main("ls", "families").stdout


WHOLE_FAMILY = """
import dataclasses

from madbench import mixers

{settings}

class Family(mixers.Family):
    name, version, Settings = "bad", "1", Settings

    def labels(self):
        {labels}

    def parse(self, text):
        raise ValueError("no label")

    factors = neighbors = explain = solve = build = checks = parse


FAMILY = Family()
"""
SETTINGS = "@dataclasses.dataclass(frozen=True)\nclass Settings:\n    "


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (f"{SETTINGS}size: 'NoSuchType' = 1\n", "NameError"),
        (
            f"{SETTINGS}size: int = 1\n    def __post_init__(self):\n        raise RuntimeError('no license')\n",
            "no license",
        ),
        (f"{SETTINGS}size: int\n", "'size'"),
        ("Settings = 3\n", "Settings"),
    ],
)
def test_a_family_whose_settings_raise_an_error_is_broken(main, install, settings, reason):
    source = WHOLE_FAMILY.format(settings=settings, labels="return ()")
    module = f"bad_settings_{abs(hash(settings))}"
    install({f"{module}.py": source}, "madbench.families", f"bad = {module}:FAMILY")
    assert main("data", "compression", "vocab_size=16").code == 0
    (problem,) = [row["problem"] for row in json.loads(main("ls", "families", "-f", "json").stdout) if "problem" in row]
    assert reason in problem and "family 'bad'" in problem


def test_a_family_whose_labels_cannot_be_listed_is_named_and_the_others_are_listed(main, install):
    source = WHOLE_FAMILY.format(settings=f"{SETTINGS}size: int = 1\n", labels="return 1 / 0")
    install({"bad_labels.py": source}, "madbench.families", "bad = bad_labels:FAMILY")
    rows = json.loads(main("ls", "families", "-f", "json").stdout)
    assert ["ZeroDivisionError" in row["problem"] for row in rows if "problem" in row] == [True] and len(rows) > 4


def test_settings_whose_source_is_unavailable_are_listed_without_descriptions(main, install):
    settings = "Settings = dataclasses.make_dataclass('Settings', [('size', int, 1)], frozen=True)\n"
    source = WHOLE_FAMILY.format(settings=settings, labels="return ()")
    install({"bad_source.py": source}, "madbench.families", "bad = bad_source:FAMILY")
    assert main("data", "compression", "vocab_size=16").code == 0 and main("ls", "profiles").code == 0
    rows = {row["family"]: row for row in json.loads(main("ls", "families", "-f", "json").stdout)}
    assert rows["bad"]["settings"] == "size" and "problem" not in rows["bad"]


def test_a_broken_task_fails_itself_and_no_other(main, broken_task):
    assert main("data", "compression").code == 0
    for words in (["run", "S", "-t", "bad", "--dry-run"], ["data", "bad"]):
        ended = main(*words)
        assert ended.code == 2 and broken_task in ended.stderr and "Traceback" not in ended.stderr
        assert "bad" in ended.stderr


def test_a_broken_task_is_listed_with_the_reason(main, broken_task):
    rows = json.loads(main("ls", "tasks", "-f", "json").stdout)
    (problem,) = [row["problem"] for row in rows if "problem" in row]
    assert broken_task in problem and len(rows) > 1 and rows[-1]["task"] == "bad"
    assert problem in main("ls", "tasks").stdout
    ended = main("data")
    assert ended.code == 0 and "compression" in ended.stdout and broken_task in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("broken_task", ["an error that is none", "a file that does not fit"], indirect=True)
def test_validate_reports_the_file_of_a_broken_task(main, broken_task):
    ended = main("validate", "-f", "json")
    assert ended.code == 2
    assert [report["file"] for report in json.loads(ended.stdout) if not report["ok"]] == ["bad"]


def test_a_broken_task_is_imported_once(main, install, tmp_path):
    source = "with open('imported', 'a') as file:\n    file.write('x')\nint('seven')\n"
    install({"bad_import.py": source}, "madbench.tasks", "bad = bad_import:Task")
    assert main("run", "S", "-t", "bad").code == 2 and main("ls", "tasks").code == main("data").code == 0
    assert (tmp_path / "imported").read_text() == "x"


@pytest.mark.slow
def test_validate_machine_lists_sound_packages(main, install_example):
    install_example("plugin")
    install_example("task")
    plugins = json.loads(main("validate", "--machine", "-f", "json").stdout)["plugins"]
    assert [(one["kind"], one["name"], one["works"]) for one in plugins] == [
        ("family", "lin", True), ("task", "prefix_sum", True)]  # fmt: skip


GROUPS = {"suite": "madbench.suites", "paper": "madbench.papers", "module": "madbench.modules"}
"""The entry-point group of each kind of package except families and tasks."""
ALL_GROUPS = {"family": "madbench.families", "task": "madbench.tasks"} | GROUPS
HALF = {
    "a suite without tasks": (
        "suite",
        "from madbench.suites import Suite\nclass Half(Suite):\n    name = 'bad'\nFAMILY = Half\n",
        "expected a madbench.suites.Suite",
    ),
    "a suite without the methods of every suite": (
        "suite",
        "from madbench.suites import Suite\nclass Half(Suite):\n    name = 'bad'\n    tasks = list\nFAMILY = Half()\n",
        "abstract methods canonical, plan, size",
    ),
    "a paper that was not read from a file": (
        "paper",
        "from madbench.papers import Paper\nFAMILY = Paper('t', 's', items=5)\n",
        "not iterable",
    ),
    "a paper with an item that is wrong": (
        "paper",
        "from madbench.papers import Item, Paper\nFAMILY = Paper('t', 's', (Item('a', 'p', 't', labels=('S',)),))\n",
        "labels have no effect without profiles",
    ),
    "a paper without its file": (
        "paper",
        "from pathlib import Path\nfrom madbench.papers import Paper\nFAMILY = Paper.load(Path('nowhere.yaml'))\n",
        "cannot be read",
    ),
    "a class that is no module": ("module", "class FAMILY:\n    pass\n", "but FAMILY is none"),
}


@pytest.fixture(params=[*zip(itertools.cycle(GROUPS), BROKEN_MODULES), *HALF.items()], ids=str)
def broken_package(request, install):
    """The kind of a broken installed package ``bad``, and a part of the reason that messages must give."""
    kind, content = request.param
    if isinstance(content, str):
        source, reason = BROKEN_MODULES[content]
    else:
        kind, source, reason = content
    module = f"bad_{kind}_{abs(hash(source))}"
    install({f"{module}.py": source}, GROUPS[kind], f"bad = {module}:FAMILY")
    return kind, reason


@pytest.mark.slow
def test_a_broken_suite_paper_or_module_is_listed_with_the_reason(main, broken_package):
    kind, reason = broken_package
    rows = json.loads(main("ls", f"{kind}s", "-f", "json").stdout)
    (problem,) = [row["problem"] for row in rows if "problem" in row]
    assert f"{kind} 'bad'" in problem and reason in problem and len(rows) > 1


@pytest.mark.slow
def test_a_task_of_a_broken_suite_has_the_reason_of_the_suite(main, install):
    install({"bad_suite.py": "import no_such_module_at_all\n"}, GROUPS["suite"], "bad = bad_suite:SUITE", name="bad")
    source = "from madbench.tasks.compression import Compression\nclass Task(Compression):\n    suite = 'bad'\n"
    settings = (TASKS / "compression.yaml").read_text().replace("task: compression", "task: its_task")
    files = {"its_task.py": source, "its_task.yaml": settings}
    install(files, ALL_GROUPS["task"], "its_task = its_task:Task", name="its_task")
    for words in (
        ["run", "S", "-t", "its_task"],
        ["table", "-t", "its_task"],
        ["run", "S", "-t", "bad/its_task"],
        ["data", "its_task"],
    ):
        ended = main(*words)
        assert ended.code == 2 and "No module named 'no_such_module_at_all'" in ended.stderr, ended.stderr


@pytest.fixture
def all_broken(install):
    """Names of broken packages by kind, one of every kind, each broken in another way."""
    ways = ("a missing import", "an attribute that fails", "an exit", "an error that is none", "a value error")
    for (kind, group), way in zip(ALL_GROUPS.items(), ways):
        files, name = {f"all_{kind}.py": BROKEN_MODULES[way][0]}, f"bad_{kind}"
        install(files, group, f"{name} = all_{kind}:FAMILY", name=name)
    return {kind: f"bad_{kind}" for kind in ALL_GROUPS}


@pytest.mark.slow
def test_commands_that_need_no_broken_package_succeed(main, fill, all_broken, monkeypatch):
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {job.task: 1e-10 for job in jobs})
    fill("S", profile="evening")
    for words in ("explain S", "run S --dry-run", "table", "paper", "data", "new claim", "ls suites"):
        claim = ["S > R on mad_average"] if words == "new claim" else []
        ended = main(*words.split(), *claim)
        assert ended.code == 0 and ended.stdout and "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.slow
def test_the_overview_marks_broken_packages_of_every_kind(main, all_broken):
    shown = " ".join(main("ls").stdout.split())
    assert all(f"{name} (broken)" in shown for name in all_broken.values())


@pytest.mark.slow
def test_doctor_names_broken_packages_of_every_kind_and_still_finds_the_machine_fit(main, all_broken):
    ended = main("validate", "--machine", "-f", "json")
    assert ended.code == 0
    plugins = {plugin["kind"]: plugin for plugin in json.loads(ended.stdout)["plugins"]}
    assert {kind: plugin["name"] for kind, plugin in plugins.items()} == all_broken
    assert not any(plugin["works"] for plugin in plugins.values())
    reasons = ("No module named", "expected a subclass", "SystemExit: usage: mend me", "Stop: now", "invalid literal")
    for plugin, reason in zip(plugins.values(), reasons):
        assert reason in plugin["reason"] and plugin["package"] == f"{plugin['name']} 1.0"
    shown = main("validate", "--machine").stdout
    assert "family bad_family" in shown and "No module named" in shown and "task bad_task" in shown


@pytest.mark.parametrize("name", BROKEN_MODULES)
def test_naming_a_broken_package_is_an_error_with_the_reason(main, install, name):
    source, reason = BROKEN_MODULES[name]
    for kind, group in GROUPS.items():
        module = f"asked_{kind}_{'abcdefghij'[list(BROKEN_MODULES).index(name)]}"
        install({f"{module}.py": source}, group, f"bad = {module}:FAMILY", name=f"bad_{kind}")
    for words in (
        ["run", "S", "-t", "bad/parity", "--dry-run"], ["paper", "bad"], ["findings", "--claims", "bad"],
        ["explain", "my:bad"], ["run", "my:bad", "--dry-run"],
    ):  # fmt: skip
        ended = main(*words)
        assert ended.code == 2 and "Traceback" not in ended.stderr
        assert reason in ended.stderr, (words, ended.stderr)


@pytest.mark.slow
def test_help_does_not_load_packages(install, tmp_path):
    install({"bad_one.py": "open('loaded', 'w')\nraise SystemExit(3)"}, "madbench.families", "bad = bad_one:FAMILY")
    install({"bad_two.py": "open('loaded', 'w')\nx ="}, "madbench.tasks", "bad = bad_two:Task", name="worse")
    program = (
        "import sys\nfrom madbench.cli import main\n"
        "for words in (['--help'], ['run', '--help']):\n    sys.argv = ['madbench', *words]\n    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], CHECKOUT])}
    how = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120}
    ended = subprocess.run([sys.executable, "-c", program], **how)
    assert ended.returncode == 0 and ended.stdout.count("Usage") == 2, ended.stderr
    assert not (tmp_path / "loaded").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "label", "reason"),
    [
        (["a = one:F", "a = two:F"], "a:1", "one:F has this name already"),
        (["a.b = one:F"], "a.b:1", "letters, digits"),
        (["cd = one:F"], None, "has this name already"),
        (["a = not a module"], "a:1", "cannot be loaded"),
    ],
)
def test_a_family_whose_name_is_taken_or_cannot_be_written_is_refused(main, install, points, label, reason):
    install({}, "madbench.families", *points)
    assert main("explain", "cd:gla").code == 0
    (problem,) = [row["problem"] for row in json.loads(main("ls", "families", "-f", "json").stdout) if "problem" in row]
    assert reason in problem
    if label:
        ended = main("explain", label)
        assert ended.code == 2 and reason in ended.stderr


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (["compression = one:T"], "madbench.tasks.compression:Compression has this name already"),
        (["language_model = one:T"], "none of language_model"),
        (["my.task = one:T"], "of the form my_task"),
        (["mine = one:T", "mine = two:T"], "one:T has this name already"),
    ],
)
def test_a_task_whose_name_is_taken_or_cannot_be_written_is_refused(main, install, points, reason):
    install({}, "madbench.tasks", *points)
    assert main("data", "compression").code == 0
    (problem,) = [row["problem"] for row in json.loads(main("ls", "tasks", "-f", "json").stdout) if "problem" in row]
    assert reason in problem


@pytest.mark.slow
def test_a_damaged_list_of_entry_points_hides_no_other_package(main, install, install_example):
    install_example("plugin")
    install({}, "madbench.families", "this line has no sign of equality")
    assert main("explain", "lin:elu").code == 0
    assert main("explain", "S").code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_stored_runs_of_a_broken_package_are_left_out_and_hide_no_others(main, fill, store, install):
    fill("S", profile="evening")
    for job in (replace(mad_job("S"), label="bad:1"), replace(mad_job("S"), task="worse")):
        store.finish(job, Record("finished", {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}))
    install({"bad_one.py": "int('seven')"}, "madbench.families", "bad = bad_one:FAMILY")
    install({"bad_two.py": "int('eight')"}, "madbench.tasks", "worse = bad_two:Task", name="worse")
    ended = main("ls", "runs", "-f", "json")
    assert ended.code == 0, ended.stderr
    rows = json.loads(ended.stdout)
    assert {("S", "compression"), ("S", "worse"), ("bad:1", "compression")} < {
        (row["label"], row["task"]) for row in rows}  # fmt: skip
    assert main("validate", "--store").code == 0
    for verb in (["table"], ["report"]):
        ended = main(*verb)
        assert ended.code == 0, ended.stderr
        assert "seven" in ended.stderr and "eight" in ended.stderr
