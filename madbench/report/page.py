"""The page of a store."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from madbench.report.facts import Stored
from madbench.report.of_runs import of_runs
from madbench.report.processes import in_processes
from madbench.training.devices import available_cores

if TYPE_CHECKING:
    from madbench.report.build import Page


def page_of(stored: Stored, waiting: Callable[[], AbstractContextManager] = nullcontext) -> Page:
    """The report of what is ``stored``; ``waiting`` shows that it is being made, once all processes have begun."""
    with in_processes({"runs": functools.partial(of_runs, stored)}, available_cores()) as result:
        from madbench.report.content import compose  # takes a second to import, which that process makes use of

        return compose(stored, functools.partial(result, "runs"), waiting)
