"""Language models from training to use: ``run``, ``lm train``, ``lm sample``, ``lm evaluate`` and torchrun."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import madbench
from madbench.errors import ConfigError
from madbench.experiment import ExperimentOptions
from madbench.experiment import prepare as prepare_experiment
from madbench.grid import load_grid
from madbench.store.reading import Run
from madbench.store.runs import Store
from madbench.suites.language.trial import LanguageTrial
from madbench.text.corpus import open_corpus
from madbench.text.options import CorpusOptions, PrepareOptions
from madbench.text.prepare import prepare
from madbench.training import cost, devices
from madbench.training.checkpoints import save_weights
from sample_jobs import language_job, train_job
from small_profiles import counts, profile_text, with_setting
from unprivileged import enforce_file_modes

PRESET = """\
description: A few steps of a small model.
comparable_with_paper: false
precision: float32
model: {d_model: 16, n_layer: 1, seq_len: 16, mix_rank: 2}
training:
  {steps: 8, tokens_per_step: 64, eval_every: 4, eval_sequences: 4, warmup_steps: 2, learning_rate: 1.0e-2}
"""
MAD_PROFILE = profile_text(
    model={"d_model": 16},
    training={"batch_size": 16, "epochs": 1},
    tasks=with_setting(["compression"], **counts(32, 16)),
)
PROFILE = f"beside: {{language_model: small_lm.yaml}}\n{MAD_PROFILE}"


BOTH = ("run", "R-12o!", "--profile", "profile.yaml", "-t", "compression,language_model", "--corpus", "hens")
BOTH += ("--device", "cpu", "--slots", "1")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(madbench.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def write_inputs(folder: Path) -> None:
    """Write a profile of both suites, one of token tasks and one of language models, and a corpus of bytes."""
    (folder / "small_lm.yaml").write_text(PRESET)
    (folder / "profile.yaml").write_text(PROFILE)
    (folder / "mad.yaml").write_text(MAD_PROFILE)
    (folder / "hen.txt").write_text("The brown hen sat by the mill and counted every grain. " * 40)
    prepare([str(folder / "hen.txt")], folder / "hens", PrepareOptions(validation=0.2))


@pytest.fixture
def here(main, tmp_path) -> Path:
    """The current folder, with profiles and a corpus."""
    write_inputs(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained_on_both(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """A folder with the runs of the command ``BOTH``, and what the command printed."""
    folder = tmp_path_factory.mktemp("both")
    write_inputs(folder)
    how = {"cwd": folder, "env": ENVIRONMENT | {"COLUMNS": "120"}, "capture_output": True, "text": True, "timeout": 240}
    return folder, subprocess.run([sys.executable, "-m", "madbench", *BOTH], check=True, **how)


class TrainedOnBoth(NamedTuple):
    """The command ``BOTH``: what it printed, the two printed rows, and the runs by task."""

    stderr: str
    mad_row: str
    language_row: str
    runs: dict[str, Run]


def rows(printed: str) -> list[str]:
    """The rows of the label R-12o! in printed tables."""
    return re.findall(r"^R-12o! .*$", printed, re.MULTILINE)


def table_command(stderr: str) -> str:
    """The command, named in a message, that shows the table again."""
    return re.search(r"again as a table: madbench (table .*)$", stderr, re.MULTILINE)[1]


@pytest.fixture
def both(main, trained_on_both, tmp_path) -> TrainedOnBoth:
    """The runs of the command ``BOTH``, in the current folder, which also has the profiles and the corpus."""
    folder, ended = trained_on_both
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    runs = {run.job.task: run for run in Store.open("results", create=False).runs()}
    return TrainedOnBoth(ended.stderr, *rows(ended.stdout), runs)


@pytest.mark.slow
def test_a_run_trains_both_suites_and_prints_what_it_stored(both):
    assert "do not compare profile.yaml and small_lm.yaml with published numbers" in both.stderr
    assert set(both.runs) == {"compression", "language_model"}
    metrics = {task: run.record.metrics for task, run in both.runs.items()}
    assert f"{metrics['language_model']['loss_l5']:.3f}†" == both.language_row.split()[1]
    assert f"{100 * metrics['compression']['accuracy']:.1f}†" == both.mad_row.split()[1]


@pytest.mark.slow
def test_the_table_command_that_a_run_prints_shows_the_same_numbers(main, both):
    (joint,) = rows(main(*shlex.split(table_command(both.stderr))).stdout)
    assert both.mad_row.split()[1] in joint.split() and both.language_row.split()[1] in joint.split()
    again = main("lm", "R-12o!", "--profile", "small_lm.yaml", "--corpus", "hens", "--device", "cpu")
    command = table_command(again.stderr)
    assert command.endswith("--corpus hens"), "a digest where a name would do"
    for shown in (again, main(*shlex.split(command))):
        assert rows(shown.stdout) == [both.language_row]


@pytest.mark.slow
def test_an_evaluation_is_stored_beside_the_record_of_its_run(main, both):
    job, record = both.runs["language_model"].job, both.runs["language_model"].record
    evaluated = json.loads(main("lm", "evaluate", "R-12o!", "-f", "json", "--device", "cpu").stdout)
    assert evaluated["validation_loss"] == pytest.approx(record.metrics["validation_loss"], rel=1e-6)
    shorter = main("lm", "evaluate", "R-12o!", "--seq-len", "8", "--device", "cpu")
    assert "only the first 8 rows of the mixing tables are used" in shorter.stdout
    store = Store.open("results", create=False)
    measured = store.measurements(job.id)
    assert [one.settings["seq_len"] for one in measured] == [16, 8]
    assert measured[0].values["validation_loss"] == evaluated["validation_loss"] and "versions" in measured[0].details
    assert store.read(job.id).record == record


@pytest.mark.slow
def test_lm_sample_is_reproducible_and_equal_from_exported_weights(main, both):
    words = ("--prompt", "The", "--tokens", "30", "--device", "cpu")
    sampled = main("lm", "sample", "R-12o!", *words)
    assert sampled.code == 0 and sampled.stdout.startswith("The")
    assert re.search(r"R-12o!: \d+ tokens.*tokens/s on cpu", sampled.stderr)
    assert main("lm", "sample", "R-12o!", *words).stdout == sampled.stdout
    exported = main("lm", "export", "R-12o!", "--output", "hen.safetensors")
    assert exported.code == 0 and "parameters of R-12o!" in exported.stdout
    assert main("lm", "export", "R-12o!", "--output", "hen.safetensors").code == 2
    assert main("lm", "sample", "hen.safetensors", "--corpus", "hens", *words).stdout == sampled.stdout


@pytest.mark.slow
def test_runs_of_both_suites_are_listed_and_not_trained_again(main, both):
    listed = json.loads(main("ls", "runs", "-f", "json").stdout)
    assert {row["task"] for row in listed} == set(both.runs)
    assert "language_model" in main("ls", "runs").stdout
    skipped = main(*BOTH, "-f", "json")
    content = json.loads(skipped.stdout)
    assert "2 of 2 jobs already in the store" in skipped.stderr
    assert content["cells"] and content["language_model"]["cells"]


@pytest.mark.slow
def test_torchrun_trains_both_suites_and_prints_once(here):
    run = ["run", "S", "--profile", "profile.yaml", "-t", "compression,language_model", "--corpus", "hens"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "madbench"]
    how = {"cwd": here, "env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 240}
    ended = subprocess.run([*torchrun, *run, "--device", "cpu"], check=False, **how)
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(r"^S ", ended.stdout, re.MULTILINE)) == 2
    runs = list(Store.open(here / "results", create=False).runs())
    assert {run.job.task for run in runs} == {"compression", "language_model"}
    assert {run.record.details["world_size"] for run in runs} == {2}


@pytest.mark.slow
def test_two_nodes_that_share_no_results_folder_train_one_run(here):
    """The second node stores nothing. The first stores the run, with the numbers of two processes."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        endpoint = f"localhost:{probe.getsockname()[1]}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "-m", "madbench", "lm", "S", "--device", "cpu"]
    nodes = []
    for name in ("one", "two"):
        words = ["--profile", str(here / "small_lm.yaml"), "--corpus", str(here / "hens")]
        (here / name).mkdir()
        how = {"cwd": here / name, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        nodes.append(subprocess.Popen([*torchrun, *words], text=True, **how))
    printed = [node.communicate(timeout=280)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    stores = [folder for folder in (here / "one" / "results", here / "two" / "results") if (folder / "runs").is_dir()]
    runs = [run for folder in stores for run in Store.open(folder, create=False).runs()]
    assert len(runs) == 1 and runs[0].record.details["world_size"] == 2
    assert sum("L5" in text for text in printed) == 1  # the first process prints the table
    (journal,) = (stores[0] / "sweeps").glob("*.json")
    assert "torchrun --nnodes 2 --nproc-per-node 1 -m madbench lm S" in journal.read_text()


@pytest.mark.slow
def test_a_dry_run_says_what_it_would_cost_and_trains_nothing(main, here, monkeypatch):
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {"language_model": 1e-6})
    monkeypatch.setattr(devices, "available_cores", lambda: 1)
    words = ("lm", "S", "R-12o!", "--profile", "small_lm.yaml", "--corpus", "hens", "--device", "cpu", "--dry-run")
    content = json.loads(main(*words, "-f", "json").stdout)
    assert [cell["label"] for cell in content["cells"]] == ["S", "R-12o!"] and content["todo"] == 2
    for cell in content["cells"]:
        assert sum(group["parameters"] for group in cell["parameter_groups"]) == cell["parameters"][0]
        assert 0 < cell["flops_per_token"] <= cell["counted_flops_per_token"]
        assert cell["memory_bytes"] > 16 * cell["parameters"][0] and cell["micro_batch"] == 4
    assert content["estimated_seconds"] == pytest.approx(1e-6 * sum(cell["flops"] for cell in content["cells"]))
    assert json.loads(main(*words, "--micro-batch", "2", "-f", "json").stdout)["cells"][0]["micro_batch"] == 2
    shown = main(*words)
    assert "mixing tables" in shown.stdout and "2 jobs in 2 rows: 0 done, 2 to do." in " ".join(shown.stdout.split())
    assert not (here / "results" / "runs").exists()


@pytest.mark.slow
def test_a_dry_run_of_table_2_needs_no_corpus_and_says_how_nodes_train_it(main, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {"language_model": 1e-6})
    words = ("lm", "S-p", "--profile", "fineweb-340m", "--device", "cpu", "--threads", "1", "--dry-run")
    monkeypatch.setattr(sys, "argv", ["madbench", *words])
    ended = main(*words, "-f", "json")
    content = json.loads(ended.stdout)
    (cell,) = content["cells"]
    assert "counted with its 32,000 ids; --corpus FOLDER trains it" in ended.stderr
    assert cell["parameters"] == [341_099_520] and cell["memory_bytes"] > 16 * 341_099_520
    assert cell["flops"] == pytest.approx(cell["flops_per_token"] * 15e9, rel=0.03)
    commands = content["node"]["commands"]
    assert commands["one"] == "torchrun --nproc-per-node 8 -m madbench lm S-p --profile fineweb-340m --device cpu"
    assert "--nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m" in commands["two"]
    assert 3600 < content["node"]["assumed_seconds"] < 86400
    refused = main(*(word for word in words if word != "--dry-run"))
    assert refused.code == 2 and "has no corpus of its own: give --corpus FOLDER" in refused.stderr
    assert not (tmp_path / "results" / "corpora").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lm", "S", "--profile", "tinny"], "profile 'tinny': no such profile or file; did you mean 'tiny'?"),
        (["lm", "S", "--profile", "gpt2"], "profile gpt2 has no corpus of its own: give --corpus FOLDER"),
        (
            ["lm", "evaluate", "S", "--tasks", "repetitions"],
            "did you mean 'repetition'?",
        ),
        (
            ["lm", "evaluate", "S", "--tasks", "repetition", "--shots", "2"],
            "--shots 2 has no effect on madbench's own tasks (repetition)",
        ),
        (["lm", "evaluate", "S", "--limit", "5"], "--limit 5 has no effect without --tasks"),
        (
            ["lm", "evaluate", "S", "--tasks", "repetition", "--windows", "2"],
            "--windows 2 has no effect with --tasks; --limit is the number of questions",
        ),
        (["lm", "S", "--tokenizer", "gpt2"], "--tokenizer gpt2 has no effect without --corpus"),
        (["lm", "S", "--dtype", "uint32"], "--dtype uint32 has no effect without --corpus"),
        (["lm", "S", "--corpus", "hen"], "corpus 'hen': no such folder; madbench lm prepare makes one from text"),
        (["lm", "S", "--corpus", "."], "train.bin and val.bin missing"),
        (
            ["lm", "S", "training.step=3"],
            "override 'training.step=3': training: unknown key 'step'; did you mean 'steps'?",
        ),
        (["lm", "S", "steps=3"], "override 'steps': unknown key; did you mean 'training.steps'?"),
        (["lm", "G-cx-q-12o"], "did you mean 'G-cg-q-12o'?"),
        (["lm", "sample", "S"], "results: there is no such results folder"),
        (["run", "S", "-t", "compression", "--corpus", "hens"], "--corpus hens has no effect"),
        (["run", "S", "-t", "compression", "language_model.training.steps=3"], "no language model is trained"),
        (["run", "S", "-t", "language_model", "training.epochs=3"], "training: unknown key 'epochs'"),
        (
            ["run", "S", "-t", "language_model", "--fidelity", "published"],
            "fidelity published has no effect on the language model",
        ),
        (["run", "S", "--profile", "mad.yaml", "-t", "language_model"], "unknown key 'difficulty'"),
    ],
)
def test_wrong_options_of_lm_are_refused_before_a_store_is_made(main, here, words, says):
    refused = main(*words)
    assert (refused.code, refused.stdout) == (2, "")
    assert says in refused.stderr
    assert not (here / "results").exists()


def write_wide(folder: Path) -> None:
    """Token files of another program, with 32-bit ids."""
    ids = np.random.default_rng(0).integers(0, 90_000, 3000).astype("<u4")
    (folder / "wide").mkdir()
    ids[:2000].tofile(folder / "wide" / "train.bin")
    ids[2000:].tofile(folder / "wide" / "val.bin")


@pytest.fixture(scope="module")
def trained_on_wide(tmp_path_factory) -> Path:
    """A folder with the token files, and the results that the Python API stored for a model on them."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "small_lm.yaml").write_text(PRESET)
    write_wide(folder)
    how = {"profile": "small_lm.yaml", "corpus": "wide", "tokenizer": "none:90000", "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert madbench.run_language_model("S", dtype="uint32", **how).validation_loss.notna().any()
    return folder


@pytest.fixture
def run(main, trained_on_wide, tmp_path) -> Run:
    """The run, in the store of the current folder, which also has the token files."""
    shutil.copytree(trained_on_wide, tmp_path, dirs_exist_ok=True)
    (run,) = Store.open("results", create=False).runs()
    return run


@pytest.mark.slow
def test_lm_trains_and_evaluates_on_uint32_token_files(main, run):
    described = run.record.details["corpus"]
    assert (described["dtype"], described["splits"]["train"]["tokens"]) == ("uint32", 2000)
    for options in ([], ["--corpus", "wide"]):
        evaluated = json.loads(main("lm", "evaluate", "S", "-f", "json", "--device", "cpu", *options).stdout)
        assert evaluated["validation_loss"] == pytest.approx(run.record.metrics["validation_loss"], rel=1e-6)


@pytest.mark.slow
def test_an_exported_model_is_evaluated_on_token_files_whose_tokenizer_is_named(main, run):
    assert main("lm", "export", "S", "--output", "s.safetensors").code == 0
    words = ("lm", "evaluate", "s.safetensors", "--device", "cpu", "-f", "json", "--results", "elsewhere")
    where = ("--corpus", "wide", "--tokenizer", "none:90000")
    for options in (where, (*where, "--dtype", "uint32")):
        evaluated = main(*words, *options)
        assert evaluated.code == 0, evaluated.stderr
        expected = run.record.metrics["validation_loss"]
        assert json.loads(evaluated.stdout)["validation_loss"] == pytest.approx(expected, rel=1e-6)
    wrong = main(*words, "--corpus", "wide", "--tokenizer", "none:90001")
    assert wrong.code == 2 and "read as none:90001 in uint32, which --tokenizer and --dtype change" in wrong.stderr
    for options in ((), ("--dtype", "uint32")):
        without = main(*words, "--tokenizer", "none:90000", *options)
        assert without.code == 2 and "has no effect without --corpus, the folder" in without.stderr
    looked = main(
        "inspect", "s.safetensors", *where, "--no-figures", "--device", "cpu", "--results", "elsewhere", "-f", "json"
    )
    assert looked.code == 0, looked.stderr


@pytest.mark.slow
def test_the_dtype_of_token_files_is_an_option_or_is_detected_and_printed(main, here, monkeypatch):
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {"language_model": 1e-6})
    write_wide(here)
    words = ("lm", "S", "--profile", "small_lm.yaml", "--corpus", "wide", "--device", "cpu", "--dry-run")
    found = main(*words, "--tokenizer", "none:90000")
    assert found.code == 0 and "wide: read as uint32, which fits its ids; --dtype" in found.stderr
    said = main(*words, "--tokenizer", "none:90000", "--dtype", "int32")
    assert said.code == 0 and "--dtype" not in said.stderr
    refused = main(*words, "--tokenizer", "none:50257")
    assert refused.code == 2 and "is beyond the vocabulary of 50257" in refused.stderr
    refused = main(*words[:5], "hens", "--dtype", "uint32")
    assert "--dtype 'uint32': hens has ids of type uint16; leave out --dtype" in refused.stderr


SHORT = ["--corpus", "hens", "language_model.model.seq_len=448", "language_model.training.tokens_per_step=448"]


@pytest.mark.slow
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    "words",
    [
        ["run", "S", "--profile", "profile.yaml", "-t", "compression,language_model", *SHORT],
        ["sweep", "S", "--profile", "small_lm.yaml", "-t", "language_model", *SHORT],
        ["sweep", "S", "--profile", "profile.yaml", *SHORT[:2], "--vary", "language_model.model.seq_len=64,448"],
        ["lm", "S", "--profile", "small_lm.yaml", *(word.removeprefix("language_model.") for word in SHORT)],
    ],
)
def test_a_corpus_without_a_window_is_refused_while_planning(main, here, words, dry):
    if "--vary" in words:
        words = [*words, "language_model.training.tokens_per_step=448"]
    refused = main(*words, "--device", "cpu", *dry)
    assert (refused.code, refused.stdout) == (2, "")
    assert "the val split has 441 tokens; seq_len 448 needs at least 449: take a seq_len of at most" in refused.stderr
    assert "corpus 'hens'" in refused.stderr and "at most 440, " in refused.stderr
    assert "--validation 0.41" in refused.stderr
    assert not (here / "results" / "runs").exists()


def test_the_python_api_refuses_a_corpus_without_a_window_while_planning(main, here):
    changes = {"model.seq_len": 448, "training.tokens_per_step": 448}
    with pytest.raises(ConfigError, match="the val split has 441 tokens; seq_len 448"):
        madbench.run_language_model("S", profile="small_lm.yaml", overrides=changes, corpus="hens", device="cpu")


@pytest.mark.slow
def test_the_longest_window_of_a_corpus_is_planned_and_trained_on(here, tmp_path):
    def planned(seq_len):
        sizes = {"model.seq_len": seq_len, "training.tokens_per_step": seq_len, "training.steps": 4}
        grid = load_grid(["S"], {"profile": "small_lm.yaml", "tasks": ["language_model"], "set": sizes})
        return prepare_experiment(grid, ExperimentOptions(device="cpu", data=CorpusOptions(corpus=here / "hens")))

    with pytest.raises(ConfigError, match="the val split has 441 tokens; seq_len 441 needs at least 442"):
        planned(441)
    ([job], [row]) = planned(440).jobs, planned(440).rows
    corpus = row.protocol.corpus
    record = train_job(job, tmp_path, lambda progress: None, corpora={corpus.digest: corpus}, device="cpu")
    assert record.status == "finished" and record.metrics["validation_loss"] > 0


def test_csv_of_two_tables_is_refused(main, here):
    words = ("sweep", "S", "--profile", "profile.yaml", "-t", "compression,language_model", "--corpus", "hens")
    refused = main(*words, "--device", "cpu", "-f", "csv")
    assert (refused.code, refused.stdout) == (2, "") and "--format csv is for one table" in refused.stderr
    assert not (here / "results" / "runs").exists()


def test_a_model_with_several_runs_must_be_named_by_id(main, here, language_run):
    store = Store.open(here / "results")
    for seed in (0, 1):
        run = language_run("S", seed=seed)
        store.finish(run.job, run.record)
        (store.root / "runs" / run.job.id / "weights.safetensors").touch()
    refused = main("lm", "sample", "S")
    assert "2 runs are 'S'; name one by its id" in refused.stderr and run.job.id in refused.stderr
    assert f"{run.job.id}: the run left no file" in main("lm", "sample", run.job.id[:6]).stderr
    assert "no finished language model 'R'" in main("lm", "export", "R").stderr


@pytest.fixture
def untrained(here) -> str:
    """A file with the weights of an untrained model on the corpus."""
    corpus = open_corpus("hens")
    job = language_job("S", corpus.digest, corpus.padded_vocab_size)
    save_weights(Path("w.safetensors"), LanguageTrial.build(job), job)
    return "w.safetensors"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--temperature", "nan"], "--temperature"),
        (["--temperature", "inf"], "--temperature inf: expected a finite number"),
        (["--top-k", "257"], "--top-k 257 has no effect: tokenizer bytes has 257 tokens"),
        (["--top-k", "10" * 20], "has no effect: tokenizer bytes has 257 tokens"),
    ],
)
def test_absurd_settings_of_sampling_are_refused_before_a_word_is_printed(main, untrained, options, says):
    refused = main("lm", "sample", untrained, "--corpus", "hens", "--prompt", "The", "--device", "cpu", *options)
    assert (refused.code, refused.stdout) == (2, "") and says in refused.stderr


def test_a_tiny_temperature_writes_the_likeliest_text(main, untrained):
    words = ("lm", "sample", untrained, "--corpus", "hens", "--prompt", "The", "--device", "cpu", "--tokens", "9")
    likeliest = main(*words, "--temperature", "0")
    assert main(*words, "--temperature", "1e-300").stdout == likeliest.stdout and likeliest.code == 0


@pytest.mark.slow
def test_a_prompt_that_is_not_unicode_is_continued(main, untrained):
    sampled = main("lm", "sample", untrained, "--corpus", "hens", "--prompt", "a\udcff", "--device", "cpu")
    assert sampled.code == 0 and sampled.stdout.startswith("a\ufffd")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["", "-f json", "--tasks repetition --limit 4"])
def test_an_evaluation_that_cannot_be_stored_is_printed(main, here, words):
    main("lm", "train", "S", "--profile", "small_lm.yaml", "--device", "cpu", "--corpus", "hens")
    (folder,) = Path("results/runs").iterdir()
    evaluate = ("lm", "evaluate", "S", "--device", "cpu", *words.split())
    stored = main(*evaluate)
    assert stored.code == 0
    shutil.rmtree(folder / "measurements")
    folder.chmod(0o555)
    with enforce_file_modes():
        printed = main(*evaluate)
    folder.chmod(0o755)
    assert printed.stdout.splitlines()[0] == stored.stdout.splitlines()[0]
    assert printed.code == 2 and f"{folder}: permission denied" in printed.stderr
