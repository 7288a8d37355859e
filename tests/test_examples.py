"""The example packages, installed by pip, work with every verb, and the example notebook runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

import madbench
from madbench.config import read_yaml

ROOT = Path(madbench.__file__).resolve().parents[1]
SMALL = (
    "training.epochs=2", "model.d_model=16", "tasks.in_context_recall.setting.num_train_examples=64",
    "language_model.training.steps=10", "language_model.training.eval_every=5", "language_model.model.d_model=16",
    "language_model.training.tokens_per_step=256", "language_model.training.eval_sequences=4",
    "language_model.training.warmup_steps=2",
)  # fmt: skip

pytestmark = pytest.mark.slow
COMMANDS = """
import json, os, runpy, sys
# Once, for commands that are processes of their own:
import matplotlib.figure, pandas, rich.console, scipy.stats, torch, typer, yaml
for line in sys.stdin:
    module, words, folder, path, files = json.loads(line)
    if not (child := os.fork()):
        for descriptor, file in enumerate([os.devnull, *files]):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
        os.chdir(folder)
        os.environ["PYTHONPATH"], sys.argv = os.pathsep.join(path), [module, *words]
        sys.path[:0] = path
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def server():
    """A process that runs modules as commands."""
    how = {"env": os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}, "text": True, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-c", COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which pip installed the example packages of a family and a task."""
    site = tmp_path_factory.mktemp("installed") / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    copies = [site.parent / name for name in ("plugin", "task")]  # pip builds in the folder itself
    for copy in copies:
        shutil.copytree(ROOT / "examples" / copy.name, copy)
    subprocess.run([*pip, *map(str, copies)], check=True, capture_output=True, timeout=120)
    return site


@pytest.fixture
def call(tmp_path, installed, server):
    """``call(*words)``: output of a verb in a folder where both example packages are installed."""
    site, files = shutil.copytree(installed, tmp_path / "site"), [tmp_path / "stdout", tmp_path / "stderr"]

    def call(*words: str, code: int = 0, module: str = "madbench", path: tuple[Path, ...] = (site, ROOT)) -> str:
        command = module, words, str(tmp_path), [*map(str, path)], [*map(str, files)]
        server.stdin.write(json.dumps(command) + "\n")
        server.stdin.flush()
        ended = int(server.stdout.readline())
        output, errors = (file.read_text(encoding="utf-8") for file in files)
        assert ended == code, f"{words}: {output}{errors}"
        return output if code == 0 else errors

    return call


def test_every_verb_takes_labels_of_an_installed_family(call, tmp_path):
    """Labels of S/R/G appear in the same tables and figures."""
    assert "feature map" in call("explain", "lin:elu-g") and "gate" in call("explain", "lin:elu", "lin:elu-g")
    assert "lin:elu" in call("explain", "--cost", "lin:elu", "S", "--d-model", "16")
    assert "2 labels, none with a failed check" in call("verify", "lin:elu", "lin:elu-g")
    tasks = ("-t", "in_context_recall,memorization,language_model")
    labels = ("S", "lin:elu", "lin:elu-g")
    assert "lin:elu-g" in call("run", *labels, *SMALL, *tasks, "--dry-run")
    trained = json.loads(call("run", *labels, *SMALL, *tasks, "--seeds", "0,1", "--slots", "1", "-f", "json"))
    assert {"lin:elu", "lin:elu-g"} <= {cell["label"] for cell in trained["cells"]}
    jobs = [json.loads(path.read_text()) for path in (tmp_path / "results" / "runs").glob("*/job.json")]
    plugin = [job for job in jobs if job["label"].startswith("lin:")]
    assert len(plugin) == 12 and all(job["family"].startswith("1+0.1.0+") for job in plugin)
    assert all(job["mixer"] == {"eps": 1e-6} for job in plugin)

    stored = ("training.epochs=2", "model.d_model=16", "tasks.in_context_recall.setting.num_train_examples=64")
    of_tasks = ("-t", "in_context_recall,memorization")
    for verb in (["table"], ["compare", *labels], ["attribute", "--pairs"]):
        assert "lin:elu-g" in call(*verb, *stored, *of_tasks)
    call("report", *stored)
    assert "lin:gate" in call("attribute", *stored, *of_tasks)
    call("findings", *stored)
    assert "lin:elu" in call("ls", "runs") and "lin" in call("ls")
    assert "lin:elu" in call("table", "lin:elu", "-t", "language_model")
    call("plot", "loss", "-t", "language_model")
    call("lm", "sample", "lin:elu", "--prompt", "def ", code=2)  # two seeds: the run has to be named
    run = next(job for job in (tmp_path / "results" / "runs").glob("*") if (job / "weights.safetensors").exists())
    assert call("lm", "sample", run.name, "--prompt", "def ", "--tokens", "8")
    assert "validation loss" in call("lm", "evaluate", run.name, "--seq-len", "32")
    call("lm", "export", run.name)
    call("validate"), call("ls", "sweeps"), call("validate", "--machine")


def test_settings_of_a_family_are_its_own(call):
    sweep = ("sweep", *SMALL[:3], "-t", "in_context_recall", "--vary", "model.eps=1e-6,1e-3", "--dry-run")
    assert "model.eps=1e-3" in call(*sweep, "lin:elu")
    assert "model.eps has no effect on any row" in call(*sweep, "lin:id", code=2)  # it divides by nothing
    error = call("run", "lin:elu", "model.mix_rank=4", "-t", "in_context_recall", code=2)
    assert "model.mix_rank has no effect on 'lin:elu'; settings of its mixer: model.eps" in error
    assert "model.eps has no effect on 'S'" in call("run", "S", "model.eps=0.1", "-t", "memorization", code=2)
    assert "did you mean 'lin:elu'" in call("explain", "lin:elo", code=2)


def test_an_edited_operator_trains_anew(call, tmp_path):
    words = ("run", "lin:relu", *SMALL[:3], "-t", "in_context_recall", "--slots", "1", "-f", "json")
    first = json.loads(call(*words))
    assert json.loads(call(*words)) == first
    runs = tmp_path / "results" / "runs"
    assert len(list(runs.iterdir())) == 1
    mixer = tmp_path / "site" / "madbench_linear" / "mixer.py"
    mixer.write_text(mixer.read_text().replace("F.elu(x) + 1", "F.elu(x) + 1.0"))
    call(*words)
    assert len(list(runs.iterdir())) == 2


def test_every_verb_takes_an_installed_task(call):
    assert "prefix" in call("data", "prefix_sum")
    words = [f"tasks.{task}.setting.num_train_examples=64" for task in ("compression", "prefix_sum")]
    words += ["training.epochs=2", "model.d_model=16"]
    tasks = ("-t", "compression,prefix_sum")
    call("run", "S", "S-p", *words, *tasks, "--seeds", "0,1", "--slots", "1")
    for verb in (["table"], ["compare", "S", "S-p"], ["attribute"]):
        call(*verb, *words, *tasks)
    assert "Prefix sum" in call("table", *words, *tasks)
    assert "MAD avg" not in call("table", *words, *tasks)
    call("report", *words, *tasks)
    call("validate")


def test_every_verb_takes_a_module_beside_built_in_labels(call, tmp_path):
    shutil.copytree(ROOT / "examples" / "module" / "madbench_decay", tmp_path / "madbench_decay")
    (tmp_path / "mixers.yaml").write_text("decay: madbench_decay:Decay\n")
    words = ("-t", "memorization", *SMALL[:2])
    trained = json.loads(call("run", "my:decay", "S-p", *words, "--seeds", "0-2", "--slots", "1", "-f", "json"))
    shown = json.loads(call("table", *words, "-f", "json"))
    means = [{cell["label"]: cell["mean"] for cell in content["cells"]} for content in (trained, shown)]
    assert (
        means[0] == means[1]
        and set(means[0]) == {"my:madbench_decay.Decay", "S-p"}
        and "my:decay" in call("table", *words)
    )
    assert "my:decay" in call("compare", "S-p", "my:decay", *words)
    source = tmp_path / "madbench_decay" / "__init__.py"
    source.write_text(source.read_text().replace("0.0, 4.0", "0.0, 5.0"))
    call("run", "my:decay", *words)
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 7


@pytest.mark.parametrize("kind", ["family", "task", "suite", "paper", "module"])
def test_the_commands_that_new_prints_install_and_try_the_package(call, tmp_path, kind):
    """The commands of the package's README, in a folder of its own. Commands that train only make a plan."""
    printed = call("new", kind, "blue-wave").splitlines()
    lines = [line.partition("  #")[0].split() for line in map(str.strip, printed[2:])]
    assert [words[:2] for words in lines[:2]] == [["pip", "install"], ["pytest", "blue-wave"]]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, str(tmp_path / "site"), "./blue-wave"], check=True, cwd=tmp_path, timeout=120)
    assert " passed" in call("blue-wave", module="pytest", path=(ROOT,))  # its tests need no installation
    for _, *words in lines[2:]:
        if words[0] in ("compare", "findings"):
            continue  # there are no runs yet
        words = [word.strip("'") for word in words]
        is_trained = words[0] == "run" or words[-1] == "table1"
        call(*words, *["--dry-run"] * is_trained)


def test_the_cells_of_the_notebook_run_one_after_the_other(tmp_path):
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "".join(f"{''.join(cell['source'])}\n" for cell in cells if cell["cell_type"] == "code")
    magic, _, code = code.partition("\n")
    assert magic == "%matplotlib inline"
    profiles = shutil.copytree(ROOT / "tasks" / "mad", tmp_path / "profiles")
    quick = read_yaml(profiles / "quick.yaml")
    quick["training"]["epochs"] = 2
    quick["tasks"]["selective_copying"]["setting"]["num_train_examples"] = 64  # of 8 steps in all
    (profiles / "quick.yaml").write_text(yaml.safe_dump(quick))
    imports = "from pathlib import Path\nfrom madbench.suites.mad.suite import MadProfile"
    code = f"{imports}\nMadProfile.folder = Path({str(profiles)!r})\n{code}"
    (tmp_path / "cells.py").write_text(f"if __name__ == '__main__':\n{textwrap.indent(code, '    ')}")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "cells.py"], check=True, cwd=tmp_path, env=environment, timeout=600)
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 6
