"""The identities of code in a job: its fields ``family`` and ``task_source``, which are part of the id of its run."""

from __future__ import annotations

from dataclasses import replace

from madbench.jobs import Fidelity, Job
from madbench.labels import label_identity, parse
from madbench.mixers import label_traits
from madbench.tasks import settings_class


def mixer_identity(label: str, task: str, fidelity: Fidelity = "corrected") -> str:
    """The field ``family`` of a job: the identity of the label's family.

    In the published fidelity it also names the parameters that keep the initial values of their mixer. Runs that redrew
    these parameters therefore have other ids.
    """
    identity = label_identity(label)
    if fidelity == "published" and settings_class(task).model == "language_model":
        if kept := label_traits(parse(label)).keeps_init:
            return f"{identity}, {' and '.join(kept)} as the mixer draws them"
    return identity


def names_outside_mixer(job: Job) -> bool:
    """True if an identity of mixer code outside of this package is part of the job's id."""
    return "+" in job.family


def names_outside_code(job: Job) -> bool:
    """True if an identity of code outside of this package is part of the job's id."""
    return names_outside_mixer(job) or bool(job.task_source)


def mixer_version(job: Job) -> str:
    """The version of the code of a job's mixer, with the settings of the mixer."""
    return f"{job.family.partition(',')[0]} {job.mixer}"


def without_code(job: Job) -> str:
    """The id of a job without its code outside of this package."""
    return replace(job, family="", task_source="").id
