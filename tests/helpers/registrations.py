"""Registrations of one claim on four labels, and other contents of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from madbench.analysis.registered_findings import EXPLORATORY, registered_findings, registration_notes
from madbench.analysis.registration import load_registration
from madbench.jobs import content_id
from madbench.suites.mad.suite import MAD_TASKS

LABELS = ("R-12!", "R-12o!", "G-12!", "G-12o!")
GAINS = {"R-12!": 0.1, "R-12o!": 0.6, "G-12!": 0.2, "G-12o!": 0.7}
LATER = {"ended": "2100-01-01T00:00:00+00:00"}
"""Details of the record of a run that ended after the registration."""


def write_grid(folder: Path) -> Path:
    """Write the grid file ``lag.yaml``, with ``LABELS``, the MAD tasks and three seeds. Return its path."""
    path = folder / "lag.yaml"
    path.write_text(f"profile: quick\nlabels: [{', '.join(LABELS)}]\ntasks: [{', '.join(MAD_TASKS)}]\nseeds: 0-2\n")
    return path


def judge(file: Path) -> tuple[str, list[str]]:
    """Return the sentences on the registration in ``file``, and the verdicts on the registered claims as texts.

    The runs are in the folder ``results`` beside the file.
    """
    found, results = load_registration(file, file.parent / "results")
    rows = [row for row in registered_findings(found, results) if row.claim.group != EXPLORATORY]
    return " ".join(registration_notes(found, file, results)), [row.verdict_text for row in rows]


def write_registration(file: Path, content: dict[str, Any]) -> None:
    """Write ``content`` as a registration file with the right hash of the content as its id."""
    content = {name: value for name, value in content.items() if name != "id"}
    file.write_text(json.dumps(content | {"id": content_id(content)}))
