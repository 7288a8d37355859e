from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from madbench.cli.options import RESULTS, JsonOption, ResultsOption
from madbench.errors import MadbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

TOLERANCE = 1e-4  # largest error of a float32 path, relative to the largest output of the reference
LEAST_FREE_BYTES = 100 * 2**20
LABELS_OF_CHECK = ("S-pc", "R-cg-q-12", "G-pcg-q-12o")  # together every letter of the grammar but v and !


class DoctorError(MadbenchError):
    """This machine lacks something that training needs."""


def doctor(results: ResultsOption = RESULTS, as_json: JsonOption = False) -> None:
    """Say what this machine has, run every path of the operator once, and name what is missing.

    Exit code 2 when something that madbench run needs is missing.

    [bold]Examples[/bold]

      madbench doctor
      madbench doctor --results /data/runs     is that folder fit for runs?
      madbench doctor --json
    """
    import json

    from madbench.cli.requirements import requirements

    packages, extras = requirements()
    content: dict[str, Any] = {"machine": _machine(), "packages": packages, "extras": extras}
    broken = _why_torch_is_broken()
    content["gpus"] = [] if broken else _gpus()
    content["paths"] = [] if broken else list(_paths(bool(content["gpus"])))
    content["results"] = _results(results)
    content["problems"] = [broken] * bool(broken) + _problems(content)
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        _print(content)
    if content["problems"]:
        raise DoctorError("\n".join(content["problems"]))


def _machine() -> dict[str, Any]:
    import os
    import platform
    import sys

    import madbench
    from madbench.training.devices import available_cores, cpu_has_bfloat16_units, cpu_name

    return {
        "madbench": madbench.__version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": cpu_name(),
        "cores_usable": available_cores(),
        "cores": os.cpu_count(),
        "bfloat16_units": cpu_has_bfloat16_units(),
        "memory_bytes": _memory(),
    }


def _memory() -> int | None:
    """Memory this process may use: the machine's, or its container's where that is less. None where nothing tells."""
    import os

    sizes = []
    try:
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        pass
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            sizes.append(int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return min(sizes, default=None)


def _why_torch_is_broken() -> str:
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        return f"torch cannot be imported: {error}"
    return ""


def _gpus() -> list[dict[str, Any]]:
    import torch

    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(
            {
                "device": f"cuda:{index}",
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "compute_capability": f"{properties.major}.{properties.minor}",
            }
        )
    return gpus


def _paths(has_gpu: bool) -> Iterator[dict[str, Any]]:
    """Every fast path on every kind of device, against the reference in float64."""
    from madbench.mixers.srg.dynamic_mlp import PATHS

    samples = [_sample(label) for label in LABELS_OF_CHECK]
    for device in ("cpu", *(["cuda"] if has_gpu else [])):
        for path in PATHS:
            if path not in ("auto", "reference"):
                yield {"path": path, "device": device, **_compare(path, device, samples)}


def _sample(label: str) -> tuple[DynamicMLP, Tensor, Tensor]:
    """A small mixer that computes as the reference does, an input, and its output."""
    import torch

    from madbench.labels import parse
    from madbench.mixers.srg.budget import solve
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

    torch.manual_seed(0)
    mixer = DynamicMLP(solve(parse(label), d_model=32, n_head=2, max_len=16), path="reference")
    x = torch.randn(2, 13, 32)
    with torch.no_grad():
        return mixer, x, mixer(x)


def _compare(path: str, device: str, samples: list[tuple[DynamicMLP, Tensor, Tensor]]) -> dict[str, Any]:
    """The largest error of ``path`` over the labels it takes, relative to the largest output; or why it fails."""
    import torch

    from madbench.errors import TrainingError
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

    errors = {}
    for truth, x, expected in samples:
        label = str(truth.variant)
        try:
            mixer = DynamicMLP(truth.allocation, path=path, chunk=5)
        except TrainingError:  # not a path for this label
            continue
        mixer.load_state_dict(truth.state_dict())
        try:
            with torch.no_grad():
                given = mixer.to(device)(x.to(device)).cpu()
        except (RuntimeError, ImportError) as error:
            reason = f"{label}: {error}"
            return {"works": False, "max_relative_error": None, "labels": [*errors, label], "reason": reason}
        errors[label] = float((given - expected).abs().max() / expected.abs().max())
    if not errors:
        return {"works": False, "max_relative_error": None, "labels": [], "reason": "refuses every label tried"}
    worst = float(torch.tensor([*errors.values()]).max())  # NaN where one of them is
    works = worst <= TOLERANCE
    reason = "" if works else f"differs from the reference by {worst:.1e}"
    finite = worst if math.isfinite(worst) else None
    return {"works": works, "max_relative_error": finite, "labels": [*errors], "reason": reason}


def _results(folder: Path) -> dict[str, Any]:
    """Whether runs can be written to ``folder``; nothing is created."""
    import shutil
    import tempfile

    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    reason, free = "", None
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(bytes(4096))
            probe.flush()
        free = shutil.disk_usage(existing).free
    except OSError as error:
        reason = error.strerror or str(error)
    return {
        "folder": str(folder),
        "exists": folder.exists(),
        "writable": not reason,
        "free_bytes": free,
        "reason": reason,
    }


def _problems(content: dict[str, Any]) -> list[str]:
    """What stands in the way of ``madbench run``."""
    problems = []
    for package in content["packages"]:
        if not package["fits"]:
            here = f"version {package['version']} is here" if package["version"] else "not installed"
            name = f"{package['name']}{package['needs']}"
            problems.append(f"package {name}: {here}; install it with: pip install '{name}'")
    for path in content["paths"]:
        if not path["works"]:
            problems.append(f"path {path['path']} on {path['device']}: {path['reason']}")
    results = content["results"]
    if not results["writable"]:
        problems.append(f"results folder {results['folder']}: cannot be written: {results['reason']}")
    elif results["free_bytes"] < LEAST_FREE_BYTES:
        problems.append(f"results folder {results['folder']}: only {results['free_bytes'] / 2**20:.0f} MiB free")
    return problems


def _print(content: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for heading, lines in _sections(content).items():
        console.print(Text(heading, "bold"))
        for fits, name, value in lines:
            mark = {True: ("ok   ", "green"), False: ("wrong", "bold red"), None: ("     ", "")}[fits]
            console.print(Text.assemble("  ", mark, f"  {name:<14} {value}"), soft_wrap=True)


def _sections(content: dict[str, Any]) -> dict[str, list[tuple[bool | None, str, str]]]:
    """Lines by heading: whether it fits (None where that is no question), name, value."""
    machine, results = content["machine"], content["results"]
    memory = machine["memory_bytes"]
    lines: list[tuple[bool | None, str, str]] = [
        (None, "madbench", machine["madbench"]),
        (None, "python", f"{machine['python']} ({machine['python_path']})"),
        (None, "system", machine["system"]),
        (None, "processor", f"{machine['processor']}, {machine['cores_usable']} of {machine['cores']} cores usable"),
        (None, "bfloat16 units", "yes" if machine["bfloat16_units"] else "no"),
        (None, "memory", "unknown" if memory is None else f"{memory / 2**30:.1f} GiB"),
    ]
    for gpu in content["gpus"]:
        about = f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.1f} GiB, compute capability {gpu['compute_capability']}"
        lines.append((None, gpu["device"], about))
    if not content["gpus"]:
        lines.append((None, "gpu", "none that torch can use"))
    free = "" if results["free_bytes"] is None else f", {results['free_bytes'] / 2**30:.1f} GiB free"
    state = ("writable" if results["exists"] else "can be created") if results["writable"] else results["reason"]
    return {
        "machine": lines,
        "packages": [
            (package["fits"], package["name"], f"{package['version'] or 'not installed'} (needs {package['needs']})")
            for package in content["packages"]
        ],
        "operator, against the float64 reference": [
            (
                path["works"],
                f"{path['path']} {path['device']}",
                path["reason"] or f"largest relative error {path['max_relative_error']:.1e}",
            )
            for path in content["paths"]
        ],
        "optional": [
            (
                extra["installed"] or None,
                extra["extra"],
                ", ".join(package["name"] for package in extra["packages"])
                + ("" if extra["installed"] else f"; get them with: {extra['install_with']}"),
            )
            for extra in content["extras"]
        ],
        "results": [(results["writable"], results["folder"], f"{state}{free}")],
    }


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)
