"""The tables of ``madbench inspect``: one table per subject for a single model, one comparison for two models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from madbench.analysis.frames import records_of
from madbench.analysis.marked_text import with_minus
from madbench.cli.shared.printing import table_lines

if TYPE_CHECKING:
    from madbench.analysis.inspection import Inspection

MOST_LAYERS = 3  # the most layers that have their own number in a comparison
MOST_ROWS = 12  # the most rows per layer and head; longer tables have one row per layer


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else with_minus(f"{value:.2f}")


def _cell(row: Mapping[str, Any], name: str) -> str:
    """The text of the value ``name`` in a row: a number, a share in percent, or for lag kernels ``-1: 63 [4]*``.

    The last form has the shift or window with the largest share, this share in percent, and in brackets the 95%
    quantile of the share in random kernels. ``*`` marks a share that is larger than the quantile.
    """
    value, random = row.get(name), row.get(f"{name}_random")
    if random is None or value is None:
        return (_number if name in _NUMBERS else _percent)(value)
    where = _PLACES.get(name, "").format(**row) if "head" in row else ""
    return f"{with_minus(where)}{100 * value:.0f} [{100 * random:.0f}]{'*' if value > random else ' '}"


def model_lines(model: Inspection) -> list[list[str]]:
    """The tables of one model, each as a list of lines that begins with the headings.

    A row begins with its subject and place, such as ``R(1) 1.2`` for layer 1, head 2. If a table has more than
    ``MOST_ROWS`` rows per layer and head, its rows are means over the heads of a layer, such as ``R(1) 1``.
    """
    tables, pages = _columns(), []
    for table, rows in model.tables.items():
        (first, columns), lines = tables[table], []
        for row in _means(rows) if len(rows) > MOST_ROWS and "head" in rows[0] else rows:
            place = f"{row['layer']}.{row['head']}" if "head" in row else str(row["layer"])
            cells = {heading: _cell(row, name) for heading, name in columns.items()}
            lines.append({first: f"{_kind(row)} {place}".strip()} | cells)
        pages.append(table_lines(lines, right=list(columns)))
    return pages


def _means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The means of the rows over the heads of a layer, separately for each gate, kernel or matrix. NaN is ignored."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    group_columns = [name for name in ("layer", "gate", "kernel", "matrix") if name in frame]
    numbers = list(frame.select_dtypes("float"))
    return records_of(frame.groupby(group_columns, sort=False)[numbers].mean().reset_index())


def _kind(row: Mapping[str, Any]) -> str:
    """The name of the gate, kernel or matrix that a row describes. Empty if it describes none of these."""
    return row.get("gate") or row.get("kernel") or row.get("matrix") or ""


def _columns() -> dict[str, tuple[str, dict[str, str]]]:
    """The columns of each table of ``madbench inspect``, by the name of the table.

    Each value is a pair: the heading of the first column, and a mapping from the heading of every other column to the
    measure that it shows.
    """
    from madbench.analysis.inspection import BANDS

    active = {"slots": "slots", "share %": "share", "lags <8": "share_recent", "older": "share_older"}
    active |= {"same lags": "same_lags", "same slots": "same_slots", "chance": "chance", "flips %": "flips"}
    weights = {"keys": "keys", "~0": "near_zero", "~1": "near_one", "neg.": "negative"}
    weights |= {band: band for band in BANDS} | {"same lag": "same_lags", "token": "same_tokens"}
    gates = {"mean": "mean", "sd": "sd", "sd over rows": "over_time", "closed %": "closed", "open %": "open"}
    kernels = {"size %": "size", "p %": "p", "shift 1": "shift_1", "best shift": "best_shift"}
    kernels |= {"average": "average", "window": "best_window", "by offset": "by_offset"}
    matrices = {"norm": "norm", "rank": "rank", "symmetric %": "symmetric", "diagonal %": "diagonal"}
    tables = {"active": ("Active", active), "weights": ("Weights", weights), "gates": ("Gate", gates)}
    return tables | {"kernels": ("Kernel", kernels), "matrices": ("Matrix", matrices)}


_NUMBERS = ("slots", "keys", "mean", "sd", "over_time", "norm", "rank")
"""The measures that are not shares. All others are printed in percent."""
_PLACES = {"best_shift": "{shift:+d}: ", "best_window": "{window}: "}
"""The format of the text before a share, by measure: the best shift, such as ``-1: ``, or the best window.

Only rows of single heads have this text."""

_COMPARED = {
    "active": {"share": "active slots, %", "same_lags": "overlap at the same lags, %", "flips": "flips at 1% noise, %"},
    "weights": {"keys": "effective keys", "near_zero": "coefficients near zero, %", "near_one": "near one, %"}
    | {"same_lags": "weights at the same lags, %", "same_tokens": "on the same tokens, %"},
    "gates": {"mean": "gate", "closed": "closed, %", "open": "open, %"},
    "kernels": {"size": "size, %", "best_shift": "best shift, %", "average": "average, %", "by_offset": "by offset, %"},
    "matrices": {"rank": "rank", "symmetric": "symmetric, %"},
}


def comparison_lines(names: Sequence[str], models: Sequence[Inspection]) -> list[str]:
    """The lines of a table that compares two models. It has one row per measure and one column per model.

    A cell has the mean over heads: one number per layer if there are few layers, otherwise the mean over layers.
    """
    values_of: dict[tuple[str, str], list[list[float]]] = {}
    for i, model in enumerate(models):
        for table, rows in model.tables.items():
            for row in _means(rows):
                for name, heading in _COMPARED[table].items():
                    row_name = f"{_kind(row)} {heading}".strip()
                    values_of.setdefault((table, row_name), [[] for _ in models])[i].append(row.get(name, math.nan))
    lines = []
    for (_, heading), values in sorted(values_of.items(), key=lambda item: [*_COMPARED].index(item[0][0])):
        show = _percent if heading.endswith("%") else _number
        means = [sum(of_layers) / len(of_layers) if of_layers else math.nan for of_layers in values]
        columns = [of_layers if 0 < len(of_layers) <= MOST_LAYERS else [mean] for of_layers, mean in zip(values, means)]
        cells = {name: "  ".join(map(show, numbers)) for name, numbers in zip(names, columns)}
        lines.append({"Layer by layer": heading, **cells, "mean difference": show(means[1] - means[0])})
    return table_lines(lines, right=[*names, "mean difference"])
