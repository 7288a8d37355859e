"""The check of this machine for ``madbench validate --machine``."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.text import Text

import madbench
from madbench.cli.shared.packages import KINDS
from madbench.cli.shared.printing import print_json
from madbench.errors import MadbenchError, TrainingError
from madbench.extras import install_command
from madbench.extras import project as _project
from madbench.training.devices import available_cores, cpu_has_bfloat16_units, cpu_name, memory_bytes

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from madbench.mixers.srg.allocation import SrgAllocation

TOLERANCE = 1e-4  # largest error of a float32 path, relative to the largest output of the reference
LEAST_FREE_BYTES = 100 * 2**20
LABELS_OF_CHECK = ("S-pc", "R-cg-q-12", "G-pcg-q-12o")  # together every letter of the grammar except v and !


class MachineError(MadbenchError):
    """This machine lacks something that training needs."""


def check_machine(results: Path, as_json: bool) -> None:
    """Print the properties of this machine, run every computation path once, and print what is missing.

    Raises ``MachineError`` if something is missing that training needs.
    """
    packages, extras = requirements()
    content: dict[str, Any] = {"machine": _machine(), "packages": packages, "extras": extras}
    content |= {"plugins": _plugins(), "gpus": [], "paths": [], "results": _results(results), "problems": []}
    try:
        from madbench.mixers.srg.path_choice import PATHS

        content["gpus"] = _gpus()
        devices = ("cpu", "cuda") if content["gpus"] else ("cpu",)
        paths = [path for path in PATHS if path not in ("auto", "reference")]
        content["paths"] = [
            compare_path(path, device) for device in devices for path in paths if (path, device) != ("fused", "cpu")
        ]
    except (ImportError, OSError) as error:
        content["problems"] = [f"torch cannot be imported: {error}"]
    content["problems"] += _problems(content)
    if as_json:
        print_json(content)
    else:
        _print(content)
    if content["problems"]:
        raise MachineError("\n".join(content["problems"]))


def requirements() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The packages that madbench always needs, and the extras, each with its packages.

    A package has the installed version, None if it is not installed, and ``fits``, which is True if it meets the
    requirement. An extra has its name, its packages, the command that installs it, and ``installed``, which is True if
    all of its packages fit. Packages for other machines are left out.
    """
    from packaging.requirements import Requirement

    if (project := _project()) is None:
        lines = metadata.requires("madbench") or []
        matches = [re.search(r"extra\s*==\s*['\"]([^'\"]+)", line) for line in lines]
        extra_and_line = [(extra[1] if extra else "", line) for extra, line in zip(matches, lines)]
    else:
        extras = project.get("optional-dependencies", {})
        extra_and_line = [
            (extra, line) for extra, lines in {"": project["dependencies"], **extras}.items() for line in lines
        ]
    by_extra: dict[str, list[dict[str, Any]]] = {"": []}
    for extra, line in extra_and_line:
        requirement = Requirement(line)
        is_for_here = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if requirement.name != "madbench" and is_for_here:  # madbench: an extra that includes another
            by_extra.setdefault(extra, []).append(_installed_version(requirement))
    return by_extra.pop(""), [
        {"extra": extra, "packages": packages, "installed": all(package["fits"] for package in packages)}
        | {"install_with": install_command(extra, is_checkout=project is not None)}
        for extra, packages in by_extra.items()
    ]


def _installed_version(requirement: Requirement) -> dict[str, Any]:
    version = None
    with suppress(metadata.PackageNotFoundError):
        version = metadata.version(requirement.name)
    fits = version is not None and requirement.specifier.contains(version, prereleases=True)
    return {"name": requirement.name, "version": version, "needs": str(requirement.specifier), "fits": fits}


def _plugins() -> list[dict[str, Any]]:
    """One row per extension of an installed package: kind, name, package, and the reason if it does not work."""
    rows = []
    for noun, kind in KINDS.items():
        points, broken = kind.registry.points, kind.broken()
        for name in sorted({*points, *broken}):
            package = getattr(points.get(name), "dist", None)
            row = {"kind": noun, "name": name, "package": package and f"{package.name} {package.version}"}
            rows.append(row | {"works": name not in broken, "reason": broken.get(name, "")})
    return rows


def _machine() -> dict[str, Any]:
    """The properties of this machine. A property that is not known is None.

    The memory is that of the container if it has a limit.
    """
    memory = memory_bytes()
    return {
        "madbench": madbench.__version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": cpu_name(),
        "cores_usable": available_cores(),
        "cores": os.cpu_count(),
        "bfloat16_units": cpu_has_bfloat16_units(),
        "memory_bytes": int(memory) if memory < math.inf else None,
    }


def _gpus() -> list[dict[str, Any]]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = map(torch.cuda.get_device_properties, range(count))
    return [
        {"device": f"cuda:{index}", "name": gpu.name, "memory_bytes": gpu.total_memory}
        | {"compute_capability": f"{gpu.major}.{gpu.minor}"}
        for index, gpu in enumerate(gpus)
    ]


def compare_path(path: str, device: str) -> dict[str, Any]:
    """Compare a computation path on ``device`` with the path ``reference``, for the labels that the path supports.

    Return a row of the table of paths:

    - ``path`` and ``device``, as given.
    - ``works``: True if ``reason`` is empty.
    - ``max_relative_error``: the largest error of an output, relative to the largest output of its label. None if it is
      unknown or not finite.
    - ``labels``: the labels that were tried and that the path supports.
    - ``reason``: why the path does not work: an error, a difference from the reference, wrong kernels, or no label that
      the path supports.
    """
    import torch

    errors: dict[str, float] = {}
    refusal = ""
    row: dict[str, Any] = {"path": path, "device": device}
    for label in LABELS_OF_CHECK:
        torch.manual_seed(0)
        reference, x = madbench.build(label, 32, 16, path="reference"), torch.randn(2, 13, 32)
        try:
            mixer = madbench.build(label, 32, 16, path=path)
        except TrainingError as error:  # the path does not support this label
            refusal = str(error)
            continue
        mixer.load_state_dict(reference.state_dict())
        mixer.chunk = 5  # three chunks, for a path that works in chunks
        try:
            with torch.no_grad():
                expected, output = reference(x), mixer.to(device)(x.to(device)).cpu()
        except (RuntimeError, ImportError) as error:
            failed = {"works": False, "max_relative_error": None, "labels": [*errors, label]}
            return row | failed | {"reason": f"{label}: {error}"}
        errors[label] = float((output - expected).abs().max() / expected.abs().max())
    worst = float(torch.tensor([*errors.values(), -math.inf]).max())  # NaN if one error is NaN
    works = 0 <= worst <= TOLERANCE
    if works:
        reason = _problem_of_kernels(errors, device) if path == "fused" else ""
    else:
        reason = f"differs from the reference by {worst:.1e}" if errors else f"refuses every label tried: {refusal}"
    largest = worst if math.isfinite(worst) else None
    return row | {"works": not reason, "max_relative_error": largest, "labels": [*errors], "reason": reason}


def _problem_of_kernels(labels: Iterable[str], device: str) -> str:
    """The first of ``labels`` whose kernels give wrong outputs or gradients in bfloat16, with the error, as text.

    Empty if all kernels are right.
    """
    import torch

    from madbench.mixers.srg.kernels import proof

    for label in labels:
        allocation = cast("SrgAllocation", madbench.build(label, 64, 131).allocation)
        program = proof.Program.from_allocation(allocation, torch.bfloat16, 131)
        if problem := proof.problem(program, torch.device(device)):
            return f"{label}: {problem}"
    return ""


def _results(folder: Path) -> dict[str, Any]:
    """The state of a results folder: if it exists, if it can be written, the reason if not, and the free bytes.

    The folder is not created.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    content = {"folder": str(folder), "exists": folder.exists(), "writable": False, "free_bytes": None, "reason": ""}
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(bytes(4096))
            probe.flush()
        content |= {"writable": True, "free_bytes": shutil.disk_usage(existing).free}
    except OSError as error:
        content["reason"] = error.strerror or str(error)
    return content


def _problems(content: dict[str, Any]) -> Iterator[str]:
    """Yield the problems that prevent training. ``content`` has the facts that :func:`check_machine` collects."""
    for package in content["packages"]:
        if not package["fits"]:
            present = f"version {package['version']} is here" if package["version"] else "not installed"
            name = f"{package['name']}{package['needs']}"
            yield f"package {name}: {present}; install it with: pip install '{name}'"
    for path in content["paths"]:
        if not path["works"]:
            yield f"path {path['path']} on {path['device']}: {path['reason']}"
    results = content["results"]
    if not results["writable"]:
        yield f"results folder {results['folder']}: cannot be written: {results['reason']}"
    elif results["free_bytes"] < LEAST_FREE_BYTES:
        yield f"results folder {results['folder']}: only {results['free_bytes'] / 2**20:.0f} MiB free"


def _print(content: dict[str, Any]) -> None:
    """Print the facts that :func:`check_machine` collects in sections: machine, packages, operator, optional, ...

    A line about something that can be wrong begins with ``ok`` or ``wrong``.
    """
    console = Console(highlight=False)

    def show(name: str, value: str, fits: bool | None = None) -> None:
        mark = {True: ("ok   ", "green"), False: ("wrong", "bold red"), None: ("     ", "")}[fits]
        console.print(Text.assemble("  ", mark, f"  {name:<14} {value}"), soft_wrap=True)

    console.print("[bold]machine[/bold]")
    for name, value in content["machine"].items():
        text = _gib(value) if name == "memory_bytes" else str(value)
        show(name.removesuffix("_bytes").replace("_", " "), {"True": "yes", "False": "no"}.get(text, text))
    for gpu in content["gpus"]:
        properties = f"{_gib(gpu['memory_bytes'])}, compute capability {gpu['compute_capability']}"
        show(gpu["device"], f"{gpu['name']}, {properties}")
    if not content["gpus"]:
        show("gpu", "none that torch can use")
    console.print("[bold]packages[/bold]")
    for package in content["packages"]:
        show(package["name"], f"{package['version'] or 'not installed'} (needs {package['needs']})", package["fits"])
    console.print("[bold]operator, against the float64 reference[/bold]")
    for path in content["paths"]:
        error = path["reason"] or f"largest relative error {path['max_relative_error']:.1e}"
        show(f"{path['path']} {path['device']}", error, path["works"])
    console.print("[bold]optional[/bold]")
    for extra in content["extras"]:
        command = "" if extra["installed"] else f"; install with: {extra['install_with']}"
        is_unfit = any(package["version"] and not package["fits"] for package in extra["packages"])
        names = ", ".join(map(_with_unfit_version, extra["packages"]))
        show(extra["extra"], names + command, extra["installed"] or (False if is_unfit else None))
    if content["plugins"]:
        console.print("[bold]extensions of other packages[/bold]")
    for plugin in content["plugins"]:
        where = plugin["reason"] or (f"of {plugin['package']}" if plugin["package"] else "")
        show(f"{plugin['kind']} {plugin['name']}", where, plugin["works"])
    console.print("[bold]results[/bold]")
    results = content["results"]
    state = "writable" if results["exists"] else "can be created"
    free = f"{state}, {_gib(results['free_bytes'])} free"
    show(results["folder"], free if results["writable"] else results["reason"], results["writable"])


def _with_unfit_version(package: dict[str, Any]) -> str:
    """The name of a package. If its installed version does not fit, also this version and the required one."""
    if package["version"] and not package["fits"]:
        return f"{package['name']} {package['version']} (needs {package['needs']})"
    return str(package["name"])


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"
