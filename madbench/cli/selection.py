"""Which stored runs a verb shows, by the words and options that verbs share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    labels, overrides = labels_and_overrides(words or [])
    asked: dict[str, Any] = {"profile": profile, "fidelity": fidelity.value, "budget": budget.value}
    return selected(labels, results, overrides=overrides, tasks=split_list(tasks), protocol=protocol, **asked)


def selected(labels: list[str], results: Path, **asked: Any) -> Selection:
    """The selection of sets of labels in ``results``, with warnings on stderr."""
    from madbench.analysis.stored import Selection
    from madbench.labels import expand

    return Selection(labels=expand(labels), results=results, opened=opened, warn=warn, **asked)


def warn(message: str) -> None:
    """Prints a warning on stderr."""
    print(f"warning: {message}", file=sys.stderr)
