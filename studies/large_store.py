"""Write a store of synthetic runs and time the verbs that read it, each as a whole process.

    python studies/large_store.py [--runs 20000] [--folder DIR] [--repeats 3] [--json]

The runs are those of the paper's 33 labels under the full profile, seed after seed, and a few hundred language models.
Their numbers come from a known model: the task's base value, plus the effect of every factor of the label, minus the
cost of a difficult setting or a bad learning rate, plus noise of the seed and of the run. The real writer writes them,
only without fsync. ``--folder`` keeps the store and resumes it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from madbench.details import Details
from madbench.jobs import Job, Record
from madbench.labels import expand, family_of
from madbench.store.runs import Store
from madbench.suites import default_suites
from madbench.suites.corpora import StoredCorpus
from synthetic import RECORDS

LABELS = ("@table1",)
SEEDS_BESIDE = 9
"""The number of seeds of suites other than the main suite."""
EFFECTS = {"S": 0.02, "G": 0.03, "p": 0.04, "c": 0.06, "g": 0.02, "q": -0.01, "v": -0.03, "!": 0.02}
EFFECTS |= {"1": 0.07, "2": 0.03, "o": 0.05}
"""The accuracy that a letter of the label adds on every task."""
CORPUS = StoredCorpus("c0ffee0123456789", padded_vocab_size=320, description={})
"""The corpus of the language jobs. It has no token files."""
SEED_NOISE, RUN_NOISE = 0.01, 0.005
"""Standard deviations of the accuracy: of the seed (per label and task), and of the run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20_000, help="runs in the store")
    parser.add_argument("--folder", type=Path, help="results folder to keep; a temporary one by default")
    parser.add_argument("--repeats", type=int, default=3, help="processes per verb; the median counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    if options.runs < 1 or options.repeats < 1:
        parser.error("--runs and --repeats must be at least 1")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="madbench-store-"))
    try:
        started = time.perf_counter()
        count = write_store(folder, options.runs)
        result = {"runs": count, "python": platform.python_version(), "seconds_to_write": time.perf_counter() - started}
        result["verbs"] = measure(folder, options.repeats)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)


def write_store(folder: Path, count: int) -> int:
    """Fill the results folder up to ``count`` synthetic runs, and return the number of its runs."""
    store = Store.open(folder)
    stored = set(os.listdir(folder / "runs"))
    with patch("os.fsync"):
        for job in synthetic_jobs(count):
            if job.id not in stored:
                store.finish(job, synthetic_record(job))
    return len(os.listdir(folder / "runs"))


def synthetic_jobs(count: int) -> Iterator[Job]:
    """Yield ``count`` jobs: at most 1 in 50 of other suites, then those of the main suite, seed by seed."""
    labels, (main, *beside) = expand(LABELS), default_suites()
    full = main.Profile.load("full")
    of_others = (
        suite.jobs(labels, suite.Profile.load(suite.default), corpus=CORPUS, seeds=[seed])
        for suite in beside
        for seed in range(SEEDS_BESIDE)
    )
    others = [*itertools.islice(itertools.chain.from_iterable(of_others), count // 50)]
    of_main = (main.jobs([label], full, seeds=[seed]) for seed in itertools.count() for label in labels)
    yield from others
    yield from itertools.islice(itertools.chain.from_iterable(of_main), count - len(others))


def synthetic_record(job: Job) -> Record:
    """The record of ``job`` from the known model, with metrics, details and a curve in the format of a real run."""
    rng = np.random.default_rng(int(job.id, 16))
    noise = np.random.default_rng([job.seed, *f"{job.label} {job.task}".encode()]).normal(0, SEED_NOISE)
    effect = effect_of(job.label) + noise
    details: Details = {
        "model_parameters": 167744,
        "mixer_parameters": 16896,
        "seeds": {stream: job.derived_seed(stream) for stream in ("init", "data", "order")},
        "device": "a synthetic device",
        "threads": 1,
        "versions": {"madbench": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
        "git": {"commit": "1572d80e41b204a6d3f0d6fec915676fed832af7", "dirty": False},
        "ranks": {"qk": 64, "vo": 64, "mix": 0},
        "budget": 16896,
        "budget_ratio": 1.0,
        "path": "sdpa",
    }
    return RECORDS[job.suite](job, effect + rng.normal(0, RUN_NOISE), details, rng)


def effect_of(label: str) -> float:
    """The summed effects of the label's letters; 0 for other families."""
    return 0.0 if family_of(label).name else sum(EFFECTS.get(letter, 0.0) for letter in label)


FIND_MISSING = """
import sys
from madbench.labels import expand
from madbench.store.runs import Store
from madbench.suites import main_suite
main = main_suite()
jobs = main.jobs(expand(["@table1"]), main.Profile.load("full"))[:10000]
print(len(Store.open(sys.argv[1], create=False).missing(jobs)), "of", len(jobs), "missing")
"""
DRAW_ANEW = """
import shutil, sys
from pathlib import Path
from madbench.cli import main
shutil.rmtree(Path(sys.argv[sys.argv.index("--results") + 1], "index", "figures"), ignore_errors=True)
main()
"""


def commands(folder: Path, empty: Path) -> dict[str, list[str]]:
    """The processes to time, by name."""
    madbench = [sys.executable, "-m", "madbench"]
    stored = ["--results", str(folder)]
    report = ["report", "--profile", "full", *stored, "--output", str(empty / "report.html")]
    return {
        "table": [*madbench, "table", "--profile", "full", *stored],
        "attribute": [*madbench, "attribute", "--profile", "full", *stored],
        "ls runs": [*madbench, "ls", "runs", *stored],
        "report": [*madbench, *report],
        "report, figures drawn anew": [sys.executable, "-c", DRAW_ANEW, *report],
        "validate --store": [*madbench, "validate", "--store", *stored],
        "missing of 10,000": [sys.executable, "-c", FIND_MISSING, str(folder)],
        "run --dry-run, 13,068 jobs": [
            *madbench, "run", *LABELS, "--profile", "full", "--device", "cpu", "--dry-run", "--results", str(empty)
        ],
    }  # fmt: skip


def measure(folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of each verb without an index, and median seconds and CPU seconds with one."""
    results = {}
    with tempfile.TemporaryDirectory() as empty:
        for name, command in commands(folder, Path(empty)).items():
            shutil.rmtree(folder / "index", ignore_errors=True)
            times = [time_command(command) for _ in range(1 + repeats)]
            seconds, cpu = (statistics.median(column) for column in zip(*times[1:], strict=True))
            results[name] = {"without_index": times[0][0], "seconds": seconds, "cpu_seconds": cpu}
    return results


def time_command(command: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a process. Raises ``CalledProcessError`` if it fails."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "COLUMNS": "200"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_table(result: dict[str, Any]) -> None:
    table = Table(title=f"A store of {result['runs']:,} runs")
    for column in ("whole process", "no index, s", "seconds", "CPU seconds"):
        table.add_column(column, justify="left" if column == "whole process" else "right")
    for name, row in result["verbs"].items():
        table.add_row(name, *(f"{row[key]:.2f}" for key in ("without_index", "seconds", "cpu_seconds")))
    Console().print(table)


if __name__ == "__main__":
    main()
