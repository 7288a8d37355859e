"""The task setting of a job as text: the nearest setting that has a name, and the fields that differ from it."""

from __future__ import annotations

import math

from madbench.jobs import Job
from madbench.labels import family_name, reading_problem
from madbench.suites import suites
from madbench.suites.base import Suite
from madbench.suites.tokens import TokenProfile
from madbench.tasks import broken_tasks

_SETTING_CHANGES: dict[str, str] = {}


def setting_change(job: Job) -> str:
    """The task setting of a job as text: the nearest setting that has a name, then the overrides that lead to the job.

    In ``baseline vocab_size=32``, the nearest setting is the task's baseline, and the job's vocabulary differs from it.
    For a language model, the text begins with the name of the nearest shipped profile. If the suite, the label or the
    task is broken or not installed, the text has all fields of the setting.
    """
    key = repr((family_name(job.label), job.task, job.family, job.setting, job.model, job.mixer, job.training))
    if key not in _SETTING_CHANGES:
        _SETTING_CHANGES[key] = " ".join(_setting_change(job))
    return _SETTING_CHANGES[key]


def _setting_change(job: Job) -> list[str]:
    suite = suites().get(job.suite)
    if suite is None or reading_problem(job.label) or job.task in broken_tasks() or job.task not in suite.tasks():
        return [f"{key}={value}" for key, value in job.setting.items()]
    name, *changes = suite.job_setting(job)
    return [_nearest_of_equal_settings(suite, job, name), *changes]


def _nearest_of_equal_settings(suite: Suite, job: Job, name: str) -> str:
    """The name of the shipped profile nearest to a job, if it and the profile ``name`` agree on the job's task.

    Profiles agree on a task if they have equal settings of the task. If they differ, or if one of the two is not a
    profile of token tasks, the result is ``name``.
    """
    nearest, _ = suite.nearest(job, most_changes=math.inf)
    profiles = [suite.shipped().get(profile_name) for profile_name in (name, nearest)]
    settings = [profile.settings(job.task) for profile in profiles if isinstance(profile, TokenProfile)]
    return nearest if len(settings) == 2 and settings[0] == settings[1] else name
