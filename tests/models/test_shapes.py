"""The shapes of models around their mixers, and their costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from madbench.mixers.sequence import solve_blocks
from madbench.models.shapes import Cost, GPTConfig, ModelConfig
from madbench.suites import suites


def test_every_suite_has_the_cost_of_its_model_beside_the_model():
    for suite in suites().values():
        assert callable(getattr(suite.Profile.Model, "cost", None)), suite.name


def test_a_cost_counts_the_matrices_of_a_model_by_hand():
    mixers = solve_blocks("S", 3, 32, 2, 16)
    model = GPTConfig(d_model=32, n_layer=3, n_head=2, seq_len=16, positions="learned", output="untied")
    weights = 3 * 2 * 32 * 128
    parameters = mixers.total + weights + 3 * 2 * 32 + (2 * 50 + 16) * 32 + 32
    assert model.cost(mixers, 50) == Cost(parameters, mixers.flops_per_token(16) + 2 * weights + 2 * 32 * 50)


def test_an_autoencoder_costs_its_decoder_more_than_the_token_model():
    model, mixers = ModelConfig(d_model=32, n_layer=3), solve_blocks("S", 3, 32, 2, 16)
    one, two = (model.cost(mixers, 16, 50, is_autoencoder=decodes) for decodes in (False, True))
    assert two.parameters - one.parameters == 2 * (32 + 33 * 32)  # two norms and two linear maps with biases
    assert two.flops_per_token - one.flops_per_token == 2 * 2 * 32 * 32


@pytest.mark.slow
def test_planning_and_counting_jobs_import_no_torch():
    code = """
import sys
from madbench.suites import size_of, suites
for suite in suites().values():
    if suite.name != "language":
        jobs = suite.plan(["hfa:C1"], suite.Profile.load(suite.default), tasks=suite.tasks()[:1]).jobs
        assert size_of(jobs[0]).parameters and suite.canonical(jobs[0]).id
print("torch" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "False", ended.stderr
