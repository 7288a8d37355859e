"""A benchmark of data generation for the whole protocol: train, validation and test of all 66 settings.

python studies/data_generation.py [--processes 2] [--seed 0] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from madbench.suites import main_suite
from madbench.tasks import generate, load_task
from madbench.tasks.base import SPLITS, TaskSetting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1, help="number of processes")
    parser.add_argument("--seed", type=int, default=0, help="data seed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    if options.processes < 1:
        parser.error(f"--processes must be at least 1, got {options.processes}")
    result = measure(options.processes, options.seed)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)


def measure(processes: int, seed: int) -> dict[str, Any]:
    """Measure seconds by task (summed over processes), seconds in all, tokens, and the peak memory of a process."""
    names = main_suite().usual_tasks()
    work = [(task, setting, seed) for task in names for setting in load_task(task).settings]
    work.sort(key=lambda item: num_tokens(item[1]), reverse=True)
    start = time.perf_counter()
    if processes == 1:
        seconds = [generate_setting(item) for item in work]
    else:
        with ProcessPoolExecutor(processes) as pool:
            seconds = list(pool.map(generate_setting, work))
    elapsed = time.perf_counter() - start
    tasks = {task: {"settings": 0, "tokens": 0, "seconds": 0.0} for task in names}
    for (task, setting, _), spent in zip(work, seconds):
        row = tasks[task]
        row["settings"] += 1
        row["tokens"] += num_tokens(setting)
        row["seconds"] += spent
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "processes": processes,
        "seed": seed,
        "seconds": elapsed,
        "peak_memory_mib_per_process": peak / 1024,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "tasks": tasks,
    }


def generate_setting(item: tuple[str, TaskSetting, int]) -> float:
    """Generate the three splits of one setting, and return the seconds that it took."""
    task, setting, seed = item
    start = time.perf_counter()
    for split in SPLITS:
        generate(task, setting, split, seed)
    return time.perf_counter() - start


def num_tokens(setting: TaskSetting) -> int:
    """The number of input tokens in the three splits of ``setting``."""
    return setting.input_len * sum(map(setting.count, SPLITS))


def print_table(result: dict[str, Any]) -> None:
    table = Table(title=f"Data of the whole protocol, {result['processes']} process(es)")
    for column in ("task", "settings", "million tokens", "seconds"):
        table.add_column(column, justify="left" if column == "task" else "right")
    rows = result["tasks"]
    for task, row in rows.items():
        table.add_row(task, str(row["settings"]), f"{row['tokens'] / 1e6:.1f}", f"{row['seconds']:.2f}")
    table.add_section()
    settings, tokens = (sum(row[name] for row in rows.values()) for name in ("settings", "tokens"))
    table.add_row("start to end", str(settings), f"{tokens / 1e6:.1f}", f"{result['seconds']:.2f}")
    console = Console()
    console.print(table)
    console.print(f"Peak memory of a process: {result['peak_memory_mib_per_process']:.0f} MiB")


if __name__ == "__main__":
    main()
