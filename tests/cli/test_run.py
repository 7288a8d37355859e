"""``madbench run``: training, stored results, dry runs, threads, groups, weights and refused options."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import madbench
from madbench.errors import ConfigError
from madbench.execute import local
from madbench.execute.base import Summary
from madbench.store.runs import Store
from madbench.training import cost, devices
from madbench.training.checkpoints import load_model

TASKS = "compression,in_context_recall"


def mtimes(results: Path) -> dict[str, int]:
    found = {str(path): path.stat().st_mtime_ns for path in results.glob("runs/*/*")}
    assert found
    return found


def outcomes(results: Path) -> dict[str, tuple]:
    """Metrics, curve and status by job, without values that depend on the machine."""
    store = Store.open(results, create=False)
    found = {run.job.id: (run.record.status, run.record.metrics, run.record.curve) for run in store.runs()}
    assert store.problems == []
    return found


def test_a_label_is_trained_stored_and_tabulated(main, tiny, monkeypatch, tmp_path):
    """Training and table in one process, because starting a worker takes most of the time of other tests."""

    def run_here(groups, store, train, **_):
        for job in (job for group in groups for job in group):
            (record,) = train([job], [tmp_path / "work"], lambda *_: None)
            store.finish(job, record)
        return Summary(finished=len(groups))

    monkeypatch.setattr(local, "run_jobs", run_here)
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {job.task: 1e-12 for job in jobs})
    words = ("--profile", tiny, "--tasks", "compression")
    trained = main("run", "S", *words, "--device", "cpu", "--slots", "1")
    assert trained.code == 0, trained.stderr
    ((status, metrics, curve),) = outcomes(tmp_path / "results").values()
    assert status == "finished" and [row["epoch"] for row in curve] == [1, 2]
    row = trained.stdout.splitlines()[2].split()
    assert row == ["S", f"{100 * metrics['accuracy']:.1f}†", "1.000", "1"]
    assert main("table", *words).stdout == trained.stdout


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """A folder with the trained runs of two tasks, and the output of the command."""
    folder = tmp_path_factory.mktemp("trained")
    environment = os.environ | {"PYTHONPATH": str(Path(madbench.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    how = {"cwd": folder, "env": environment | {"COLUMNS": "120"}, "capture_output": True, "text": True, "timeout": 120}
    return folder, subprocess.run([sys.executable, "-m", "madbench", *words_of_two(tiny)], check=True, **how)


def words_of_two(profile: str) -> tuple[str, ...]:
    """The command that trains two tasks."""
    return ("run", "S", "--profile", profile, "--tasks", TASKS, "--device", "cpu", "--slots", "1")


@pytest.fixture
def first_output(main, trained, tmp_path) -> subprocess.CompletedProcess:
    """The output of the command. The current folder has its results."""
    folder, ended = trained
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return ended


@pytest.mark.slow
def test_a_run_is_tabulated_and_stored(first_output, tiny, tmp_path):
    lines = first_output.stdout.splitlines()
    assert lines[0].split() == "Label Compr. In-ctx recall Budget n".split()
    assert re.fullmatch(r"S +\d+\.\d† +\d+\.\d† +1\.000 +1", lines[2].strip())
    assert lines[3] == "" and lines[4].startswith("Accuracy in percent, mean over n seeds (profile ")
    assert f"runs: results/runs    again as a table: madbench table --profile {tiny}" in first_output.stderr
    assert "2 jobs" in first_output.stderr and "[2/2]" in first_output.stderr
    assert {path.name for path in tmp_path.glob("results/runs/*/*")} == {"job.json", "record.json", "curve.csv"}
    assert os.listdir(tmp_path / "results" / "work") == []
    for status, metrics, curve in outcomes(tmp_path / "results").values():
        assert status == "finished" and 0 <= metrics["accuracy"] <= 1
        assert [row["epoch"] for row in curve] == [1, 2]


@pytest.mark.slow
def test_stored_runs_are_not_repeated(main, first_output, tiny, tmp_path):
    before = mtimes(tmp_path / "results")
    again = main(*words_of_two(tiny), "-f", "json")
    assert again.code == 0
    assert again.stderr.count("2 of 2 jobs already in the store") == 1
    assert mtimes(tmp_path / "results") == before
    content = json.loads(again.stdout)
    cells = {(cell["label"], cell["task"]): cell for cell in content["cells"]}
    assert set(cells) == {("S", "compression"), ("S", "in_context_recall")}
    assert [f"{cell['mean']:.1f}†" for cell in cells.values()] == first_output.stdout.splitlines()[2].split()[1:3]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_plan_notes_jobs_on_which_group_has_no_effect(main, tiny, optimizer):
    words = ("sweep", "S", "--profile", tiny, "-t", "compression", "--seeds", "0,1", "--group", "2", "--dry-run")
    varied = ("--vary", "training.optimizer=adamw,muon") if optimizer == "muon" else ()
    ended = main(*words, *varied, "-f", "json")
    notes = [note for note in json.loads(ended.stdout)["notes"] if "--group 2 has no effect on 2 of 4 jobs" in note]
    assert len(notes) == (optimizer == "muon") and all(note in ended.stderr for note in notes)


@pytest.mark.slow
def test_group_is_refused_if_all_jobs_train_alone(main, tiny, tmp_path):
    words = ("run", "S", "--profile", tiny, "-t", "compression", "training.optimizer=muon")
    for more in (["--dry-run"], []):
        ended = main(*words, "--group", "2", *more)
        assert ended.code == 2 and "--group 2 has no effect on 1 of 1 jobs by muon" in ended.stderr
    with pytest.raises(ConfigError, match="^group=2 has no effect on 1 of 1 jobs by muon"):
        madbench.run(
            "S",
            profile=str(tiny),
            tasks="compression",
            overrides="training.optimizer=muon",
            group=2,
            results=tmp_path / "results",
        )
    assert main(*words, "--dry-run").code == 0
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_a_dry_run_counts_stored_runs_and_leaves_them(main, first_output, tiny, tmp_path):
    before = mtimes(tmp_path / "results")
    planned = main(*words_of_two(tiny), "--seeds", "0,1", "--dry-run", "-f", "json")
    content = json.loads(planned.stdout)
    assert (planned.code, content["done"], content["todo"]) == (0, 2, 2)
    assert [(cell["jobs"], cell["todo"], cell["steps"]) for cell in content["cells"]] == [(2, 1, 16)] * 2
    assert content["estimated_seconds"] > 0
    assert mtimes(tmp_path / "results") == before


@pytest.mark.slow
def test_the_verb_table_prints_what_the_run_printed(main, first_output, tiny):
    assert main("table", "--profile", tiny, "--tasks", TASKS).stdout == first_output.stdout
    noted = main("table", "--profile", tiny, "--tasks", TASKS, "--published", "--notes").stdout
    assert noted.splitlines()[3].split() == ["published", "35.2", "83.7"]
    assert "not comparable with the published rows" in " ".join(noted.split())


@pytest.mark.slow
def test_weights_are_kept_with_the_option_and_stored_runs_without_them_are_named(main, tiny, fill, tmp_path):
    fill("S", profile=tiny)
    words = ("run", "S", "--profile", tiny, "-t", "compression", "--device", "cpu", "--slots", "1", "--keep-weights")
    stored = main(*words)
    assert (stored.code, "1 stored run has no weights" in stored.stderr, "--force" in stored.stderr) == (0, True, True)
    assert not list(tmp_path.glob("results/runs/*/weights.safetensors"))
    forced = main(*words, "--force")
    assert (forced.code, "no weights" in forced.stderr) == (0, False)
    (kept,) = tmp_path.glob("results/runs/*/weights.safetensors")
    assert (
        load_model(Store.open("results", create=False).kept_file(kept.parent.name, kept.name))[1].id == kept.parent.name
    )
    assert "no weights" not in main(*words).stderr
    refused = main("run", "S", "-t", "language_model", "--keep-weights")
    assert refused.code == 2 and "--keep-weights has no effect" in refused.stderr


def test_a_dry_run_trains_and_writes_nothing(main, tiny, tmp_path):
    (tmp_path / "results" / "published").mkdir(parents=True)
    shown = main("run", "S", "R-12o!", "--profile", tiny, "-t", TASKS, "--device", "cpu", "--dry-run", "--slots", "1")
    assert shown.code == 0
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith((" S", " R-12o!", "S", "R-12o!"))]
    assert [row[:4] for row in rows] == [
        ["S", "compression", "1", "1"],
        ["S", "in_context_recall", "1", "1"],
        ["R-12o!", "compression", "1", "1"],
        ["R-12o!", "in_context_recall", "1", "1"],
    ]
    assert "4 jobs in 2 rows: 0 done, 4 to do." in " ".join(shown.stdout.split())
    assert "on cpu with 1 at a time" in shown.stdout
    assert os.listdir(tmp_path / "results") == ["published"]


def test_a_plan_names_the_learning_rates_of_each_task(main, tmp_path):
    profile = tmp_path / "mine.yaml"
    rates = "learning_rates: [0.004, 0.008]\ntasks: {memorization: {learning_rates: [0.5]}}\n"
    profile.write_text(f"like: evening\n{rates}")
    words = ("run", "S", "-p", str(profile), "-t", "memorization,compression", "--dry-run")
    shown = " ".join(main(*words).stdout.split())
    assert shown.endswith("Learning rates: 0.004, 0.008 (compression); 0.5 (memorization).")
    assert [cell["learning_rates"] for cell in json.loads(main(*words, "-f", "json").stdout)["cells"]] == [
        [0.004, 0.008],
        [0.5],
    ]
    one_task = main("run", "S", "-p", str(profile), "-t", "compression", "--dry-run").stdout
    assert " ".join(one_task.split()).endswith("Learning rates: 0.004, 0.008.")


def test_a_dry_run_gives_the_time_from_the_first_start_to_the_last_end(main, tiny, monkeypatch):
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {"compression": 1e-6, "in_context_recall": 1e-3})
    monkeypatch.setattr(devices, "available_cores", lambda: 2)
    words = ("run", "S", "--profile", tiny, "-t", TASKS, "--device", "cpu", "--dry-run", "-f", "json", "--slots")
    for slots, total in (("1", sum), ("2", max)):
        plan = json.loads(main(*words, slots).stdout)
        assert plan["estimated_seconds"] == pytest.approx(total(cell["estimated_seconds"] for cell in plan["cells"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "threads", "said", "is_trained"),
    [((), 3, "OMP_NUM_THREADS=3", False), (("--threads", "2"), 2, "--threads 2", True)],
)
def test_the_plan_and_the_start_show_the_threads_of_the_environment_or_the_option(
    words, threads, said, is_trained, main, tiny, monkeypatch, tmp_path
):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    words = ("run", "S", "--profile", tiny, "-t", "compression", "--device", "cpu", *words)
    text = f"1 at a time, {threads} threads each ({said})"
    assert f"on cpu with {text}" in main(*words, "--dry-run").stdout
    [batch] = json.loads(main(*words, "--dry-run", "-f", "json").stdout)["batches"]
    assert (batch["slots"], batch["threads"], batch["text"]) == (1, threads, text)
    if is_trained:
        assert text in main(*words).stderr
        [run] = Store.open(tmp_path / "results", create=False).runs()
        assert run.record.details["threads"] == threads


@pytest.mark.slow
def test_a_run_that_diverges_is_shown_and_stored(main, tiny, tmp_path):
    words = ("run", "S", "--profile", tiny, "-t", "compression", "--device", "cpu", "learning_rates=1e30")
    shown = main(*words)
    assert shown.code == 0
    assert "S compression seed 0: diverged: loss was not finite at step 4" in shown.stderr
    assert shown.stdout.splitlines()[2].split() == ["S", "diverged", "1.000", "1"]
    assert "1 of 1 runs diverged." in " ".join(main(*words, "--notes").stdout.split())
    assert [status for status, *_ in outcomes(tmp_path / "results").values()] == ["diverged"]
    assert "already in the store" in main(*words).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["G-cx-q-12o"], "did you mean 'G-cg-q-12o'?"),
        (["S", "--profile", "quikc"], "profile 'quikc': no such profile or file; did you mean 'quick'?"),
        (["S", "--profile", "none.yaml"], "profile 'none.yaml': no such profile or file"),
        (["S", "--tasks", "memorisation"], "unknown task 'memorisation'; did you mean 'memorization'?"),
        (["S", "--device", "gpu"], "device 'gpu' is not known; expected auto, cpu, cuda or cuda:N"),
        (["S", "--device", "cuda:99"], "device 'cuda:99': this machine has"),
        (["S", "--seeds", "one"], "--seeds 'one': expected whole numbers such as 0,1,2 or 0-4"),
        (["S", "--seeds", "1,1"], "--seeds '1,1': 1 appears twice; leave one out"),
        (["S", "trainin.epochs=3"], "unknown key 'trainin'; did you mean 'training'?"),
        (["S", "training.learning_rate=1"], "has no effect here; set the profile's own 'learning_rates'"),
        (["S", "-t", "compression", "tasks.memorization.training.epochs=1"], "the tasks are compression"),
        (["training.epochs=3"], "nothing to train: give at least one label and one seed"),
        (["-t", "compression"], "seed; the profile lists no labels for compression"),
        (
            ["S", "-t", "compression,language_model", "language_model.training.steps=abc"],
            "override 'language_model.training.steps=abc': training: steps: expected a whole number",
        ),
        (
            ["S", "-t", "compression,language_model", "language_model.steps=3"],
            "override 'language_model.steps': unknown key; did you mean 'language_model.training.steps'?",
        ),
        (
            ["S", "-t", "compression,digits", "signals.model.window=4"],
            "signals.model.window has no effect on 'S'; settings of its mixer: model.rank_multiple",
        ),
        (["S", "--details"], "--details has no effect without --dry-run"),
        (["S", "-t", "compression", "--tokenizer", "gpt2"], "--tokenizer gpt2 has no effect without --corpus"),
        (["G-q-12", "model.d_model=8"], "G-q-12 does not fit its budget at d_model 8"),
    ],
)
def test_run_refuses_wrong_arguments_before_it_writes_a_file(main, tmp_path, words, says):
    refused = main("run", *words)
    assert (refused.code, refused.stdout) == (2, "")
    assert says in refused.stderr and len(refused.stderr.splitlines()) <= 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", ["a file/results", "/proc/results"])
def test_a_results_folder_that_cannot_be_created_is_an_error(main, tiny, tmp_path, place):
    (tmp_path / "a file").touch()
    refused = main("run", "S", "--profile", tiny, "-t", "compression", "--device", "cpu", "--results", place)
    assert refused.code == 2 and refused.stdout == ""
    *announced, message = refused.stderr.splitlines()
    assert message.startswith(place) and len(announced) == 1


@pytest.fixture
def disk(tmp_path):
    """A file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root and the mount capability")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("pages_left", [0, 2])
def test_a_full_disk_is_an_error_and_stored_runs_remain(main, tiny, disk, pages_left):
    """Without a free page the store does not open. With two free pages it opens, but the run does not fit."""
    store = Store.open(disk)
    (disk / "filling").write_bytes(bytes((16 - pages_left) * 4096 - (0 if pages_left else 1)))
    words = ("run", "S", "--profile", tiny, "-t", "compression", "--device", "cpu", "--results", disk)
    refused = main(*words)
    assert (refused.code, refused.stdout) == (2, "")
    *announced, message = refused.stderr.splitlines()
    assert message.startswith(str(disk)) and "no space left" in message and len(announced) == 1
    assert list(store.runs()) == [] and store.problems == []


JOURNALS = "sweeps/[!.]*.json"  # not those that are still being written


class Interrupted:
    """One long job, trained without interruption in ``reference`` and with interruptions in ``folder``."""

    def __init__(self, start, finish, tiny: str, folder: Path):
        self.start, self.finish, self.folder = start, finish, folder
        self.words = ("run", "R-12o!", "--profile", tiny, "-t", "in_context_recall", "--device", "cpu")
        self.words += ("training.epochs=60", "training.stop_accuracy=2", "training.batch_size=8")
        self.results = folder / "results"
        self.pids: set[int] = set()

    def begin(self) -> subprocess.Popen:
        """Start the command and return during its training."""
        before = set(self.results.glob(JOURNALS))
        process = self.start(self.folder, *self.words)
        deadline = time.monotonic() + 60
        while not any(map(has_progress, set(self.results.glob(JOURNALS)) - before)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        assert process.poll() is None
        self.pids = workers(process.pid)
        assert len(self.pids) == 1
        return process

    def step(self) -> int:
        import torch

        (checkpoint,) = self.results.glob("work/*/checkpoint.pt")
        return torch.load(checkpoint, weights_only=True)["state"]["step"]

    def assert_stopped(self, ended) -> None:
        assert ended.code == 130, ended.stderr
        assert ended.stdout == "" and "Traceback" not in ended.stderr
        assert "stopped; finished runs are in results, the same command resumes" in ended.stderr
        assert "kept as 1 checkpoint in results/work: " in ended.stderr
        assert not any(map(is_running, self.pids))
        assert outcomes(self.results) == {}

    def assert_finishes_as(self, reference: subprocess.Popen, reference_results: Path) -> None:
        ended = self.finish(self.start(self.folder, *self.words))
        expected = self.finish(reference)
        assert (ended.code, expected.code) == (0, 0), ended.stderr + expected.stderr
        assert ended.stdout == expected.stdout
        assert outcomes(self.results) == outcomes(reference_results)
        assert os.listdir(self.results / "work") == []


def workers(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


def has_progress(journal: Path) -> bool:
    return any(slot["fraction"] > 0 for slot in json.loads(journal.read_text())["slots"])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def interrupted(start, finish, tiny, tmp_path):
    (tmp_path / "ours").mkdir()
    made = Interrupted(start, finish, tiny, tmp_path / "ours")
    yield made
    for pid in filter(is_running, made.pids):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_run_resumed_after_interrupts_and_kills_equals_an_uninterrupted_one(interrupted, start, finish, tmp_path):
    """Interruptions: Ctrl-C, which reaches every process; SIGINT to the parent only; and a kill of the parent."""
    process = interrupted.begin()
    os.killpg(process.pid, signal.SIGINT)
    interrupted.assert_stopped(finish(process))
    stopped = interrupted.step()
    assert 0 < stopped < 60 * 8

    process = interrupted.begin()
    process.send_signal(signal.SIGINT)
    interrupted.assert_stopped(finish(process))
    reached = interrupted.step()
    assert reached >= stopped

    process = interrupted.begin()
    process.kill()
    killed = time.monotonic()
    while any(map(is_running, interrupted.pids)):
        assert time.monotonic() - killed < 10
        time.sleep(0.02)
    assert finish(process).code == -signal.SIGKILL
    assert outcomes(interrupted.results) == {}
    assert interrupted.step() >= reached
    interrupted.assert_finishes_as(start(tmp_path, *interrupted.words), tmp_path / "results")


def test_the_option_notes_is_refused_with_dry_run(main):
    result = main("run", "S", "--dry-run", "--notes")
    assert result.code == 2 and "--notes has no effect with --dry-run" in result.stderr


@pytest.mark.slow
def test_a_label_that_an_override_does_not_affect_is_not_trained_again(main, fill, tiny):
    words = ("-p", tiny, "-t", "compression", "--slots", 1)
    fill("S", tasks=["compression"])
    both = main("run", "S", "R-12!", "model.mix_rank=4", *words)
    assert both.code == 0, both.stderr
    assert "1 of 2 jobs already in the store" in both.stderr
    assert "model.mix_rank=4 has no effect on S" in both.stderr
    (again,) = [line.partition("madbench ")[2] for line in both.stderr.splitlines() if "again as a table" in line]
    table = main(*shlex.split(again))
    assert table.code == 0 and table.stdout.split("Accuracy")[0] == both.stdout.split("Accuracy")[0]


RUN = """
import sys
from madbench.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
print("torch" in sys.modules)
"""


@pytest.mark.slow
def test_the_command_that_trains_imports_torch_only_in_its_workers(tiny, store):
    words = ["run", "S", "-p", tiny, "-t", "compression", "--seeds", "0", "--device", "cpu", "--results", str(store)]
    ended = subprocess.run([sys.executable, "-c", RUN, *words], check=True, capture_output=True, text=True)
    assert "compression" in ended.stderr and ended.stdout.splitlines()[-1] == "False"
