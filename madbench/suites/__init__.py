"""Suites: the ways to train and judge a label. Imports neither torch nor pandas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from madbench.config import from_mapping
from madbench.errors import ConfigError, did_you_mean
from madbench.jobs import Job
from madbench.suites.base import Column, Size, Suite
from madbench.suites.interactions import INTERACTIONS
from madbench.suites.language import LANGUAGE
from madbench.suites.mad import MAD

SUITES: dict[str, Suite] = {suite.name: suite for suite in (MAD, LANGUAGE, INTERACTIONS)}
"""Every suite by name, in the order of their tables."""

__all__ = ["INTERACTIONS", "LANGUAGE", "MAD", "SUITES", "Column", "Suite", "job_from_dict", "size_of", "suite_of"]


def suite_of(job: Job) -> Suite:
    """The suite that trains the job."""
    return SUITES[job.suite]


def size_of(job: Job) -> Size:
    """What training the job takes, worked out once for those that differ in seed, learning rate and decay alone."""
    key = repr(replace(job, training=replace(job.training, learning_rate=0.0, weight_decay=0.0), seed=0))
    if key not in _SIZES:
        _SIZES[key] = suite_of(job).size(job)
    return _SIZES[key]


_SIZES: dict[str, Size] = {}


def job_from_dict(mapping: Mapping[str, Any], where: str = "job") -> Job:
    """The job that :meth:`Job.to_dict` made ``mapping`` of; ``ConfigError``, opened by ``where``, for any other."""
    name = str(mapping.get("suite"))
    if name not in SUITES:
        raise ConfigError(f"{where}: unknown suite {name!r}{did_you_mean(name, SUITES)}")
    configs = {"model": SUITES[name].Profile.Model, "training": SUITES[name].Profile.Training}
    made = {
        key: from_mapping(configs[key], value, f"{where}: {key}") if key in configs else value
        for key, value in mapping.items()
    }
    return from_mapping(Job, made, where)
