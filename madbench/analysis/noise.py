"""What the seeds allow to be said: which labels' means differ by more than the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

# 97.5% quantiles of Student's t by degrees of freedom, from 1; further ones are below the last
_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


def least_difference(values: Mapping[str, Sequence[float]]) -> float | None:
    """The difference of two means beyond which they differ at the 95% level, for any one pair of ``values``' keys.

    Student's t with the standard deviation pooled over all keys: t s sqrt(2 / n), n the fewest values of a key.
    ``None`` where no key has two values.
    """
    freedom = sum(len(of_key) - 1 for of_key in values.values())
    if freedom == 0:
        return None
    squares = sum((len(of_key) - 1) * statistics.variance(of_key) for of_key in values.values() if len(of_key) > 1)
    t = _STUDENT_T[min(freedom, len(_STUDENT_T)) - 1]
    return t * math.sqrt(squares / freedom * 2 / min(map(len, values.values())))


def not_told_apart(means: Mapping[str, float], difference: float) -> list[list[str]]:
    """The largest sets of two or more keys whose means are all within ``difference``, each from low to high.

    >>> not_told_apart({"S": 3.1, "R": 3.0, "G": 2.96, "R-c": 3.5}, 0.12)
    [['G', 'R'], ['R', 'S']]
    """
    ordered = sorted(means, key=means.__getitem__)
    sets: list[list[str]] = []
    for i, lowest in enumerate(ordered):
        within = [key for key in ordered[i:] if means[key] - means[lowest] <= difference]
        if len(within) > 1 and not (sets and within[-1] in sets[-1]):
            sets.append(within)
    return sets
