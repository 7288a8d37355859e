"""Test accuracies of a sweep of learning rates, with the rate chosen by validation accuracy and by test accuracy."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean

from madbench.analysis.frames import groups_of
from madbench.analysis.quantities import heading
from madbench.analysis.rendering import Listing
from madbench.analysis.scores import Results
from madbench.jobs import mapping_text
from madbench.papers.coefficients.verdicts import principle_table
from madbench.suites.mad.suite import MAD


def both_choices(results: Results) -> Listing | None:
    """A table of the mean test accuracy of sweeps in percent, one line per label and task.

    One column has the accuracy at the learning rate and weight decay that validation chooses, the other the best test
    accuracy of the sweep. Both columns use the same seeds. A seed that chooses the rate for other seeds is in neither.
    None if no label has a sweep.
    """
    scores = results.scores[results.scores.value.notna()]
    chosen = {key: dict(zip(rows.seed, rows.value)) for key, rows in groups_of(scores, ["label", "column"])}
    count = 0
    lines, cells = [], []
    for row in results.rows_of(MAD):
        runs: dict[str, dict[tuple[int, str], list[float]]] = defaultdict(lambda: defaultdict(list))
        for job in row.jobs:
            if results.store.has(job):
                accuracy = results.store.read(job.id).record.metrics.get("accuracy", math.nan)
                runs[job.task][job.seed, mapping_text(job.setting)].append(100 * accuracy)
        for task, by_setting in runs.items():
            count = max(count, *map(len, by_setting.values()))
            of_validation = chosen.get((row.name, task), {})
            best: dict[int, list[float]] = {seed: [] for seed in of_validation}
            for (seed, _), accuracies in by_setting.items():
                if seed in best:
                    best[seed].append(max((x for x in accuracies if not math.isnan(x)), default=math.nan))
            on_validation = fmean(of_validation.values()) if best else math.nan
            on_test = fmean(map(fmean, best.values())) if best else math.nan
            texts = ("-" if math.isnan(accuracy) else f"{accuracy:.1f}" for accuracy in (on_validation, on_test))
            lines.append([row.name, heading(task), *texts])
            numbers = {"validation": on_validation, "best_of_sweep": on_test, "seeds": len(best)}
            cells.append({"label": row.name, "task": task, **numbers})
    if count < 2:
        return None
    caption = (
        f"Test accuracy of a sweep of {count} runs per seed, chosen in two ways: at the rate that validation chooses, "
        "as in contrasts and verdicts, and the best of all runs, as in the paper (Appendix E.1). The seed that chooses "
        "the rate for the others is in neither. -: no seed, or all runs of a seed diverged."
    )
    return principle_table(caption, ["Label", "Task", "By validation", "Best of the sweep"], lines, cells)
