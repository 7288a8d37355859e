"""The identities of code in a job: its fields ``family`` and ``task_source``, which are part of the id of its run."""

from __future__ import annotations

from dataclasses import replace

from madbench.jobs import Job


def mixer_version(job: Job) -> str:
    """Text that is equal for jobs with the same version of the mixer's code and the same mixer settings."""
    return f"{job.family} {job.mixer}"


def without_code(job: Job) -> str:
    """A hash that is equal for jobs that differ only in the identities of the code of their mixer and task."""
    return replace(job, family="", task_source="").id
