"""The identities of code in a job: its fields ``family`` and ``task_source``, which are part of the id of its run."""

from __future__ import annotations

from dataclasses import replace

from madbench.jobs import Fidelity, Job
from madbench.labels import Label, as_label, label_identity
from madbench.mixers import label_traits
from madbench.tasks import settings_class


def mixer_identity(label: str | Label, task: str, fidelity: Fidelity = "corrected") -> str:
    """The field ``family`` of a job: the identity of the label's family.

    For tasks with a language model in the published fidelity, it also names the parameters whose initial values come
    from the mixer. Earlier versions redrew these parameters, and their runs therefore have other ids.
    """
    identity = label_identity(label)
    if fidelity == "published" and settings_class(task).model == "language_model":
        if kept := label_traits(as_label(label)).keeps_init:
            return f"{identity}, {' and '.join(kept)} as the mixer draws them"
    return identity


def mixer_version(job: Job) -> str:
    """Text that is equal for jobs with the same version of the mixer's code and the same mixer settings."""
    return f"{job.family.partition(',')[0]} {job.mixer}"


def without_code(job: Job) -> str:
    """A hash that is equal for jobs that differ only in the identities of the code of their mixer and task."""
    return replace(job, family="", task_source="").id
