"""Settings of all tests: one thread per process, because results are compared bit for bit, and opt-in markers."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tomllib
from pathlib import Path

import hypothesis
import pytest

from installed import forget_installed

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU; Triton reads it when it is imported

# os.fsync only checks its file here: waiting for the disk would take half of the time of the tests of stores. The tests
# of a power cut record the calls.
os.fsync = lambda file: os.fstat(file if isinstance(file, int) else file.fileno())

# as in a shell's background job; the processes under test inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("madbench", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("madbench")  # no deadline: a busy machine takes many times as long for one example


gc.disable()  # while modules are imported and tests collected, whose objects all stay


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Run neighboring tests in one process while there is work, so that their shared fixtures are made once."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take more than a tenth of a second")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _leaves_out_slow(config):
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch finds none"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _leaves_out_slow(config):
        terminalreporter.write_line("Without the tests that take more than a tenth of a second; --slow runs them too.")


def _leaves_out_slow(config: pytest.Config) -> bool:
    """True unless the command has ``--slow`` or names a test."""
    return not config.getoption("--slow") and not any("::" in argument for argument in config.args)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def language_run():
    """``language_run(label, train_losses, ...)``: a run as the store returns it, without training."""
    from dataclasses import replace

    from madbench.jobs import Record
    from madbench.store.reading import Run
    from sample_jobs import language_job

    tiny = language_job()
    corpus = {"name": "shelf", "digest": tiny.setting["corpus"], "tokenizer": "bytes"}
    corpus["splits"] = {"train": {"tokens": 9000, "bytes": 8990}, "val": {"tokens": 1000, "bytes": 999}}
    evaluation = {"windows": 4, "seq_len": 16, "train": "drawn anew", "val": "evenly spread"}
    usual = {"corpus": corpus, "evaluation": evaluation, "budget_ratio": 0.99, "device": "a slide rule"}

    def call(label="S", train=(3.0, 2.5, 2.0), validation=None, *, seconds=2.0, status="finished", details=(), **job):
        """Make a run.

        Each evaluation adds two rows and takes ``seconds``. A validation loss is the training loss plus 0.1.
        """
        curve = []
        for i, loss in enumerate(train, 1):
            of_val = validation[i - 1] if validation else loss + 0.1
            curve.append(
                {"step": 10 * i - 5, "tokens": 640 * i - 320, "seconds": seconds * (i - 0.5), "step_loss": loss}
            )
            curve.append({"step": 10 * i, "tokens": 640 * i, "seconds": seconds * i, "step_loss": loss})
            curve[-1] |= {"evaluation": i, "train_loss": loss, "validation_loss": of_val}
            curve[-1]["validation_bits_per_byte"] = 2 * of_val
        return Run(replace(tiny, label=label, **job), Record(status, {}, curve, usual | dict(details)), Path(label))

    return call


@pytest.fixture
def install_example(tmp_path_factory, monkeypatch):
    """``install_example("task")``: install a package of ``examples/``, or of a folder, as pip does.

    It is installed for this process and for new ones.
    """

    def install(name: str | Path) -> Path:
        folder = Path(__file__).resolve().parents[1] / "examples" / name
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        site = tmp_path_factory.mktemp("site")
        files = [path.relative_to(folder) for path in folder.rglob("*") if path.suffix in (".py", ".yaml", ".csv")]
        files = [path for path in files if path.parts[0] != "tests"]
        for path in files:
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / path, site / path)
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
        (info / "RECORD").write_text("".join(f"{path.as_posix()},,\n" for path in files))
        groups = project["entry-points"].items()
        lines = [
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items()) for group, points in groups
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(site)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
        sites.append(site)
        forget_installed()
        return site

    sites: list[Path] = []
    yield install
    for name, module in list(sys.modules.items()):
        if any(site in Path(getattr(module, "__file__", None) or "").parents for site in sites):
            del sys.modules[name]
    forget_installed()
