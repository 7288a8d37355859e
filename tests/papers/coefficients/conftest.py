"""A model of the paper with large weights."""

from __future__ import annotations

import pytest

from madbench.experiment import ExperimentOptions, prepare
from madbench.papers.coefficients import QUICK, Study
from madbench.papers.coefficients.measure import rows_of
from madbench.rows import Grid
from madbench.suites import suite_of


@pytest.fixture
def trained(tmp_path):
    """``trained(label)``: the weights of a model of the quick profile and its job.

    The weights are large enough to matter.
    """
    import torch

    from madbench.training.checkpoints import save_weights

    def call(label):
        study = Study((label,), ("selective_copying",))
        grid = Grid(rows_of(study), profile=QUICK, tasks=study.tasks, budget="paper")
        [job] = prepare(grid, ExperimentOptions(device="cpu", results=tmp_path)).jobs
        model = suite_of(job).Trial.build(job)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.6, generator=generator)
        save_weights(tmp_path / "weights.safetensors", model, job)
        return tmp_path / "weights.safetensors", model, job

    return call
