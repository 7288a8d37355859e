"""Trains nanoGPT and madbench's softmax label on the same tokens, sizes and schedule, and compares loss and speed.

    python studies/nanogpt.py --nanogpt CHECKOUT [KEY=VALUE ...] [--corpus FOLDER] [--seeds 0,1]

CHECKOUT is a clone of github.com/karpathy/nanoGPT. Its train.py runs in a separate process, unchanged except for the
seed, which is fixed in its code. Both codes train on the CPU in float32, uncompiled, one after the other, and alternate
in order. nanoGPT draws new windows for every evaluation, and madbench has the same validation windows each time.
Tokens per second are the median over a run without its evaluations.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import pickle
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from madbench.analysis.marked_text import with_minus
from madbench.errors import ConfigError, MadbenchError, TrainingError
from madbench.execute.base import Event
from madbench.execute.local import run_jobs
from madbench.store.runs import Store
from madbench.suites.language.suite import (
    LANGUAGE,
    LanguageJob,
    LanguageProfile,
    LanguageTraining,
    sequences_per_step,
)
from madbench.suites.language.trial import ROWS_PER_EVALUATION
from madbench.text.corpus import Corpus, open_corpus
from madbench.text.prepare import default_corpus
from madbench.training.loop import train
from madbench.training.options import LoopOptions

CODES = ("nanoGPT", "madbench")
CHECKOUT_FILES = ("train.py", "model.py", "configurator.py")
SEED_LINE = "torch.manual_seed(1337 + seed_offset)"
DEFAULTS = {
    "precision": "float32",
    "model.d_model": 144,
    "model.n_head": 12,
    "model.positions": "learned",
    "training.steps": 400,
    "training.tokens_per_step": 2048,
    "training.eval_every": 80,
    "training.eval_sequences": 640,
}

OnStep = Callable[..., None]


@dataclass(frozen=True)
class Run:
    """The results of one training run."""

    validation_loss: dict[int, float]
    """Nats per token by the number of steps taken."""
    tokens_per_second: float
    """Median over the run."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="such as training.steps=400 model.n_head=6")
    parser.add_argument("--nanogpt", type=Path, required=True, help="a clone of github.com/karpathy/nanoGPT")
    parser.add_argument("--corpus", type=Path, help="folder of train.bin, val.bin; by default the standard library")
    parser.add_argument("--tokenizer", help="of a corpus without a manifest: gpt2, bytes or none:N")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the default corpus is kept")
    parser.add_argument("--seeds", type=_seeds, default=(0, 1), help="at least two, e.g. 0,1,2")
    parser.add_argument("--batch", type=_positive, default=16, help="windows that go through the model at once")
    parser.add_argument("--threads", type=_positive, default=torch.get_num_threads(), help="of either code")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_intermixed_args(arguments)
    try:
        check_checkout(options.nanogpt)
        if options.tokenizer and not options.corpus:
            raise ConfigError("--tokenizer has no effect without --corpus")
        corpus = open_corpus(options.corpus, options.tokenizer) if options.corpus else default_corpus(options.results)
        job = make_job(options, corpus)
        runs = train_both(job, corpus, options)
    except MadbenchError as error:
        parser.error(str(error))
    result = compare(runs)
    if options.json:
        print(json.dumps(protocol(job, corpus, options) | result, indent=2))
    else:
        print_result(result, job, corpus, options)


def check_checkout(folder: Path) -> None:
    """Raise ``ConfigError`` if the folder is not a nanoGPT checkout, or its train.py sets the seed in another way."""
    if missing := [name for name in CHECKOUT_FILES if not (folder / name).is_file()]:
        raise ConfigError(f"--nanogpt {folder}: no nanoGPT checkout: {', '.join(missing)} missing")
    if (folder / "train.py").read_text(encoding="utf-8").count(SEED_LINE) != 1:
        raise ConfigError(f"--nanogpt {folder}: its train.py does not seed as nanoGPT's does, with {SEED_LINE!r}")


def make_job(options: argparse.Namespace, corpus: Corpus) -> LanguageJob:
    """The job of the first seed. Raises ``ConfigError`` for settings that one of the two codes cannot train."""
    keys = {setting.partition("=")[0] for setting in options.settings}
    defaults = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in keys]
    profile = LanguageProfile.load("tiny", [*defaults, *options.settings])
    (job,) = LANGUAGE.jobs(["S"], profile, corpus=corpus, seeds=options.seeds[:1])
    model, training = job.model, job.training
    if model.positions != "learned" or profile.precision != "float32":
        raise ConfigError("nanoGPT learns its positions, and is compared in float32: neither can be changed")
    if model.d_model % model.n_head:
        raise ConfigError(f"model.n_head {model.n_head} must divide model.d_model {model.d_model}")
    counts = {"tokens_per_step / seq_len": sequences_per_step(job), "eval_sequences": training.eval_sequences}
    for name, windows in counts.items():
        if windows % options.batch:
            raise ConfigError(f"{name}, {windows} windows, must be a multiple of --batch {options.batch}")
    if training.eval_every < 2:
        raise ConfigError("training.eval_every must be at least 2: nanoGPT's time of a step includes its evaluation")
    if corpus.manifest.dtype != "uint16":
        raise ConfigError(f"{corpus.folder}: its ids are {corpus.manifest.dtype}; nanoGPT reads uint16 only")
    return job


def train_both(job: LanguageJob, corpus: Corpus, options: argparse.Namespace) -> dict[str, list[Run]]:
    """The runs of each code, one per seed."""
    torch.set_num_threads(options.threads)
    runs: dict[str, list[Run]] = {code: [] for code in CODES}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for index, seed in enumerate(options.seeds):
            for code in CODES if index % 2 == 0 else CODES[::-1]:
                bar = progress.add_task(f"{code}, seed {seed}", total=job.training.steps)
                train_code = train_nanogpt if code == "nanoGPT" else train_madbench
                with tempfile.TemporaryDirectory() as folder:
                    on_step = functools.partial(progress.update, bar)
                    runs[code].append(train_code(replace(job, seed=seed), corpus, options, Path(folder), on_step))
    return runs


def train_madbench(job: LanguageJob, corpus: Corpus, options: argparse.Namespace, folder: Path, on_step: OnStep) -> Run:
    """Train in a separate process, as ``madbench lm`` does, with a store in ``folder``."""

    def show(event: Event) -> None:
        if event["event"] == "progress":
            on_step(completed=event["progress"]["step"])

    store = Store.open(folder)
    training = functools.partial(train, corpora={corpus.digest: corpus}, options=LoopOptions(micro_batch=options.batch))
    run_jobs([[job]], store, training, on_event=show, threads_per_slot=options.threads)
    record = store.read(job.id).record
    if record.status != "finished":
        raise TrainingError(f"madbench, seed {job.seed}: {record.error}")
    losses = {int(row["step"]): row["validation_loss"] for row in record.curve if "evaluation" in row}
    return Run(losses, record.details["tokens_per_second"])


def train_nanogpt(job: LanguageJob, corpus: Corpus, options: argparse.Namespace, folder: Path, on_step: OnStep) -> Run:
    """Run nanoGPT in ``folder``, which gets its files, links to the corpus, and its output."""
    for name in CHECKOUT_FILES:
        shutil.copy(options.nanogpt / name, folder)
    script = folder / "train.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace(SEED_LINE, SEED_LINE.replace("1337", str(1337 + job.seed))), encoding="utf-8")
    if corpus.manifest.dtype != "uint16":
        raise ConfigError(f"{corpus.folder}: its ids are {corpus.manifest.dtype}; nanoGPT reads uint16 alone")
    data = folder / "data" / "corpus"
    data.mkdir(parents=True)
    for split in ("train", "val"):
        (data / f"{split}.bin").symlink_to((corpus.folder / f"{split}.bin").resolve())
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": job.setting["vocab_size"]}))

    settings = [f"--{name}={value}" for name, value in nanogpt_settings(job, options.batch).items()]
    command = [sys.executable, "-u", "train.py", *settings]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    environment = os.environ | threads
    lines = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                if step := re.match(r"iter (\d+):", line):
                    on_step(completed=int(step[1]))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise TrainingError(f"nanoGPT, seed {job.seed}, exited with {process.returncode}: {lines[-1].strip()}")
    return read_output(lines, job.training)


def nanogpt_settings(job: LanguageJob, batch: int) -> dict[str, Any]:
    """The settings of the job under the names of nanoGPT's configuration."""
    model, training = job.model, job.training
    return {
        "device": "cpu",
        "dtype": "float32",
        "compile": False,
        "wandb_log": False,
        "dataset": "corpus",
        "always_save_checkpoint": False,
        "log_interval": 1,
        "eval_interval": training.eval_every,
        "eval_iters": training.eval_sequences // batch,
        "batch_size": batch,
        "gradient_accumulation_steps": sequences_per_step(job) // batch,
        "block_size": model.seq_len,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_embd": model.d_model,
        "dropout": 0.0,
        "bias": False,
        "learning_rate": training.learning_rate,
        "min_lr": training.min_learning_rate,
        "max_iters": training.steps,
        "lr_decay_iters": training.schedule(training.steps).decay_end,
        "warmup_iters": training.warmup_steps,
        "decay_lr": True,
        "weight_decay": training.weight_decay,
        "beta1": training.beta1,
        "beta2": training.beta2,
        "grad_clip": training.grad_clip,
    }


def read_output(lines: Sequence[str], training: LanguageTraining) -> Run:
    """The losses and the speed that nanoGPT printed, without its loss before the first step.

    Steps are timed in groups of the length of a row of madbench's curve. Groups with an evaluation do not count. Raises
    ``TrainingError`` if the loss of an evaluation is missing or not finite.
    """
    output, every = "".join(lines), training.eval_every
    validations = re.findall(r"^step (\d+): .*val loss (\S+)$", output, re.MULTILINE)
    losses = {int(step): float(loss) for step, loss in validations if int(step) > 0}
    if list(losses) != list(range(every, training.steps + 1, every)) or not all(map(math.isfinite, losses.values())):
        raise TrainingError(f"nanoGPT: its validation losses by step, {losses}, are not all there or not finite")
    milliseconds = [float(time) for time in re.findall(r"^iter \d+: .*time (\S+)ms", output, re.MULTILINE)]
    size = max(1, every // ROWS_PER_EVALUATION)
    starts = [step for step in range(0, training.steps, size) if 0 < step % every <= every - size]
    seconds = statistics.median(sum(milliseconds[start : start + size]) / 1e3 for start in starts)
    return Run(losses, size * training.tokens_per_step / seconds)


def compare(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """The losses by step, the differences between runs, and the speeds.

    ``same_code`` and ``other_code`` are root mean square differences in validation loss, over all evaluations and over
    all pairs of runs of the same code, or of different codes. They are about equal if the codes differ only by noise.
    """
    theirs, ours = (runs[code] for code in CODES)
    same = [pair for code in CODES for pair in itertools.combinations(runs[code], 2)]
    steps = list(theirs[0].validation_loss)
    speeds = {code: [run.tokens_per_second for run in runs[code]] for code in CODES}
    return {
        "validation_loss": {
            step: {code: [run.validation_loss[step] for run in runs[code]] for code in CODES} for step in steps
        },
        "same_code": apart(same, steps),
        "other_code": apart(list(itertools.product(theirs, ours)), steps),
        "tokens_per_second": speeds,
        "speed_ratio": statistics.median(mine / other for other, mine in zip(*speeds.values())),
    }


def apart(pairs: Sequence[tuple[Run, Run]], steps: Sequence[int]) -> float:
    """Root mean square difference in validation loss over all pairs of runs and all steps."""
    squares = [(a.validation_loss[step] - b.validation_loss[step]) ** 2 for a, b in pairs for step in steps]
    return math.sqrt(statistics.mean(squares))


def protocol(job: LanguageJob, corpus: Corpus, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "device": platform.processor() or platform.machine(),
        "threads": options.threads,
        "torch": torch.__version__,
        "corpus": corpus.name,
        "seeds": options.seeds,
        "nanogpt": nanogpt_settings(job, options.batch),
        "madbench": job.to_dict(),
    }


def print_result(result: dict[str, Any], job: LanguageJob, corpus: Corpus, options: argparse.Namespace) -> None:
    model, count = job.model, len(options.seeds)
    size = f"{model.n_layer} layers, {model.n_head} heads, d_model {model.d_model}, context {model.seq_len}"
    table = Table(title=f"Validation loss on {corpus.name}, mean ± sd of {count} seeds\n{size}")
    for column in ("step", *CODES, "difference"):
        table.add_column(column, justify="right", no_wrap=True)
    for step, losses in result["validation_loss"].items():
        means = {code: statistics.mean(losses[code]) for code in CODES}
        cells = [f"{means[code]:.4f} ± {statistics.stdev(losses[code]):.4f}" for code in CODES]
        table.add_row(str(step), *cells, with_minus(f"{means['madbench'] - means['nanoGPT']:+.4f}"))
    console = Console()
    console.print(table)
    console.print(f"Two runs of the same code differ by {result['same_code']:.4f}, one of each by", end=" ")
    console.print(f"{result['other_code']:.4f} (root mean square over all pairs and evaluations).")
    for code, speeds in result["tokens_per_second"].items():
        console.print(f"{code}: {statistics.median(speeds):,.0f} tokens/s ({', '.join(f'{v:,.0f}' for v in speeds)})")
    console.print(f"madbench / nanoGPT: {result['speed_ratio']:.2f}, {options.threads} threads each")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _seeds(text: str) -> tuple[int, ...]:
    seeds = tuple(int(part) for part in text.split(","))
    if len(set(seeds)) < 2 or min(seeds) < 0:
        raise argparse.ArgumentTypeError(f"two or more different seeds from 0 on show the noise, got {text}")
    return seeds


if __name__ == "__main__":
    main()
