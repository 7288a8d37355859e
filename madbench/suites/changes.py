"""The difference between a job and the nearest shipped setting."""

from __future__ import annotations

from madbench.jobs import Job
from madbench.labels import family_name, reading_problem
from madbench.suites import suites
from madbench.tasks import broken_tasks

_SETTING_CHANGES: dict[str, str] = {}


def setting_change(job: Job) -> str:
    """The setting of a job as text: the nearest named setting, the fields that differ from it, and other changes.

    For a language model: the nearest profile and the changes from it. If the label or the task is broken or not
    installed: all fields of the setting.
    """
    key = repr((family_name(job.label), job.task, job.family, job.setting, job.model, job.mixer, job.training))
    if key not in _SETTING_CHANGES:
        _SETTING_CHANGES[key] = " ".join(_setting_change(job))
    return _SETTING_CHANGES[key]


def _setting_change(job: Job) -> list[str]:
    suite = suites().get(job.suite)
    if suite is None or reading_problem(job.label) or job.task in broken_tasks() or job.task not in suite.tasks():
        return [f"{key}={value}" for key, value in job.setting.items()]
    return suite.job_setting(job)
