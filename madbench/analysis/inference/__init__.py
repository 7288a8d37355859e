"""The only place with an interval or a p-value: samples of seeds, differences of samples, adjusted p-values.

The unit is the seed. A sample is what the seeds of one label gave on one column; settings of a task share their seed's
initial weights and are averaged before. A difference depends on the labels that it is about and on nothing else that is
stored, so it is the same wherever it is shown, and stays the same when the store grows.

Where a noise model is known of a column (:mod:`madbench.analysis.noise_model`), and no run diverged:

- The variance of a mean is that of its seeds, with the variance that the model lends, by their number; and what seeds
  would add that fall elsewhere. Nothing depends on which side of a threshold a seed is.

Without one a task is an outcome first: a seed solves it (:attr:`Scale.solved`) or does not, and a diverged run counts
at chance. A sample is *level* where its seeds scatter about one value and not all solve the task. Otherwise all do, or
the seeds are far apart, or some diverge.

- Share of seeds that solve a task: Clopper-Pearson.
- Mean of a level sample of :data:`LEAST_FOR_LEVEL` seeds or more: Student's t. Fewer seeds do not show that a sample is
  level; of these and of samples that are not level, the mean is share * (mean of the solved seeds) + (1 - share) *
  (mean of the others), and the interval has each of the three at the ends of its own.
- Where no run diverged, an interval is of the mean of the runs that do not diverge: seeds that were not seen cannot be
  averaged. How many may diverge is a share of its own, Clopper-Pearson again. Where some did, it is of the mean of all.
- Two samples of which one is not level: Boschloo's exact test of the counts of solved seeds, one-sided and doubled. The
  interval joins those of the means (Zou and Donner 2008, "Construction of confidence limits about effect measures: a
  general approach", Statistics in Medicine 27) and holds 0 exactly where the test does not reject. Where the seeds of
  one sample agree, they may be a level at the mean of the other's two values: p is at least that of the other's counts.
- Two level samples further apart than the seeds of one may be: t, and of the counts of seeds on either side of the
  middle the same test; the larger p. Seeds that agree do not show that the next ones do.

Differences and sums of level samples, of averages, and of all samples of a noise model: t by Cochran and Cox (1950,
"Experimental Designs", section 4.14): the quantile is the mean of those of what is added and of what is subtracted,
weighted by their variances. Welch's degrees of freedom, joined over both, are too many where one side has few seeds and
where tests share the level of a table.

- Averages, and what is added or subtracted where it is several samples: the sum of their variances, with
  Satterthwaite's degrees of freedom. The variance of a sample that is not level, and in a sum of more than two of one
  that stands apart, is at least the binomial one with one more success and one more failure, shared by the parts of an
  average.

No difference beyond a margin is two one-sided tests, against the margin on either side (Schuirmann 1987, "A comparison
of the two one-sided tests procedure and the power approach", Journal of Pharmacokinetics and Biopharmaceutics 15), with
the same errors. Without a noise model seeds that agree have at least the binomial error of one more seed elsewhere.

Nothing is tested with fewer than :data:`LEAST_SEEDS` seeds, where neither label is above what the best answer without
context scores, or above chance where that is not known, or where all seeds of both solve it.
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
from madbench.analysis.inference.distributions import LEVEL, ErrorOfSum, binomial_interval, exact_p, students_t
from madbench.analysis.inference.many import Rank, holm, may_be_best, ranks
from madbench.analysis.inference.sample import (
    BIMODAL_SHARE,
    LEAST_FOR_LEVEL,
    LEAST_SEEDS,
    UNLEARNED_SHARE,
    Sample,
    Scale,
    noises,
)

__all__ = [
    "BIMODAL_SHARE",
    "BOTH_SOLVE",
    "LEAST_FOR_LEVEL",
    "LEAST_SEEDS",
    "LEVEL",
    "NEITHER_LEARNED",
    "UNLEARNED_SHARE",
    "Difference",
    "Equivalence",
    "ErrorOfSum",
    "Rank",
    "Sample",
    "Scale",
    "binomial_interval",
    "combination",
    "difference",
    "equivalence",
    "exact_p",
    "holm",
    "may_be_best",
    "noises",
    "ranks",
    "students_t",
]
