"""Muon for the matrices of the blocks and AdamW for the rest: assignment, one step, a whole run, and limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from madbench.config import Override
from madbench.errors import TrainingError
from madbench.jobs import StopTraining
from madbench.suites import size_of
from madbench.suites.mad.suite import MAD
from madbench.suites.protocol import by_protocol
from madbench.suites.token_trial import TokenTrial
from madbench.suites.tokens import TrainingConfig
from madbench.training import loop
from madbench.training.checkpoints import NAME
from madbench.training.cost import peak_memory_bytes
from madbench.training.optimizer import make_optimizer, muon_parameters
from madbench.training.options import LoopOptions

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix):
    """The result of five Newton-Schulz steps of Jordan et al. (2024) in float64."""
    a, b, c = COEFFICIENTS
    x = matrix.double() / matrix.double().norm()
    for _ in range(5):
        gram = x @ x.mT if x.shape[0] <= x.shape[1] else x.mT @ x
        polynomial = b * gram + c * gram @ gram
        x = a * x + (polynomial @ x if x.shape[0] <= x.shape[1] else x @ polynomial)
    return x


@pytest.mark.parametrize("label", ["S-pc", "G-cg-q-12o", "cd:gdn"])
def test_muon_trains_the_linear_maps_of_the_blocks_and_adamw_the_other_parameters(label, make_job):
    model = TokenTrial.build(make_job(label=label))
    parameters = dict(model.named_parameters())
    matrices = muon_parameters(model)
    mlp = {f"backbone.layers.{layer}.{name}.weight" for layer in (1, 3) for name in ("gate", "up", "down")}
    assert mlp < matrices
    assert all(parameters[name].ndim == 2 and "conv" not in name for name in matrices)
    assert not matrices & {"backbone.embedding.weight", "head.weight", "head.bias"}
    linear = {name for name, each in model.backbone.layers.named_modules() if isinstance(each, nn.Linear)}
    assert matrices == {f"backbone.layers.{name}.weight" for name in linear}


def test_a_step_is_momentum_newton_schulz_and_decay_and_adamw_steps_the_rest(make_job):
    torch.manual_seed(0)
    model, config = TokenTrial.build(make_job(label="G-cg-q-12o")), TrainingConfig(optimizer="muon", weight_decay=0.3)
    rest = {name: each for name, each in model.named_parameters() if name not in muon_parameters(model)}
    other = nn.ParameterDict({name.replace(".", "-"): each.detach().clone() for name, each in rest.items()})
    optimizer = make_optimizer(model, config)
    wanted = {name: model.get_parameter(name).detach().double() for name in muon_parameters(model)}
    moments = {name: torch.zeros_like(each) for name, each in wanted.items()}
    adamw = make_optimizer(model, replace(config, optimizer="adamw"))
    decaying = {id(each) for each in adamw.param_groups[0]["params"]}
    groups = [
        {"params": [other[name.replace(".", "-")] for name in rest if (id(rest[name]) in decaying) is kind]} | own
        for kind, own in ((True, {"weight_decay": 0.3}), (False, {"weight_decay": 0.0}))
    ]
    adamw = torch.optim.AdamW(groups, lr=0.01, betas=config.betas, fused=True)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    for _ in range(3):
        for each in model.parameters():
            each.grad = torch.randn_like(each)
        for name, each in rest.items():
            other[name.replace(".", "-")].grad = each.grad.clone()
        for name, weight in wanted.items():
            gradient = model.get_parameter(name).grad.double()
            moments[name] = 0.95 * moments[name] + 0.05 * gradient
            update = orthogonalize(0.95 * moments[name] + 0.05 * gradient)
            wanted[name] = weight * (1 - 0.01 * 0.3) - 0.01 * 0.2 * max(weight.shape) ** 0.5 * update
        optimizer.step()
        adamw.step()
    for name, weight in wanted.items():  # torch iterates in bfloat16
        assert (model.get_parameter(name) - weight).norm() < 0.02 * 3 * 0.01 * 0.2 * weight.numel() ** 0.5, name
    for name, each in rest.items():
        assert torch.equal(each, other[name.replace(".", "-")]), name


def test_the_default_optimizer_is_in_no_job_id_and_no_record(make_job):
    job = make_job()
    assert make_job(optimizer="adamw").id == job.id != make_job(optimizer="muon").id
    assert "optimizer" not in job.to_dict()["training"]
    assert make_job(optimizer="muon").to_dict()["training"]["optimizer"] == "muon"


def test_a_profile_with_another_optimizer_differs_from_the_shipped_one(tmp_path):
    (tmp_path / "own.yaml").write_text("like: quick\ntraining: {optimizer: muon}\n")
    profile = MAD.Profile.load(str(tmp_path / "own.yaml"))
    (job,) = MAD.jobs(["S"], profile, tasks=("compression",))
    assert job.training.optimizer == "muon" and MAD.nearest(job) == (
        "quick",
        (Override.of("training.optimizer", "muon"),),
    )
    assert profile.trains_job(job) and not MAD.Profile.load("quick").trains_job(job)


def test_no_table_mixes_two_optimizers(make_job):
    jobs = [make_job(label=label, optimizer=name) for label in ("S", "R-c") for name in ("adamw", "muon")]
    groups = by_protocol(MAD, jobs, lambda job: job)
    assert [{job.training.optimizer for job in group} for group in groups.values()] in (
        [{"adamw"}, {"muon"}],
        [{"muon"}, {"adamw"}],
    )


@pytest.mark.slow
def test_muon_has_one_moment_per_parameter(make_job):
    job = make_job(optimizer="muon")
    with torch.device("meta"):
        model = TokenTrial.build(job)
    matrices = sum(model.get_parameter(name).numel() for name in muon_parameters(model))
    adamw = replace(job, training=replace(job.training, optimizer="adamw"))
    assert peak_memory_bytes(adamw, 4) - peak_memory_bytes(job, 4) == 4 * matrices
    assert size_of(job) == size_of(adamw)


def test_an_old_torch_is_refused_and_so_is_a_model_without_matrices(make_job, monkeypatch):
    config = TrainingConfig(optimizer="muon")
    with pytest.raises(TrainingError, match="no block of the model has a matrix; use adamw"):
        make_optimizer(nn.Sequential(nn.LayerNorm(4)), config)
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(TrainingError, match=r"needs torch 2\.9 or later, this is"):
        make_optimizer(TokenTrial.build(make_job(label="S")), config)


@pytest.mark.slow
def test_a_run_lowers_the_loss_resumes_bit_for_bit_and_lists_the_parts(make_job, train, tmp_path, stop_at, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    job = make_job(label="R-cg-q-12o", task="memorization", optimizer="muon", weight_decay=0.1, epochs=20)
    expected = train(job)
    losses = [row["train_loss"] for row in expected.curve]
    assert losses[-1] < 0.8 * losses[0]
    listed = expected.details["optimizer"]
    model = TokenTrial.build(job)
    assert {*listed["muon"]} == muon_parameters(model)
    assert sorted([*listed["muon"], *listed["adamw"]]) == sorted(name for name, _ in model.named_parameters())
    report, record = stop_at(1, 4, 5, 40), None
    while record is None:
        try:
            record = train(job, report)
        except StopTraining:
            assert (tmp_path / NAME).exists()
    assert record.metrics == expected.metrics and record.curve == expected.curve


@pytest.mark.slow
def test_seeds_train_one_after_another_with_their_own_numbers_and_a_warning(make_job, train, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    jobs = [make_job(label="S", seed=seed, optimizer="muon", epochs=1) for seed in (0, 1)]
    works, reports = [tmp_path / "0", tmp_path / "1"], []
    for work in works:
        work.mkdir()
    together = loop.train(
        jobs, works, lambda _, progress: reports.append(progress), options=LoopOptions(stacking="always")
    )
    for job, record in zip(jobs, together):
        assert record.metrics == train(job).metrics
    assert any("2 jobs cannot train as one" in report.get("warning", "") for report in reports)
    assert any("muon updates the matrices of one job at a time" in report.get("warning", "") for report in reports)
