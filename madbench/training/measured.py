"""Measurements that decide whether jobs train faster in common steps, and whether they train faster compiled.

A few steps are timed. Each result is stored in a file of its own, with a checksum. If the file is damaged or missing,
steps are timed again. The compiler stores its code on disk (``TORCHINDUCTOR_CACHE_DIR``, by default in the temporary
folder), so jobs of equal shapes are compiled once, also by different processes.
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
from madbench.training.groups import shape_of
from madbench.training.member import GroupMember
from madbench.training.step import Step

STEPS = 3  # timed steps of a measurement, after warm-up
WORTHWHILE_SECONDS = 10.0  # training time of all members below which nothing is measured
OVERHEAD_SECONDS = 0.05  # step time of one job on the CPU above which launch overhead is negligible
FASTER = 0.95  # a common step must take less than this share of the time
LONGEST_REASON = 150  # most characters of a reason that :func:`why_not` returns
COMPILED_SECONDS = 300.0  # remaining training time below which compilation is not tried
Compile = Literal["never", "auto", "always"]
MakeStep = Callable[..., Step]  # ``make_step(members, compile=...)``; ``compile`` is False by default


def is_faster(members: Sequence[GroupMember], make_step: MakeStep, folder: Path | None = None) -> bool:
    """True if a common step of all members takes less than 95% of the time of separate steps of all members.

    ``make_step`` makes the step of given members. The common step is not measured, and the result is False, in two
    cases: separate training of all members takes less than ``WORTHWHILE_SECONDS``, or a step of one member on a CPU
    takes more than ``OVERHEAD_SECONDS``. ``folder`` stores results of measurements for later calls with the same
    device, versions, shapes and number of members.
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
    """True if this machine has a C++ compiler, which ``torch.compile`` needs on any device."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "c++", "clang++")))


def is_compiled(when: Compile, member: GroupMember, make_step: MakeStep, folder: Path | None) -> bool:
    """True if the member's model is to be trained through ``torch.compile``.

    True if ``when`` is ``always``, and False if it is ``never``. For ``auto``, True if at least five minutes of
    training are left and measured steps are faster compiled; ``folder`` stores this measurement. For ``auto`` it is
    False without a C++ compiler, and if several processes train together.
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
    """True if a measurement shows that members train faster in the way ``what``: ``together`` or ``compiled``.

    An earlier measurement is looked up in ``folder``. If there is none, ``measure()`` is called. It returns a mapping,
    which is stored in ``folder`` and whose entry ``is_faster`` is the answer. If it returns None, the answer is False
    and nothing is stored. If ``folder`` is None, nothing is looked up or stored.
    """
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
    return bool(answer["is_faster"])


def why_not(members: Sequence[GroupMember], make_step: MakeStep) -> str:
    """The error that the first step of ``make_step(members)`` raises, as text. Empty if the step succeeds.

    The step is tried on copies of the members.
    """
    try:
        make_step([member.copy() for member in members])([member.rate for member in members])
    except Exception as error:  # many kinds of errors
        return textwrap.shorten(f"{type(error).__name__}: {error}", LONGEST_REASON, placeholder=" ...")
    return ""


def seconds_of(members: Sequence[GroupMember], make_step: MakeStep) -> float:
    """Seconds of one common step of all members, which ``make_step`` makes.

    The result is the shortest of ``STEPS`` measured steps on copies of the members.
    """
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
