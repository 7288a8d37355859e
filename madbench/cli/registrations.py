"""Claims stated before the runs exist, and judged by them: ``madbench findings --register`` and ``--registered``."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from madbench.cli import options
from madbench.cli.options import StoredOptions
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import counted, print_text_table
from madbench.config import seed_list
from madbench.errors import ConfigError


def print_registration(
    file: Path, claims: str, words: list[str] | None, stored: StoredOptions, printed: PrintOptions
) -> None:
    """Freezes the claims and the grid of a file, and prints where."""
    from madbench.analysis.registration import register

    if _chooses_runs(words, stored) or printed != PrintOptions():
        raise ConfigError(
            "--register: labels, tasks and protocol are those of the file; give only --claims and --results"
        )
    frozen, experiment, path = register(file, stored.results, claims)
    names, seeds = ", ".join(claim.name for claim in frozen.claims), seed_list(experiment.grid.seeds)
    print(f"{path}: {names}; {counted(len(frozen.jobs), 'job')} of {len(experiment.labels)} labels, seeds {seeds}")
    print(f"hash {frozen.id}; keep the file where its date can be shown, such as in version control")
    if frozen.stored:
        print(
            f"{len(frozen.stored)} of these jobs are stored already: their verdicts are not confirmed by a registration"
        )
    print(f"next: madbench sweep {shlex.quote(str(file))}; madbench findings --registered {shlex.quote(str(path))}")


def print_registered(words: list[str] | None, path: Path, stored: StoredOptions, printed: PrintOptions) -> None:
    """Prints the findings that were registered, and every other claim as exploratory."""
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.registration import load_registration, registered_findings, sentences

    if _chooses_runs(words, stored):
        raise ConfigError(
            "--registered: labels, tasks and protocol are those registered; give only --results beside it"
        )
    registration, results = load_registration(path, stored.results)
    remarks = sentences(registration, path, results)
    table = findings_table(registered_findings(registration, results), results.sentences())
    table = table.of_origin(results.origin())
    print_text_table(dataclasses.replace(table, caption=" ".join([*remarks, table.caption])), printed)


def _chooses_runs(words: list[str] | None, stored: StoredOptions) -> bool:
    return bool(words) or dataclasses.replace(stored, results=options.RESULTS) != StoredOptions()
