"""What a reader must know to trust the numbers of a table, whatever the suite: how seeds count, and the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from madbench.grid import Row
from madbench.suites.addressing import without_prefix

TEST_NOTE = (
    "Student's t of means whose variances are raised by what few seeds cannot show: a little more scatter, and that a"
    " label may solve a task in some seeds and not in others. It is the same test for every profile and column."
)


def about_baseline(rows: Sequence[Row], of_what: str) -> list[str]:
    """How the rows of a grid are named and compared with the first one."""
    baseline, changes = rows[0], [without_prefix(change) for row in rows for change in row.changes]
    unnamed = [change for change in baseline.changes if change not in baseline.named_changes]
    sentences = {
        f"Baseline: {baseline.name}, the first row.": True,
        f"Where a row names nothing else: {', '.join(unnamed)}.": unnamed,
        "The sizes given are the baseline's.": any(change.startswith("model.") for change in changes),
        f"Vs baseline: {of_what}, minus the baseline's, with the 95% interval over seeds; in brackets: none.": rows[1:],
    }
    return [text for text, is_shown in sentences.items() if is_shown]
