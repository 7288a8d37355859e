"""HTML tables in which notebooks show runs and plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def html_table(rows: Sequence[Mapping[str, object]], caption: str = "") -> str:
    """An HTML ``table`` element with one column per key of the rows, and a caption below the table.

    Floats have four significant digits, and integers have thousands separators.

    >>> html_table([{"label": "S", "jobs": 2000}]).partition("<tbody>")[2]
    '<tr><td>S</td><td>2,000</td></tr></tbody></table>'
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = ("".join(f"<td>{escape(cell_text(row.get(name)))}</td>" for name in names) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    caption_tag = (
        f'<caption style="caption-side: bottom; text-align: left">{escape(caption)}</caption>' if caption else ""
    )
    return f"<table>{caption_tag}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell_text(value: object) -> str:
    """The text of a cell: floats with four significant digits, integers with thousands separators, "" for None."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
