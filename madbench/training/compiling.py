"""Whether a model goes through torch.compile: always, never, or where the steps that are left repay it.

The compiler keeps its graphs on disk (``TORCHINDUCTOR_CACHE_DIR``, a folder of the user's in the temporary one), so
that jobs of equal shapes, in other processes too, compile once.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from madbench.training import distributed as world
from madbench.training.measured import FASTER, remembered, seconds_of
from madbench.training.member import Member
from madbench.training.step import Step

Compile = Literal["never", "auto", "always"]
WORTHWHILE_SECONDS = 300.0  # of training that is left, below which nothing is compiled to see whether it pays


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which torch.compile needs on any device."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "c++", "clang++")))


def is_compiled(how: Compile, member: Member, make_step: Callable[..., Step], folder: Path | None) -> bool:
    """Whether the member's model is compiled. ``make_step(members, compile=...)`` makes their step.

    ``auto`` does where at least five minutes of training are left and compiled steps, of which a few are measured, are
    faster; ``folder`` remembers that. It does not without a compiler, and where several processes train together.
    """
    if how != "auto":
        return how == "always"
    if world.size() > 1 or not has_compiler():
        return False
    alone = seconds_of([member], make_step)
    if alone * (member.trial.steps - member.state.step) < WORTHWHILE_SECONDS:
        return False

    def measure() -> dict[str, float | bool]:
        compiled = seconds_of([member], functools.partial(make_step, compile=True))
        return {"seconds_alone": alone, "seconds_compiled": compiled, "is_faster": compiled < FASTER * alone}

    return remembered([member], "compiled", measure, folder)
