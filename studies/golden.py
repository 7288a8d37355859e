"""Train the same jobs with the code of two commits and compare every stored number to the last bit.

    python studies/golden.py e486deb2                              # the working tree against that commit
    python studies/golden.py e486deb2 main --keep /tmp/golden      # two commits; a later call continues there
    python studies/golden.py e486deb2 --only 'quick/*/S-p'         # some of the jobs: PART/TASK/LABEL

The jobs are labels of every family (``--labels``), each on the MAD tasks of the profiles ``quick`` and ``evening`` and
as a language model of the profile ``tiny``: seed 0, one thread, float32, on the CPU. They take about half an hour of a
free core per commit. ``--all-suites`` adds the smallest profiles of the suites ``signals`` and ``interactions``, 12
minutes more.

Each commit trains with its own package into stores of its own. Jobs are matched by suite, task, setting, label and
seed, and not by run id, because the id of a ``my:`` label contains a hash of its source. The status, all metrics, all
rows of the curve and all weights are compared, but no times and no memory. The exit code is 1 if anything differs or is
absent.

Run it with an interpreter that has madbench's dependencies. Compare on one machine, because other processors and other
versions of torch give other last digits.
"""

from __future__ import annotations

import argparse
import array
import csv
import dataclasses
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LABELS = "S-p,R-cg-q-12o,G-cg-q-12o,D-p,cd:gdn-cg,ha:3,hfa:2,my:mean"
MAD_TASKS = (
    "compression",
    "fuzzy_in_context_recall",
    "in_context_recall",
    "memorization",
    "noisy_in_context_recall",
    "selective_copying",
)
WORLDS = ("colliding", "hunters", "alliances", "plane", "genotype", "pixels", "series")
OPTIONS = "--seeds 0 --device cpu --threads 1 --group 1"
NOT_COMPARED = {"seconds", "tokens_per_second", "memory_bytes", "mfu"}
"""Metrics and columns of a curve that depend on the machine's speed, not on the numbers of a training run."""
ARRAY_TYPES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q"}  # dtype in safetensors: type code of ``array``

Key = tuple[str, str, str, str, str]  # suite, task, label, seed, setting


@dataclass(frozen=True)
class Part:
    """The jobs of one profile, which have a store of their own."""

    name: str
    profile: str
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    keeps_weights: bool = False  # True if weights are kept by default, so that --keep-weights is an error


@dataclass(frozen=True)
class Side:
    """A commit's checkout and its stores, in ``folder``."""

    name: str
    folder: Path

    def store(self, part: Part) -> Path:
        return self.folder / "stores" / part.name

    def start(self, *words: str, **pipes: Any) -> subprocess.Popen[str]:
        """Start ``python ...`` so that it finds madbench in this checkout only."""
        work = self.folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(self.folder / "checkout"), "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen([sys.executable, *words], cwd=work, env=environment, text=True, **pipes)

    def output(self, *words: str) -> str:
        process = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out: str
        out, errors = process.communicate()
        if process.returncode:
            sys.exit(f"{self.name}: python {' '.join(words)} failed:\n{errors[-2000:]}")
        return out


def git(*words: str, **environment: str) -> bytes:
    command = ["git", *words]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: {ended.stderr.decode().strip()}")
    return ended.stdout


def make_side(commit: str | None, folder: Path) -> Side:
    """Unpack a commit, or the working tree if ``commit`` is None, unless ``folder`` has it from an earlier call."""
    if commit:
        tree = git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
        side = Side(commit, folder / tree[:12])
    else:
        tree = tree_of_the_working_folder()
        side = Side("working tree", folder / f"tree-{tree[:12]}")
    checkout = side.folder / "checkout"
    if not checkout.exists():
        incomplete = side.folder / "checkout.incomplete"
        with tarfile.open(fileobj=io.BytesIO(git("archive", tree))) as files:
            files.extractall(incomplete, filter="data")
        incomplete.rename(checkout)
    imported = Path(side.output("-c", "import madbench; print(madbench.__file__)").strip())
    if not imported.is_relative_to(checkout):
        sys.exit(f"{side.name}: Python imports {imported} and not the package in {checkout}")
    return side


def tree_of_the_working_folder() -> str:
    """The tree of all files that git does not ignore, new ones included; the index of the repository stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        git("add", "--all", **index)
        return git("write-tree", **index).decode().strip()


def parts_of(labels: Iterable[str], with_all_suites: bool, only: str) -> list[Part]:
    """The parts with the jobs whose PART/TASK/LABEL matches the pattern ``only``."""
    labels = tuple(labels)
    parts = [
        Part("quick", "quick", MAD_TASKS, labels),
        Part("evening", "evening", MAD_TASKS, labels),
        Part("tiny", "tiny", ("language_model",), labels, keeps_weights=True),
    ]
    if with_all_suites:  # with labels that see all positions, as these tasks need
        parts.append(Part("signals", "quick", ("digits", "forecasting"), ("S-p", "G-cg-q-12o", "D-p", "ha:3", "hfa:2")))
        parts.append(Part("interactions", "quick", WORLDS, ("S-p", "hfa:C1", "ha:C3"), keeps_weights=True))
    chosen = []
    for part in parts:
        tasks_by_label = {
            label: tuple(task for task in part.tasks if fnmatchcase(f"{part.name}/{task}/{label}", only))
            for label in part.labels
        }
        for tasks in dict.fromkeys(tasks_by_label.values()):
            if tasks:
                alike = tuple(label for label in part.labels if tasks_by_label[label] == tasks)
                chosen.append(dataclasses.replace(part, tasks=tasks, labels=alike))
    return chosen


def run_command(part: Part, store: Path) -> list[str]:
    command = ["-m", "madbench", "run", *part.labels, "--profile", part.profile, "--tasks", ",".join(part.tasks)]
    command += [*OPTIONS.split(), "--results", str(store)]
    return command if part.keeps_weights else [*command, "--keep-weights"]


def plan(side: Side, part: Part) -> dict[tuple[str, str], int]:
    """The number of jobs of each canonical label and task."""
    (options,) = (side.folder / "checkout/madbench/cli").rglob("print_options.py")  # its folder depends on the commit
    # earlier commits have an option of its own
    as_json = ["--json"] if '"--json"' in options.read_text(encoding="utf-8") else ["-f", "json"]
    cells = json.loads(side.output(*run_command(part, side.store(part)), "--dry-run", *as_json))["cells"]
    return {(cell["label"], cell["task"]): cell["jobs"] for cell in cells}


def train(side: Side, part: Part, slots: int) -> None:
    """Train the jobs that the store does not have yet. Failed jobs are printed, and are absent from the comparison."""
    words = [*run_command(part, side.store(part)), "--slots", str(slots)]
    lines = []
    with side.start(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout or ():
            lines.append(line)
            if line.startswith("["):  # such as [3/48] S-p memorization seed 0: accuracy 1.000 in 2 s
                print(f"{side.name}, {part.name}: {line}", end="", flush=True)
    if process.returncode:
        print(f"{side.name}, {part.name}: the command failed:\n{''.join(lines[-20:])}", flush=True)


def folders_by_key(store: Path) -> dict[Key, Path]:
    """The folder of each stored run."""
    folders: dict[Key, Path] = {}
    for path in sorted(store.glob("runs/*/job.json")):
        job = json.loads(path.read_text(encoding="utf-8"))
        setting = json.dumps(job["setting"], sort_keys=True)
        key = (job["suite"], job["task"], job["label"], str(job["seed"]), setting)
        if key in folders:
            sys.exit(f"{folders[key]} and {path.parent}: two runs of one job; delete the older folder")
        folders[key] = path.parent
    return folders


def read_numbers(folder: Path) -> dict[str, Any]:
    """The compared values of a run by name: numbers as text, and the dtype, shape and bytes of each tensor."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"), parse_float=str, parse_int=str)
    numbers = {"status": record["status"]}
    numbers |= {f"metric {name}": value for name, value in record["metrics"].items() if name not in NOT_COMPARED}
    with open(folder / "curve.csv", encoding="utf-8", newline="") as file:
        for count, row in enumerate(csv.DictReader(file), start=1):
            cells = {name: cell for name, cell in row.items() if cell and name not in NOT_COMPARED}
            numbers |= {f"curve row {count} {name}": cell for name, cell in cells.items()}
    if (folder / "weights.safetensors").exists():
        numbers |= read_tensors((folder / "weights.safetensors").read_bytes())
    return numbers


def read_tensors(content: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The tensors of a safetensors file: 8 bytes with the length of a JSON header, the header, and the data."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        tensors[f"weights {name}"] = (tensor["dtype"], tuple(tensor["shape"]), content[start + first : start + last])
    return tensors


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, float]:
    """The size of each difference by name; infinite if one side lacks the number or the sizes cannot be compared."""
    sizes = {}
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        if one is None or other is None:
            sizes[name] = math.inf
        elif one != other:
            sizes[name] = distance(one, other)
    return sizes


def distance(one: Any, other: Any) -> float:
    """The largest absolute difference of two numbers or tensors that are not equal."""
    if isinstance(one, tuple):
        (dtype, shape, data), (other_dtype, other_shape, other_data) = one, other
        if (dtype, shape) != (other_dtype, other_shape) or dtype not in ARRAY_TYPES:
            return math.inf
        pairs = zip(array.array(ARRAY_TYPES[dtype], data), array.array(ARRAY_TYPES[dtype], other_data), strict=True)
        sizes = [abs(a - b) for a, b in pairs]
    else:
        try:
            sizes = [abs(float(one) - float(other))]
        except ValueError:  # the status
            return math.inf
    return math.inf if any(math.isnan(size) for size in sizes) else max(sizes)


@dataclass
class Row:
    """The comparison of one label: jobs, compared numbers (a tensor counts as one), and the largest difference."""

    jobs: int = 0
    equal: int = 0
    differing: int = 0
    absent: int = 0
    numbers: int = 0
    largest: float = 0.0


def compare(reference: Path, other: Path, planned: Mapping[tuple[str, str], int]) -> tuple[dict[str, Row], list[str]]:
    """Compare two stores: one row per label, and one line per job that differs or is absent.

    ``planned`` is the number of jobs of each label and task. Stored runs of other labels and tasks are left out.
    """
    sides = [folders_by_key(reference), folders_by_key(other)]
    rows = {label: Row() for label, _ in planned}
    lines = []
    for (label, task), jobs in planned.items():
        row = rows[label]
        row.jobs += jobs
        keys = [key for key in dict.fromkeys([*sides[0], *sides[1]]) if key[1:3] == (task, label)]
        if len(keys) < jobs:
            row.absent += jobs - len(keys)
            lines.append(f"{label} {task}: {jobs - len(keys)} of {jobs} jobs absent from both")
        for key in keys:
            folders = [side[key] for side in sides if key in side]
            if len(folders) < len(sides):
                row.absent += 1
                lines.append(f"{label} {task} seed {key[3]}: absent from {other if key in sides[0] else reference}")
                continue
            numbers = [read_numbers(folder) for folder in folders]
            row.numbers += len(numbers[0] | numbers[1])
            sizes = differences(*numbers)
            if not sizes:
                row.equal += 1
                continue
            row.differing += 1
            row.largest = max(row.largest, *sizes.values())
            shown = ", ".join(f"{name} by {size:.3g}" for name, size in list(sizes.items())[:3])
            more = f" and {len(sizes) - 3} more" if len(sizes) > 3 else ""
            lines.append(f"{label} {task} seed {key[3]}: {shown}{more} ({folders[0]}, {folders[1]})")
    return rows, lines


def machines(store: Path) -> set[str]:
    """The processor and the versions of Python, torch and NumPy that the runs of a store had."""
    found = set()
    for path in store.glob("runs/*/record.json"):
        details = json.loads(path.read_text(encoding="utf-8"))["details"]
        versions = {name: version for name, version in details["versions"].items() if name != "madbench"}
        found.add(f"{details['device']} {versions}")
    return found


def print_table(rows: Mapping[tuple[str, str], Row]) -> None:
    form = "{:<13}{:<40}" + "{:>10}" * 5 + "{:>20}"
    print(form.format("part", "label", "jobs", "equal", "differing", "absent", "numbers", "largest difference"))
    for (part, label), row in rows.items():
        counts = (row.jobs, row.equal, row.differing, row.absent, row.numbers)
        print(form.format(part, label, *counts, f"{row.largest:.3g}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", help="a commit")
    parser.add_argument("commit", nargs="?", help="another commit (default: the working tree)")
    parser.add_argument("--labels", default=LABELS, help=f"labels, comma-separated (default: {LABELS})")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="jobs whose PART/TASK/LABEL matches, with * and ?"
    )
    parser.add_argument("--all-suites", action="store_true", help="also the suites signals and interactions")
    parser.add_argument("--slots", type=int, default=1, help="jobs at a time (default: 1)")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep checkouts and runs here; continues what it has"
    )
    asked = parser.parse_args()
    labels = asked.labels.split(",")
    parts = parts_of(labels, asked.all_suites, asked.only)
    if not parts:
        parser.error(f"--only {asked.only}: no job matches; patterns are of PART/TASK/LABEL, such as 'quick/*/S-p'")
    with tempfile.TemporaryDirectory(prefix="madbench-golden-") as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        sides = [make_side(commit, folder) for commit in (asked.reference, asked.commit)]
        if sides[0].folder == sides[1].folder:
            parser.error(f"{asked.reference} and {asked.commit} are the same commit")
        rows: dict[tuple[str, str], Row] = {}
        lines, notes = [], []
        for part in parts:
            planned = plan(sides[0], part)
            for side in sides:
                train(side, part, asked.slots)
            first, second = (side.store(part) for side in sides)
            compared, found = compare(first, second, planned)
            rows |= {(part.name, label): row for label, row in compared.items()}
            lines += [f"{part.name}: {line}" for line in found]
            if len(found_machines := machines(first) | machines(second)) > 1:
                notes.append(f"{part.name}: runs of different machines or versions: {sorted(found_machines)}")
        print_table(rows)
        for line in [*lines, *notes]:
            print(line)
    return 1 if lines or notes else 0


if __name__ == "__main__":
    sys.exit(main())
