from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from madbench.tasks.fuzzy_in_context_recall import distinct_ids
from madbench.tasks.in_context_recall import first_occurrence


@pytest.mark.parametrize(("n", "size"), [(4, 3), (5, 2), (3, 3), (4, 1), (5, 4)])
def test_every_ordered_choice_is_equally_likely(n, size, assert_uniform):
    choices = distinct_ids(np.random.default_rng(0), n, (200, 100), size).reshape(-1, size)
    counts = dict.fromkeys(permutations(range(n), size), 0)
    for choice in choices.tolist():
        counts[tuple(choice)] += 1
    assert_uniform(list(counts.values()))


@pytest.mark.parametrize(("columns", "codes"), [(1, 3), (7, 2), (64, 10), (65, 40), (130, 1 << 20), (5, 1 << 40)])
def test_first_occurrence_is_the_index_that_a_search_finds(columns, codes):
    rng = np.random.default_rng(columns)
    rows = rng.integers(codes, size=(50, columns))
    rows = np.where(rng.random(rows.shape) < 0.2, rows[:, :1], rows)
    assert first_occurrence(rows).tolist() == [[row.index(code) for code in row] for row in rows.tolist()]
