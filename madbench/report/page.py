"""The page: one template with its style, script and data inside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import madbench
from madbench.report.figures import PageFigure
from madbench.report.findings import PageClaim, verdict_counts
from madbench.report.missing import Missing
from madbench.report.runs import ReportedRun
from madbench.report.tables import PageTable

_FOLDER = Path(__file__).parent

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a ``<script>`` element, or a line of one, by their JSON escapes."""


@dataclass(frozen=True)
class Page:
    """Everything that the template shows, in its order."""

    lead: str
    """The protocols in a sentence."""
    counts: list[tuple[str, str]]
    """Numbers and what they count."""
    properties: list[tuple[str, str]]
    """Name and value of what the runs share and of what they ran on."""
    missing: list[Missing]
    bad_runs: list[ReportedRun]
    """The failed and the diverged ones."""
    tables: list[PageTable]
    factors: PageTable | None
    budget: PageTable
    count: int
    """Jobs."""
    data: Mapping[str, Any]
    """What the script needs, by name."""
    figures: list[PageFigure] = field(default_factory=list)
    claims: list[PageClaim] = field(default_factory=list)
    findings_note: str = ""

    def render(self, command: str, written: str) -> bytes:
        """The HTML: one file that needs no other and no network; it names the ``command`` that wrote it, and the date."""
        environment = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        script = (_FOLDER / "script.js").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        html = environment.get_template("template.html.j2").render(
            **content | {"data": Markup(embedded_json(self.data))},
            title=f"madbench report: {self.lead}",
            sections=self._sections(),
            verdicts=verdict_counts(self.claims),
            style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            command=command,
            written=written,
            version=madbench.__version__,
        )
        return html.encode()

    def _sections(self) -> Sequence[tuple[str, str]]:
        """Id and name of the sections that the page has."""
        optional = {"findings": self.claims, "figures": self.figures, "factors": self.factors}
        sections = ("asked", "missing", "findings", "tables", "figures", "factors", "budget")
        return [(name, name.capitalize()) for name in sections if optional.get(name, True)]


def embedded_json(value: Any) -> str:
    """JSON that may stand in a ``<script>`` element, whatever text is in it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return text
