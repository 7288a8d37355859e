"""Measurements that decide whether jobs train faster in a common step, and whether they train faster compiled.

A few steps are timed. Each measurement is stored in a file of its own, with a checksum. A damaged or missing
measurement is repeated. The compiler keeps its graphs on disk (``TORCHINDUCTOR_CACHE_DIR``, by default in the temporary
folder), so jobs of equal shapes compile once, also across processes.
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

STEPS = 3  # timed steps of a measurement, after warm-up
WORTHWHILE_SECONDS = 10.0  # training time of all members below which nothing is measured
OVERHEAD_SECONDS = 0.05  # step time of one job on the CPU above which launch overhead is negligible
FASTER = 0.95  # a common step must take less than this share of the time
LONGEST_REASON = 150  # most characters of the reason for no common step
COMPILED_SECONDS = 300.0  # remaining training time below which compilation is not tried
Compile = Literal["never", "auto", "always"]
MakeStep = Callable[..., Step]  # ``make_step(members, compile=...)``; ``compile`` is False by default


def is_faster(members: Sequence[GroupMember], make_step: MakeStep, folder: Path | None = None) -> bool:
    """True if a common step of all members takes less time than separate steps of all members.

    False if all members together train for less than ten seconds, or if their steps on the CPU are long, where a common
    step is never faster. ``folder`` has earlier measurements, by device, versions, shapes and number of members.
    """

    def measure() -> dict[str, Any] | None:
        alone = len(members) * (step := seconds_of(members[:1], make_step))
        if alone * (members[0].trial.steps - members[0].state.step) < WORTHWHILE_SECONDS:
            return None
        together = math.inf
        if step < OVERHEAD_SECONDS or _is_gpu(members[0]):
            with suppress(Exception):  # many kinds of errors: an operation without a leading axis, or too little memory
                together = seconds_of(members, make_step)
        measured = {"seconds_alone": alone, "seconds_together": together if together < math.inf else None}
        return measured | {"is_faster": together < FASTER * alone}

    return is_measured_faster(members, "together", measure, folder)


def has_compiler() -> bool:
    """True if there is a C++ compiler, which torch.compile needs on any device."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "c++", "clang++")))


def is_compiled(when: Compile, member: GroupMember, make_step: MakeStep, folder: Path | None) -> bool:
    """True if the member's model is compiled.

    With ``auto``, the model is compiled if at least five minutes of training are left and a few measured steps are
    faster compiled. ``folder`` stores that measurement. It is not compiled without a compiler, or if several processes
    train together.
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

    return is_measured_faster([member], "compiled", measure, folder)


def is_measured_faster(
    members: Sequence[GroupMember], what: str, measure: Callable[[], dict[str, Any] | None], folder: Path | None
) -> bool:
    """``is_faster`` of the result of ``measure``, or of an earlier result in ``folder``. False without a result."""
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
    """The reason why members cannot take a step of ``make_step``, found by a step of copies. Empty if they can."""
    try:
        make_step([member.copy() for member in members])([member.rate for member in members])
    except Exception as error:  # many kinds of errors
        return textwrap.shorten(f"{type(error).__name__}: {error}", LONGEST_REASON, placeholder=" ...")
    return ""


def seconds_of(members: Sequence[GroupMember], make_step: MakeStep) -> float:
    """The shortest time of a step of all members, measured on copies."""
    copies, best = [member.copy() for member in members], math.inf
    step, is_gpu = make_step(copies), _is_gpu(copies[0])
    # with one thread, CPU time leaves out other processes
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
