"""What a reader must know to trust the numbers of a table, whatever the suite: how seeds count, and the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from madbench.analysis.inference import LEAST_FOR_LEVEL, LEAST_SEEDS, binomial_interval
from madbench.grid import Row
from madbench.suites.addressing import plain

TEST_NOTE = (
    "t by Cochran and Cox where a noise model is known of both labels, and where the seeds of both scatter about one"
    " value; elsewhere Boschloo's exact test of the counts of solved seeds, or of seeds that do not diverge."
)
SOLVED_NOTE = (
    "[k/n]: k of n seeds solve the task, 90% of the way from chance to the ceiling; without a noise model the mean of"
    f" so few, or of seeds that split, has no ± (from {LEAST_FOR_LEVEL} seeds on where none solves it). Where"
    f" {LEAST_SEEDS} seeds agree, up to {1 - binomial_interval(LEAST_SEEDS, LEAST_SEEDS)[0]:.0%} of all seeds may still"
    " differ (95%)."
)


def about_baseline(rows: Sequence[Row], of_what: str) -> list[str]:
    """How the rows of a grid are named and compared with the first one."""
    baseline, changes = rows[0], [plain(change) for row in rows for change in row.changes]
    unnamed = [change for change in baseline.changes if change not in baseline.named_changes]
    sentences = {
        f"Baseline: {baseline.name}, the first row.": True,
        f"Where a row names nothing else: {', '.join(unnamed)}.": unnamed,
        "The sizes given are the baseline's.": any(change.startswith("model.") for change in changes),
        f"Vs baseline: {of_what}, minus the baseline's, with the 95% interval over seeds; in brackets: none.": rows[1:],
    }
    return [text for text, is_shown in sentences.items() if is_shown]
