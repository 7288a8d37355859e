"""The page: what there is to show, in one template with its style and script inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import madbench
from madbench.report.embedding import embedded_json
from madbench.report.figures import PageFigure
from madbench.report.findings import PageClaim, counts
from madbench.report.missing import Missing
from madbench.report.runs import ReportedRun
from madbench.report.tables import PageTable

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    """Everything that the template shows, in its order."""

    lead: str
    """The protocol in a sentence."""
    tiles: list[tuple[str, str]]
    """Counts and what they count."""
    facts: list[tuple[str, str]]
    """What was asked and what it ran on: name and value."""
    missing: list[Missing]
    bad_runs: list[ReportedRun]
    """The failed and the diverged ones."""
    tables: list[PageTable]
    factors: PageTable | None
    budget: PageTable
    count: int
    """Jobs."""
    data: dict[str, str]
    """What the script needs, as JSON texts from :func:`embedded_json`, by name."""
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
        data = ",".join(f"{embedded_json(name)}:{text}" for name, text in self.data.items())
        html = environment.get_template("template.html.j2").render(
            **content | {"data": Markup(f"{{{data}}}")},
            title=f"madbench report: {self.lead}",
            heading="madbench report",
            sections=_sections(self),
            verdicts=counts(self.claims),
            style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            command=command,
            written=written,
            version=madbench.__version__,
        )
        return html.encode()


def _sections(page: Page) -> Sequence[tuple[str, str]]:
    """Id and name of the sections that the page has."""
    names = {
        "asked": "Asked",
        "missing": "Missing",
        "findings": "Findings" if page.claims else "",
        "tables": "Tables",
        "figures": "Figures" if page.figures else "",
        "factors": "Factors" if page.factors else "",
        "budget": "Budget",
    }
    return [(section, name) for section, name in names.items() if name]
