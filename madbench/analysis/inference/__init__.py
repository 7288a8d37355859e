"""Intervals and p-values over seeds, with one test for every profile, suite and column.

Each seed is one observation. A sample has the values of the seeds of one label in one column. The settings of a task
share the initial weights of a seed, so they are averaged first. The interval and the unadjusted p-value of a difference
depend only on its own samples and on constants. So they are the same in every table, and runs of other labels do not
change them.

- :mod:`~madbench.analysis.inference.sample`: the seeds of a label in a column, averages, and whether a task is learned
  or solved; the terms of the variance of a mean, Satterthwaite's degrees of freedom, p-value and interval of Student's
  t. This is the whole test.
- :mod:`~madbench.analysis.inference.differences`: differences and sums of labels, and equivalence within a margin.
- :mod:`~madbench.analysis.inference.many`: Holm's method, ranks, and the labels that are worse than the best.

If the seeds have the same spread, a larger difference never has a larger p. An interval contains its estimate, and it
excludes 0 if and only if the p-value of the difference is below 0.05. A difference is not tested in three cases: with
fewer than :data:`~madbench.suites.planning.LEAST_SEEDS` seeds; if neither label is better than the best answer that
ignores the context (or than chance, if the score of that answer is unknown); and if all seeds of both labels solve the
task.
"""

from madbench.analysis.inference.differences import (
    BOTH_SOLVE,
    NEITHER_LEARNED,
    Difference,
    Equivalence,
    combination,
    difference,
    equivalence,
)
from madbench.analysis.inference.many import Rank, holm, not_best, ranks, step_down
from madbench.analysis.inference.sample import (
    LEVEL,
    SETTLING_SEEDS,
    TEST,
    UNLEARNED_SHARE,
    VERSION,
    Sample,
    Scale,
    VarianceTerms,
    binomial_interval,
    planned_terms,
    terms_of_mean,
)

__all__ = [
    "BOTH_SOLVE",
    "LEVEL",
    "NEITHER_LEARNED",
    "SETTLING_SEEDS",
    "TEST",
    "UNLEARNED_SHARE",
    "VERSION",
    "Difference",
    "Equivalence",
    "Rank",
    "Sample",
    "Scale",
    "VarianceTerms",
    "binomial_interval",
    "combination",
    "difference",
    "equivalence",
    "holm",
    "not_best",
    "planned_terms",
    "ranks",
    "step_down",
    "terms_of_mean",
]
