"""A notebook as a page of the documentation: its text, its code, and the stored outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def notebook_page(notebook: Path) -> str:
    """The page in Markdown, with embedded figures."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += map(_output, cell.get("outputs", ()))
    return "\n\n".join(filter(None, parts)) + "\n"


def _output(output: Mapping[str, Any]) -> str:
    """An output in the richest form that a page can show. Empty for messages on stderr."""
    data = output.get("data", {})
    if "image/png" in data:
        content = "".join("".join(data["image/png"]).split())
        return f'<img alt="Output of the cell above" src="data:image/png;base64,{content}">'
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        html = re.sub(r"<table[^>]*>", "<table>", html)  # the theme styles tables without a class
        return "\n".join(line.strip() for line in html.splitlines() if line.strip())  # indented it would be code
    text = "".join(data.get("text/plain", output.get("text", ""))).rstrip()
    return f"```text\n{text}\n```" if text and output.get("name") != "stderr" else ""
