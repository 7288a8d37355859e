"""Which stored runs a verb shows, by the words and options that verbs share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.cli.options import Budget, Fidelity, labels_and_overrides, split_list
from madbench.cli.stored_runs import opened

if TYPE_CHECKING:
    from madbench.analysis.stored import Selection


def selection_of(
    words: list[str] | None,
    profile: str,
    tasks: list[str] | None,
    fidelity: Fidelity,
    budget: Budget,
    protocol: str | None,
    results: Path,
) -> Selection:
    """What the options of a verb mean; raises ``LabelError`` and ``ConfigError``, for options without effect too."""
    from madbench.analysis.stored import Selection
    from madbench.labels import expand

    named, overrides = labels_and_overrides(words or [])
    return Selection(
        labels=expand(named),
        overrides=overrides,
        profile=profile,
        tasks=split_list(tasks),
        fidelity=fidelity.value,
        budget=budget.value,
        protocol=protocol,
        results=results,
        opened=opened,
        warn=warn,
    )


def warn(message: str) -> None:
    """Prints a warning."""
    print(f"warning: {message}", file=sys.stderr)
