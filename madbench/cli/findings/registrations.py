"""The verdicts of ``madbench findings --registered``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from madbench.cli.shared.options import StoredOptions
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import print_text_table
from madbench.errors import ConfigError


def print_registered(
    words: list[str] | None, path: Path, stored_options: StoredOptions, print_options: PrintOptions
) -> None:
    """Print the findings on the registered claims in the file ``path``, and mark every other claim as exploratory.

    Raises ``ConfigError`` if the user chooses labels or runs, because the registration already says which ones count.
    """
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.registered_findings import registered_findings, registration_notes
    from madbench.analysis.registration import load_registration

    if words or set(stored_options.given) - {"results"}:
        raise ConfigError(
            "--registered: labels, tasks and protocol are the registered ones; only --results can be given"
        )
    registration, results = load_registration(path, stored_options.results)
    remarks = registration_notes(registration, path, results)
    table = findings_table(registered_findings(registration, results), results.sentences())
    table = dataclasses.replace(table, own_caption=" ".join([*remarks, table.own_caption]))
    print_text_table(table.of_origin(results.origin(names_profiles=True)), print_options)
