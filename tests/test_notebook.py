"""The example notebook, with the outputs of its cells, and as a page of the documentation."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def notebook_page():
    spec = importlib.util.spec_from_file_location("docs_notebook", ROOT / "docs" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.notebook_page


def code(source: str, *outputs: dict) -> dict:
    return {"cell_type": "code", "source": [source], "outputs": [*outputs]}


def test_a_page_has_text_code_tables_figures_and_what_was_printed(notebook_page, tmp_path):
    style, row = "<style scoped>\n  td { color: red; }\n</style>", "    <tr>\n      <td>1</td>\n    </tr>"
    table = f"<div>\n{style}\n<table border='1' class='dataframe'>\n{row}\n</table></div>"
    picture = base64.b64encode(b"picture").decode()
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        code("x = 1", {"data": {"text/html": table.splitlines(keepends=True), "text/plain": "1"}}),
        code("plot()", {"data": {"image/png": picture, "text/plain": "<Figure>"}}),
        code("print(2)", {"name": "stdout", "text": ["2\n"]}, {"name": "stderr", "text": ["warning\n"]}),
    ]
    (tmp_path / "hens.ipynb").write_text(json.dumps({"cells": cells}))
    page = notebook_page(tmp_path / "hens.ipynb")
    assert page.split("\n\n") == [
        "# Title",
        "Text.",
        "```python\nx = 1\n```",
        "<div>\n<table>\n<tr>\n<td>1</td>\n</tr>\n</table></div>",
        "```python\nplot()\n```",
        f'<img alt="Output of the cell above" src="data:image/png;base64,{picture}">',
        "```python\nprint(2)\n```",
        "```text\n2\n```\n",
    ]


def test_the_example_notebook_was_run_in_order():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = [output["output_type"] for cell in cells for output in cell["outputs"]]
    assert "error" not in kinds and len(kinds) >= len(cells) - 1
    assert "image/png" in cells[-1]["outputs"][-1]["data"]
    shown = "".join("".join(output["data"].get("text/html", "")) for output in cells[-3]["outputs"] if "data" in output)
    assert "higher" in shown  # the verdict


def test_the_example_notebook_is_converted_to_a_page(notebook_page):
    page = notebook_page(NOTEBOOK)
    assert page.startswith("# From a label to a verdict\n") and page.count("```python") >= 8
    assert page.count("<img ") == 1 and "<style" not in page
