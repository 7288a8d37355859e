"""Jobs trained in one group, and one by one."""

from __future__ import annotations

import pytest

from madbench.training import loop
from sample_jobs import loop_arguments, train_job


@pytest.fixture
def folders(tmp_path):
    """``folders(jobs)``: a work folder for each job. Equal jobs get the same folder."""

    def make(jobs):
        works = [tmp_path / job.id for job in jobs]
        for work in works:
            work.mkdir(exist_ok=True)
        return works

    return make


@pytest.fixture
def together(folders):
    """``together(jobs, report)``: the records of jobs trained as one group."""

    def train(jobs, report=lambda job, progress: None, stacking="always", **how):
        return loop.train(jobs, folders(jobs), report, **loop_arguments(stacking=stacking, **how))

    return train


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """``alone(job)``: the record of a job trained alone, cached."""
    records = {}

    def train(job, **how):
        key = (job.id, *how.items())
        if key not in records:
            work = tmp_path_factory.mktemp("alone")
            records[key] = train_job(job, work, lambda progress: None, **how)
        return records[key]

    return train


@pytest.fixture
def three_jobs(make_job):
    """Three jobs that differ in every setting that may differ within a group."""
    different = [(0, 1e-3, 0.0), (1, 3e-3, 0.1), (2, 3e-4, 0.5)]
    return [
        make_job("in_context_recall", "S-q-1", seed, learning_rate=rate, weight_decay=decay, epochs=2)
        for seed, rate, decay in different
    ]
