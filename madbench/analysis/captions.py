"""Sentences that several tables have in their notes: on the test of differences, and on the baseline row of a grid."""

from __future__ import annotations

from collections.abc import Sequence

from madbench.labels.names import row_display_name
from madbench.rows import Row

TEST_NOTE = (
    "Test: Student's t. A variance of few seeds is increased, because few seeds can hide a larger spread, or a label"
    " that solves a task in some seeds only. The test is the same for every profile and column."
)


def about_baseline(rows: Sequence[Row], of_what: str) -> list[str]:
    """Sentences for the notes of a grid's table, on the baseline and on the column "vs baseline".

    The baseline is the first of ``rows``. ``of_what`` names the quantity and the unit of the column, such as ``the mean
    over the tasks, in percentage points``.
    """
    baseline, keys = rows[0], [change.key for row in rows for change in row.changes]
    unnamed_changes = [str(change) for change in baseline.changes if change not in baseline.named_changes]
    sentences = {
        f"Baseline: {row_display_name(baseline.name)}, the first row.": True,
        f"Settings that a row does not name: {', '.join(unnamed_changes)}.": unnamed_changes,
        "The sizes given are the baseline's.": any(key.startswith("model.") for key in keys),
        f"Vs baseline: {of_what}, minus that of the baseline, with a 95% interval over seeds. In brackets: none.": rows[
            1:
        ],
    }
    return [text for text, is_shown in sentences.items() if is_shown]
