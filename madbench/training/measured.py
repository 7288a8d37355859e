"""Whether jobs train faster as one step than one after another, and compiled: measured on a few steps, and remembered.

A measurement is a sealed file of its own; one that is damaged or cannot be written is made again. The compiler keeps
its graphs on disk (``TORCHINDUCTOR_CACHE_DIR``, a folder of the user's in the temporary one), so that jobs of equal
shapes, in other processes too, compile once.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import textwrap
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch

from madbench.errors import MadbenchError
from madbench.files import read_file, seal, unseal, write_atomically
from madbench.jobs import content_id
from madbench.training import distributed as world
from madbench.training.devices import device_name
from madbench.training.member import GroupMember
from madbench.training.stack import shape_of
from madbench.training.step import Step

STEPS = 3  # of a measurement, after those that warm up
WORTHWHILE_SECONDS = 10.0  # of training all members, below which nothing is measured
OVERHEAD_SECONDS = 0.05  # of a step of one job on the CPU, above which launching operations is too small a part of it
FASTER = 0.95  # share of the time that a common step may take
LONGEST_REASON = 150  # characters of why there is no common step
COMPILED_SECONDS = 300.0  # of training that is left, below which nothing is compiled to see whether it pays
Compile = Literal["never", "auto", "always"]
MakeStep = Callable[..., Step]  # ``make_step(members, compile=...)``; ``compile`` is False by default


def is_faster(members: Sequence[GroupMember], make_step: MakeStep, folder: Path | None = None) -> bool:
    """Whether one step of all members takes less time than a step of each.

    Where all of them train for less than ten seconds it does not matter and is not measured; nor are long steps on the
    CPU, which are never faster. ``folder`` has earlier measurements, by device, versions, shapes and the number of
    members.
    """

    def measure() -> dict[str, Any] | None:
        alone = len(members) * (step := seconds_of(members[:1], make_step))
        if alone * (members[0].trial.steps - members[0].state.step) < WORTHWHILE_SECONDS:
            return None
        together = math.inf
        if step < OVERHEAD_SECONDS or _is_gpu(members[0]):
            with suppress(Exception):  # of many kinds, where an operation has no leading axis or memory is short
                together = seconds_of(members, make_step)
        measured = {"seconds_alone": alone, "seconds_together": together if together < math.inf else None}
        return measured | {"is_faster": together < FASTER * alone}

    return remembered(members, "together", measure, folder)


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which torch.compile needs on any device."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "c++", "clang++")))


def is_compiled(when: Compile, member: GroupMember, make_step: MakeStep, folder: Path | None) -> bool:
    """Whether the member's model is compiled.

    ``auto`` does where at least five minutes of training are left and compiled steps, of which a few are measured, are
    faster; ``folder`` remembers that. It does not without a compiler, and where several processes train together.
    """
    if when != "auto":
        return when == "always"
    if world.size() > 1 or not has_compiler():
        return False
    alone = seconds_of([member], make_step)
    if alone * (member.trial.steps - member.state.step) < COMPILED_SECONDS:
        return False

    def measure() -> dict[str, float | bool]:
        compiled = seconds_of([member], functools.partial(make_step, compile=True))
        return {"seconds_alone": alone, "seconds_compiled": compiled, "is_faster": compiled < FASTER * alone}

    return remembered([member], "compiled", measure, folder)


def remembered(
    members: Sequence[GroupMember], what: str, measure: Callable[[], dict[str, Any] | None], folder: Path | None
) -> bool:
    """``is_faster`` of a measurement, from ``folder`` where it was made before; False where ``measure`` gives None."""
    first = members[0]
    question = {
        "device": device_name(first.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "shape": shape_of(first.job),
        "batch": list(first.trial.batch_shape),
        "group": len(members),
        "what": what,
    }
    path = folder and folder / f"{content_id(question)}.json"
    if path:
        with suppress(OSError, ValueError, KeyError):
            return bool(unseal(read_file(path))["is_faster"])
    if (answer := measure()) is None:
        return False
    if path:
        with suppress(OSError, MadbenchError):  # the next job measures again
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(seal(question | answer)).encode())
    return answer["is_faster"]


def why_not(members: Sequence[GroupMember], make_step: MakeStep) -> str:
    """Why members cannot take such a step, in a sentence; empty where they can. It is tried on copies of them."""
    try:
        make_step([member.copied() for member in members])([member.rate for member in members])
    except Exception as error:  # of half a dozen kinds
        return textwrap.shorten(f"{type(error).__name__}: {error}", LONGEST_REASON, placeholder=" ...")
    return ""


def seconds_of(members: Sequence[GroupMember], make_step: MakeStep) -> float:
    """Least time of a step of all members, on copies of them."""
    copies, best = [member.copied() for member in members], math.inf
    step, is_gpu = make_step(copies), _is_gpu(copies[0])
    # with one thread, what other processes do does not count
    clock = time.perf_counter if is_gpu or torch.get_num_threads() > 1 else time.process_time
    for i in range(step.warm_up + STEPS):
        if is_gpu:
            torch.cuda.synchronize(copies[0].device)
        began = clock()
        losses, _ = step([member.rate for member in copies])
        for member, loss in zip(copies, losses):
            member.count_step(loss)
        if is_gpu:
            torch.cuda.synchronize(copies[0].device)
        if i >= step.warm_up:
            best = min(best, clock() - began)
    return best


def _is_gpu(member: GroupMember) -> bool:
    return torch.device(member.device).type == "cuda"
