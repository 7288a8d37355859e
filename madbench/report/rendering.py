"""Rendering of a page as one HTML file with its style, script and data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from madbench._version import __version__
from madbench.analysis.quantities import signed_text, title
from madbench.labels.names import row_display_name
from madbench.report.tables import page_link

_FOLDER = Path(__file__).parent


def render(template: str, content: Mapping[str, Any], command: str, written: str) -> bytes:
    """The content of an HTML file that needs no other file and no network.

    Args:
        template: the file name of the template in the folder of this module.
        content: the values of the template by name. Every template needs ``sections`` and ``data``.
        command: the command that writes the file, shown on the page.
        written: the date, shown on the page.
    """
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = row_display_name
    environment.globals |= {"page_link": page_link, "signed_text": signed_text, "title": title}
    script = (_FOLDER / "script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html = environment.get_template(template).render(
        **content,
        style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        command=command,
        written=written,
        version=__version__,
    )
    return html.encode(errors="replace")
