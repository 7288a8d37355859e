"""Jobs with equal training FLOPs: each label gets the number of steps at which it costs as much as softmax attention.

Training FLOPs are three times the forward FLOPs of the whole model (:class:`madbench.suites.base.JobSize`), for all
tokens of all steps. Evaluations and the optimizer's own work are not included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from madbench.details import Details
from madbench.jobs import J, Job
from madbench.labels.budgets import BUDGETS
from madbench.suites.planning import run_key, stored_code

if TYPE_CHECKING:
    from madbench.suites.base import JobSize

REFERENCE = "S"
"""The label whose training FLOPs all jobs match. Softmax attention has the same FLOPs with and without positions."""
NEAR = 2
"""The largest difference between the estimated number of steps and the numbers of steps that are tried.

The estimate is not exact if the last batch of an epoch is smaller than the others.
"""


def with_steps(jobs: Iterable[J], size: Callable[[J], JobSize]) -> list[J]:
    """Set the field ``steps`` of each job whose budget chooses the number of steps. Return all jobs, in order.

    ``size`` is :meth:`madbench.suites.base.Suite.size` of the jobs' suite.
    """
    found: dict[str, int] = {}
    matched = []
    for job in jobs:
        if BUDGETS[job.budget].chooses_steps:
            key = f"{job.label} {run_key(job)}"
            if key not in found:
                found[key] = _stored_steps(job) or nearest_steps(job, size)
            job = replace(job, steps=found[key])
        matched.append(job)
    return matched


def reference(job: J) -> J:
    """The job of softmax attention that a job is compared with. It has the profile's number of steps."""
    return replace(job, label=REFERENCE, mixer={}, steps=0)


def training_flops(size: JobSize) -> float:
    """The FLOPs of all training steps, forward and backward, without evaluations."""
    return 3 * size.flops_per_token * size.trained_tokens


def nearest_steps(job: J, size: Callable[[J], JobSize]) -> int:
    """The number of steps, at least one, at which the training FLOPs of ``job`` are nearest to softmax attention's.

    Softmax attention takes the profile's number of steps. ``size`` is :meth:`madbench.suites.base.Suite.size`.
    """
    theirs, ours = size(reference(job)), size(replace(job, steps=0))
    target, estimate = training_flops(theirs), round(ours.steps * training_flops(theirs) / training_flops(ours))

    def distance(steps: int) -> float:
        return abs(training_flops(size(replace(job, steps=steps))) - target)

    return min(range(max(1, estimate - NEAR), max(1, estimate) + NEAR + 1), key=distance)


def compute_details(job: J, size: Callable[[J], JobSize]) -> Details:
    """Details for a record: the steps and the training FLOPs of a job, compared with those of softmax attention.

    The only key is ``compute``. Its value has ``steps``, ``steps_of_softmax``, ``training_flops``, and ``of_softmax``,
    the training FLOPs divided by those of softmax attention. Empty if the job's budget does not choose its steps.
    ``size`` is :meth:`madbench.suites.base.Suite.size`.
    """
    if not job.steps:
        return {}
    ours, theirs = size(job), size(reference(job))
    flops, of_softmax = training_flops(ours), training_flops(theirs)
    return {
        "compute": {
            "steps": ours.steps,
            "steps_of_softmax": theirs.steps,
            "training_flops": flops,
            "of_softmax": flops / of_softmax,
        }
    }


def _stored_steps(job: Job) -> int:
    """The steps of a job's stored run, if its label is planned from stored code. 0 for any other label.

    Inside :func:`madbench.suites.planning.plan_as_stored`, a label is planned without its code, so its FLOPs cannot be
    computed and its steps are taken from stored runs. If the job has no stored run, the result is 1. Such a job is
    never trained.
    """
    if code := stored_code(job.label):
        return code.steps.get(run_key(job), 1)
    return 0
