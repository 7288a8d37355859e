"""Items of papers that shipped runs decide, for ``madbench paper`` if the item's own runs are not stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import PLAIN, print_json
from madbench.errors import StoreError
from madbench.papers import Item, Paper
from madbench.papers.making import Measure, Request
from madbench.papers.shipped import (
    archive_names,
    has_archives,
    results_in,
    shipped_ids,
    shipped_results,
    shipped_state,
    shipped_store,
)
from madbench.store.runs import Store
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


@contextlib.contextmanager
def results_or_shipped(paper: Paper, item: Item, results: Path) -> Iterator[Path]:
    """A context with the results folder for an item: ``results``, or a temporary folder with the shipped runs.

    The temporary folder is used if the item reads runs and ``results`` lacks some of them: a shipped label, task and
    setting without a finished run of any seed.
    """
    if not has_archives(item):
        yield results
        return
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        with console.status(f"reading {', '.join(archive_names(item))}"):
            folder = stack.enter_context(shipped_store(paper))
            lacks = not (results / "runs").is_dir() or _lacks_runs(results, item, folder)
        if lacks:
            runs = ", ".join(archive_names(item))
            console.print(f"Not all runs of {item.id} are in {results}. By the runs of {runs}:", **PLAIN)
        yield folder if lacks else results


def _lacks_runs(results: Path, item: Item, shipped: Path) -> bool:
    """True if ``results`` has no run for one of the item's runs in the folder ``shipped``, whatever its seed."""
    ids = shipped_ids(item)
    return bool({key for name, key in _finished(shipped) if name in ids} - {key for _, key in _finished(results)})


def _finished(results: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """The id of each finished run in a folder, and its label with the key of its task and setting (:func:`run_key`)."""
    for run in Store(results).runs(with_curves=False):
        if run.record.status == "finished":
            yield run.job.id, (run.job.label, run_key(run.job))
