"""Compare the core-seconds that two commits need for the same training runs.

    python studies/core_seconds.py e486deb2                        # the working tree against that commit
    python studies/core_seconds.py e486deb2 main --repeats 3       # medians over three turns
    python studies/core_seconds.py e486deb2 --labels S-p --tasks compression,memorization

Each label is trained by ``madbench run LABEL`` with the profile ``evening``: three seeds of all six tasks, one job at a
time on one thread. The commits take turns label by label and swap the order every other turn. Core-seconds are the
processor time of the command and of its workers, so starting Python, making data and evaluating count. ``--by-task``
runs one command for each label and task. One turn takes about 20 minutes of a free core; other work on the machine
adds to both sides.

Run it with an interpreter that has madbench's dependencies.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from golden import Side, make_side

LABELS = "S-p,S-pc,R-pc,G-cg-q-12o,cd:gdn"
TASKS = "compression,fuzzy_in_context_recall,in_context_recall,memorization,noisy_in_context_recall,selective_copying"
OPTIONS = "--profile evening --device cpu --threads 1 --slots 1"
Key = tuple[str, str]
"""A label and its tasks."""


def core_seconds(side: Side, label: str, tasks: str, seeds: str) -> float:
    """Processor time, in seconds, of a command that trains a label in a new store."""
    with tempfile.TemporaryDirectory(prefix="madbench-seconds-") as store:
        words = ["-m", "madbench", "run", label, "--tasks", tasks, "--seeds", seeds, *OPTIONS.split()]
        process = side.start(*words, "--results", store, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr  # it is a pipe
        with process.stderr:
            errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)  # with the workers that the command has waited for
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{side.name}: python {' '.join(words)} failed:\n{errors[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def measure(sides: list[Side], keys: list[Key], seeds: str, repeats: int) -> dict[Key, list[list[float]]]:
    """Core-seconds of each command: for each side, one number per turn."""
    seconds: dict[Key, list[list[float]]] = {key: [[], []] for key in keys}
    for turn in range(repeats):
        for number, (label, tasks) in enumerate(keys):
            order = (0, 1) if (turn + number) % 2 == 0 else (1, 0)
            for index in order:
                seconds[label, tasks][index].append(core_seconds(sides[index], label, tasks, seeds))
            before, after = (seconds[label, tasks][index][-1] for index in (0, 1))
            print(f"turn {turn + 1}: {label} {tasks}: {before:.1f} s, then {after:.1f} s", file=sys.stderr, flush=True)
    return seconds


def print_table(sides: list[Side], seconds: dict[Key, list[list[float]]]) -> None:
    """Print one row per command and one for their sum: medians over turns, and the ratio of second to first commit."""
    print(f"{'label':<16}{'tasks':<28}{sides[0].name[:12]:>14}{sides[1].name[:12]:>14}{'ratio':>8}")
    medians = {key: [statistics.median(turns) for turns in of_sides] for key, of_sides in seconds.items()}
    total = [sum(of_key[index] for of_key in medians.values()) for index in (0, 1)]
    for (label, tasks), (before, after) in {**medians, ("all", ""): total}.items():
        shown = tasks if tasks.count(",") == 0 else f"{tasks.count(',') + 1} tasks"
        print(f"{label:<16}{shown:<28}{before:>14.1f}{after:>14.1f}{after / before:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", help="a commit")
    parser.add_argument("commit", nargs="?", help="another commit (default: the working tree)")
    parser.add_argument("--labels", default=LABELS, help=f"comma-separated (default: {LABELS})")
    parser.add_argument("--tasks", default=TASKS, help="comma-separated (default: the six MAD tasks)")
    parser.add_argument("--seeds", default="0-2", help="default: 0-2")
    parser.add_argument("--repeats", type=int, default=1, help="turns of each command (default: 1)")
    parser.add_argument("--by-task", action="store_true", help="one command per label and task")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the checkouts here")
    asked = parser.parse_args()
    groups = asked.tasks.split(",") if asked.by_task else [asked.tasks]
    keys = [(label, tasks) for label in asked.labels.split(",") for tasks in groups]
    with tempfile.TemporaryDirectory(prefix="madbench-seconds-") as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        sides = [make_side(commit, folder) for commit in (asked.reference, asked.commit)]
        if sides[0].folder == sides[1].folder:
            parser.error(f"{asked.reference} and {asked.commit} are the same commit")
        print_table(sides, measure(sides, keys, asked.seeds, asked.repeats))


if __name__ == "__main__":
    main()
