"""Items of papers that shipped runs decide, for ``madbench paper`` if the item's own runs are not stored."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import PLAIN, print_json
from madbench.errors import StoreError
from madbench.papers import Item
from madbench.papers.making import Measure, Request
from madbench.papers.shipped import (
    archive_names,
    has_archives,
    results_in,
    shipped_jobs,
    shipped_results,
    shipped_state,
    shipped_store,
)
from madbench.store.reading import StoredRuns
from madbench.store.results_folder import RESULTS
from madbench.suites.planning import run_key

if TYPE_CHECKING:
    from madbench.analysis.scores import Results


def show_shipped(
    request: Request,
    measure: Measure,
    verify: Callable[[], None],
    finish: Callable[[Request, Results], None],
    print_options: PrintOptions,
) -> bool:
    """Decide an item by the shipped runs, unless all of its own runs are stored. Return True if it was decided.

    If the archives of the shipped runs are missing, or do not have the weights that the item measures, the shipped
    verdict is printed instead, which also counts as decided. ``verify`` ends the program if an operator of the item is
    broken. ``finish`` decides and prints the item.
    """
    if (request.results / "runs").is_dir() and results_in(request, measure) is not None:
        return False
    console, item = Console(stderr=True), request.item
    if not has_archives(item):
        return _print_recorded(request, verify, print_options, "which the repository has")
    with contextlib.ExitStack() as stack:
        with console.status(f"reading {', '.join(archive_names(item))}"):
            request_and_results = stack.enter_context(shipped_results(request, measure))
        if request_and_results is None:
            return False
        shipped_request, results = request_and_results
        verify()
        try:
            finish(shipped_request, results)
        except StoreError as error:
            reason = "without the weights that the item measures" if measure.keeps_weights(request) else str(error)
            return _print_recorded(request, None, print_options, reason)
    runs, seeds = ", ".join(archive_names(item)), shipped_request.seeds
    console.print(f"By the runs of {runs}, seeds {seeds}. Nothing was trained; --yes trains the item.", **PLAIN)
    return True


def _print_recorded(
    request: Request, verify: Callable[[], None] | None, print_options: PrintOptions, reason: str
) -> bool:
    """Print the shipped verdict on an item, and say by ``reason`` why it is not decided anew. Return True.

    False, and nothing is printed, if there is no shipped verdict, or if the user gave options other than the device and
    the results folder. ``verify``, if it is not None, is called before printing.
    """
    item, state = request.item, shipped_state(request.paper, request.item)
    if not state or request != Request(request.paper, item, device=request.device, results=request.results):
        return False
    if verify is not None:
        verify()
    if print_options.format == "json":
        print_json({"state": state, "runs": archive_names(item), "verdicts": {}, "figures": []})
        return True
    print(f"{state}: the shipped verdict")
    runs = ", ".join(archive_names(item))
    Console(stderr=True).print(f"By runs of {runs} ({reason}). Nothing was trained; --yes trains the item.", **PLAIN)
    return True


@dataclass(frozen=True)
class ItemRuns:
    """The runs that the command of an item reads."""

    folder: Path
    """The results folder to read, which may be temporary."""
    shown_folder: Path
    """The results folder in the printed command."""
    archives: Sequence[str] = ()
    """The names of the shipped archives whose runs ``folder`` has. Empty if it has the user's runs."""


@contextlib.contextmanager
def results_or_shipped(item: Item, results: Path) -> Iterator[ItemRuns]:
    """A context with the runs for the command of an item: those in ``results``, or the shipped runs.

    The shipped runs are used if the item has any and ``results`` lacks some of them: a shipped label, task and setting
    without a run of any seed that has a result. They are then in a temporary folder. The commands that add them to a
    folder of the user are printed.
    """
    if not has_archives(item) or _has_runs(results, item):
        yield ItemRuns(results, results)
        return
    console, archives, shown_folder = Console(stderr=True), archive_names(item), RESULTS / item.id
    console.print(
        f"Not all runs of {item.id} are in {results}. The shipped runs decide, as after these commands in a clone of "
        "the repository:",
        **PLAIN,
    )
    for name in archives:
        console.print(shlex.join(["madbench", "import", name, "--results", str(shown_folder)]), **PLAIN)
    with contextlib.ExitStack() as stack:
        with console.status(f"reading {', '.join(archives)}"):
            folder = stack.enter_context(shipped_store([item]))
        yield ItemRuns(folder, shown_folder, archives)


def _has_runs(results: Path, item: Item) -> bool:
    """True if ``results`` has a run with a result like each shipped run of the item.

    Both have the same label, task and setting. Their seeds may differ.
    """
    if not (results / "runs").is_dir():
        return False
    own_runs = (run for run in StoredRuns(results).runs(with_curves=False) if run.record.status != "failed")
    own_keys = {(run.job.label, run_key(run.job)) for run in own_runs}
    return all((job.label, run_key(job)) in own_keys for job in shipped_jobs(item))
