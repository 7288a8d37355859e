"""Comparisons of jobs by the identities of their code: the fields ``family`` and ``task_source`` of jobs."""

from __future__ import annotations

from dataclasses import replace

from madbench.jobs import Job


def mixer_version(job: Job) -> str:
    """A text that is equal for jobs whose mixers have the same version of the code and the same settings."""
    return f"{job.family} {job.mixer}"


def without_code(job: Job) -> str:
    """A hash of the job without the identities of the code of its mixer and task.

    Jobs that differ only in these identities have equal hashes.
    """
    return replace(job, family="", task_source="").id
