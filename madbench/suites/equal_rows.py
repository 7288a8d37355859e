"""Rows of a sweep that train the same, and changes that change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from madbench.errors import ConfigError
from madbench.labels import Variant, parse
from madbench.language_jobs import LanguageJob
from madbench.mixers.srg.budget import solve
from madbench.suites.overrides import LANGUAGE_MODEL, key_of

if TYPE_CHECKING:
    from madbench.sweep_experiment import RowOf

_OF_THE_MIXER = ("model.mix_rank", "model.rank_multiple", "model.rope")
"""Settings that a label may not use, or that the budget may overrule."""


def notes_on_equal_rows(rows: Sequence[RowOf]) -> list[str]:
    """A sentence where rows train the same model; raises ``ConfigError`` for a change that changes no row at all."""
    by_jobs: dict[frozenset[str], str] = {}
    for row in rows:
        other = by_jobs.setdefault(frozenset(job.id for job in row.jobs), row.row.name)
        if other != row.row.name:
            raise ConfigError(f"the rows {other!r} and {row.row.name!r} train the same jobs; leave one out")
    built = {row.row: _built(row) for row in rows}
    for key in dict.fromkeys(key_of(change) for row in rows for change in row.row.changes):
        groups: dict[tuple, set] = {}
        sizes: Counter[tuple] = Counter()
        for row, what in built.items():
            rest = (row.label, *(change for change in row.changes if not change.startswith(f"{key}=")))
            groups.setdefault(rest, set()).add(what)
            sizes[rest] += 1
        compared = [group for rest, group in groups.items() if sizes[rest] > 1]
        if compared and all(len(group) == 1 for group in compared):
            raise ConfigError(
                f"{key} has no effect on any row: each label gets the same mixer for all its values; madbench budget"
                " LABEL shows which"
            )
    same: dict[tuple, list[str]] = {}
    for row, what in built.items():
        same.setdefault(what, []).append(row.name)
    doubled = [" = ".join(names) for names in same.values() if len(names) > 1]
    if not doubled:
        return []
    more = f" and {len(doubled) - 3} more" if len(doubled) > 3 else ""
    return [
        f"rows that train the same model, as the label or its budget leaves no choice: {'; '.join(doubled[:3])}{more}"
    ]


def _built(row: RowOf) -> tuple:
    """What the row trains: rows with an equal one differ in settings that their label does not use."""
    variant = parse(row.row.label)
    if not isinstance(variant, Variant):
        return (row.row,)
    model = row.jobs[0].model
    rest = [change for change in row.row.changes if not change.removeprefix(LANGUAGE_MODEL).startswith(_OF_THE_MIXER)]
    lengths = {model.seq_len if isinstance(job, LanguageJob) else job.setting["seq_len"] for job in row.jobs}
    size = (model.mix_rank, model.rank_multiple)
    ranks = {n: solve(variant, model.d_model, model.n_head, n, row.jobs[0].counting, *size).ranks for n in lengths}
    return (row.row.label, *rest, frozenset(ranks.items()), model.rope if variant.rope else "")
