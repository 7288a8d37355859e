"""Building the wheel is reproducible, and the wheel works without the checkout, also for a user who is not root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from small_profiles import counts, profile_text, with_setting

pytestmark = pytest.mark.slow
pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[1]
SOURCES = ("madbench", "variants", "tasks", "examples")
FILES = ("pyproject.toml", "README.md", "LICENSE", "constraints.txt")
PROFILE = profile_text(
    model={"d_model": 16},
    training={"batch_size": 16, "epochs": 1},
    tasks=with_setting(["compression"], **counts(32, 16)),
)
PROGRAM = """
import shlex, sys
from madbench.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["madbench", *shlex.split(line)]
    print("$", line, flush=True)
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def without_checkout(*paths: Path) -> dict[str, str]:
    """Environment variables with which Python finds madbench in ``paths``, and other packages as in this process."""
    libraries = [sysconfig.get_paths()["purelib"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    places = [str(path) for path in paths] + [path for path in libraries if Path(path).resolve() != ROOT]
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER")}
    return environment | {"PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}


def run(*command: str | Path, cwd: Path, env: dict[str, str], text: str = "", **how) -> str:
    ended = subprocess.run(command, cwd=cwd, env=env, input=text, capture_output=True, text=True, timeout=280, **how)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def build(source: Path, folder: Path, epoch: str = "1700000000") -> Path:
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    run(*command, cwd=source, env=os.environ | {"SOURCE_DATE_EPOCH": epoch})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """The sources of the wheel as in another clone: with other times and permissions, and with leftover files."""
    copy = tmp_path_factory.mktemp("clone")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
    for name in FILES:
        shutil.copyfile(ROOT / name, copy / name)
        os.chmod(copy / name, 0o600)
    (copy / "examples/task/__pycache__").mkdir(exist_ok=True)
    (copy / "examples/task/__pycache__/left.cpython-311.pyc").write_bytes(b"left over")
    return copy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with only the installed wheel."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    return site


def test_two_builds_are_the_same_bytes(wheel, copied, tmp_path):
    again = build(copied, tmp_path / "second")
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()
    later = build(copied, tmp_path / "later", epoch="1800000000")
    assert later.read_bytes() != wheel.read_bytes()  # the date is in it


def test_the_wheel_has_exactly_the_data_of_the_repository(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("variants", "tasks", *(f"examples/{kind}" for kind in kinds_of_examples())):
        paths = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        missing = {f"madbench/_data/{path.relative_to(ROOT).as_posix()}" for path in paths} - names
        assert not {name for name in missing if ".pytest_cache" not in name}
    tops = {name.split("/")[0] for name in names}
    assert len(tops) == 2 and "madbench" in tops
    assert {"madbench/py.typed", "madbench/papers/talk/verdicts.json", "madbench/papers/hypermlp/table1.csv"} <= names
    assert not [name for name in names if name.endswith((".pyc", ".tar.xz"))]


def kinds_of_examples() -> list[str]:
    return [path.name for path in (ROOT / "examples").iterdir() if (path / "pyproject.toml").exists()]


def test_the_wheel_runs_reports_and_extends_without_the_checkout(installed, tmp_path):
    (tmp_path / "small.yaml").write_text(PROFILE)
    small = "--profile small.yaml -t compression"
    commands = [
        "explain HyperGLU",
        f"run S S-p {small} --seeds 0,1 --slots 1 --device cpu",
        f"table {small}",
        f"report {small}",
        "archive --output shared.tar.xz",
        "import shared.tar.xz --results imported",
        "paper hypermlp",
        "paper hypermlp table1 --dry-run",
        "new task blue_wave",
        "validate small.yaml",
    ]
    env = without_checkout(installed) | {"HOME": str(tmp_path)}
    out = run(sys.executable, "-c", PROGRAM, cwd=tmp_path, env=env, text="\n".join(commands))
    assert [line[2:] for line in out.splitlines() if line.startswith("$ ")] == commands
    assert (tmp_path / "results/report.html").read_text().startswith("<!DOCTYPE html>")
    assert "4 runs of shared.tar.xz added" in out and list(tmp_path.glob("*/pyproject.toml"))
    where = run(sys.executable, "-c", "import madbench; print(madbench.__file__)", cwd=tmp_path, env=env)
    assert Path(where.strip()).is_relative_to(installed)


OPEN = """
import madbench.huggingface
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("exported"), AutoTokenizer.from_pretrained("exported")
ids = tokenizer("hen", return_tensors="pt").input_ids
print(model.generate(ids, max_new_tokens=4, do_sample=False, eos_token_id=None)[0].tolist(), madbench.__file__)
"""


def test_an_exported_folder_opens_with_the_wheel_and_transformers(installed, tmp_path):
    pytest.importorskip("transformers")
    from madbench.huggingface.export import export
    from madbench.models.gpt import generate
    from madbench.suites import suite_of
    from madbench.text.tokenizers import Tokenizer
    from sample_jobs import language_job

    job = language_job("R-c")
    model = suite_of(job).Trial.build(job).eval()
    export(tmp_path / "exported", model, job, Tokenizer())
    env = without_checkout(installed) | {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    out = run(sys.executable, "-c", OPEN, cwd=tmp_path, env=env)
    prompt = [*b"hen"]
    expected = list(generate(model, prompt, 4, temperature=0, vocab_size=257, generator=torch.Generator()))
    assert out.startswith(str([*prompt, *expected])) and str(installed) in out


def docker_steps() -> tuple[list[str], dict[str, str]]:
    """The RUN lines of the Dockerfile, and the values of ENV, USER, WORKDIR and ENTRYPOINT."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words = dict(line.split(" ", 1) for line in lines if line.split(" ")[0] in ("ENV", "USER", "WORKDIR", "ENTRYPOINT"))
    return [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")], words


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that any user may enter, in place of the image's root."""
    with tempfile.TemporaryDirectory(prefix="madbench-image-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_the_steps_of_the_dockerfile_give_a_program_for_a_user_who_is_not_root(root, copied):
    steps, words = docker_steps()
    assert words["USER"] == "1000:1000"

    def here(text: str) -> str:
        return re.sub(r"(?<![\w.])/(opt|work)\b", rf"{root}/\1", text)

    environment = os.environ | {
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "TORCH_INDEX": "https://pypi.org/simple",
    }
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    is_root = os.geteuid() == 0
    for step in steps:
        step = here(step) if is_root else re.sub(r"-[og] 1000 ", "", here(step))
        run("bash", "-euc", step, cwd=copied, env=environment)
        for site in root.glob("opt/madbench/lib/*/site-packages"):  # the libraries are this environment's
            (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    program = Path(here(words["ENTRYPOINT"]).strip('[]"'))
    assert program.read_text().startswith("#!")
    variables = dict(pair.split("=") for pair in here(words["ENV"]).split())
    (site,) = root.glob("opt/madbench/lib/*/site-packages")
    env = without_checkout(site) | variables
    work = root / "work"
    libraries = Path(sysconfig.get_paths()["purelib"])
    is_other = is_root and all(folder.stat().st_mode & 0o001 for folder in (libraries, *libraries.parents))
    if is_other:
        python = python_of_anyone()
        run("chmod", "-R", "go+rX", root / "opt", cwd=root, env=env)
        how = {"user": 1000, "group": 1000, "extra_groups": []}
    else:
        python, how = sys.executable, {}
    (root / "small.yaml").write_text(PROFILE)
    os.chmod(root / "small.yaml", 0o644)
    words = "run S --profile ../small.yaml -t compression --device cpu --slots 1".split()
    run(python, "-m", "madbench", *words, cwd=work, env=env, **how)
    (record,) = work.glob("results/runs/*/record.json")
    assert record.stat().st_uid == (1000 if is_other else os.geteuid())


def python_of_anyone() -> str:
    """An interpreter of this version that another user may start. Skips if there is none."""
    version = "python{}.{}".format(*sys.version_info)
    for path in filter(None, (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin"))):
        folders = [Path(path).resolve(), *Path(path).resolve().parents]
        if all(os.stat(folder).st_mode & 1 for folder in folders):
            return path
    pytest.skip(f"no {version} here that a user other than root may start")
