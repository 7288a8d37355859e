"""Training steps on torch's meta device, which stands for a GPU: reading a number of a tensor, or mixing two
devices, raises an error."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from madbench.suites import trial
from madbench.training import member, optimizer, stack
from madbench.training.graphs import GraphStep
from madbench.training.member import GroupMember
from madbench.training.stack import Stack
from madbench.training.step import PlainStep

LABELS = ("S-p", "D-c", "G-cg-q-12o", "S-pcgka-v", "cd:gla", "cd:id-sm-bd-cg", "hfa:2w-p-q", "ha:3us-p-q")


class Still(torch.optim.AdamW):
    """AdamW without its steps, whose fused kernels the meta device lacks."""

    def __init__(self, groups, fused=False, capturable=False, **how):
        super().__init__(groups, **how)

    def step(self):
        pass


@pytest.fixture(autouse=True)
def meta(monkeypatch):
    """Treat the device ``meta`` as one that can train."""
    for module in (optimizer, stack):
        monkeypatch.setattr(module, "AdamW", Still)
    monkeypatch.setattr(trial, "autocast", lambda device, precision: nullcontext())
    monkeypatch.setattr(member, "device_name", lambda device: device)


@pytest.fixture
def take_steps(tmp_path):
    """``take_steps(make_step, *jobs, **how)``: take two steps of the members."""

    def take(make_step, *jobs, **how):
        members = [GroupMember(job, tmp_path, lambda progress: None, "meta", **how) for job in jobs]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "equal", lambda one, other: True)  # a stack compares its members' buffers once
            step = make_step(members)
        for _ in range(2):
            losses, _ = step([one.rate for one in members])
            for one, loss in zip(members, losses, strict=True):
                assert loss.is_meta
                one.count_step(loss)
        assert all(parameter.is_meta for one in members for parameter in one.trial.model.parameters())

    return take


def plain(members):
    return PlainStep(members[0])


def graphed(members):
    return GraphStep(Stack(members))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_step, label, task",
    [
        *((plain, label, "in_context_recall") for label in LABELS),
        (plain, "S-p", "compression"),
        *((graphed, label, "compression") for label in ("S-p", "cd:id-sm-bd-cg")),
        (graphed, "ha:3us-p-q", "in_context_recall"),
    ],
)
def test_a_step_neither_mixes_devices_nor_waits_for_one(make_step, label, task, make_job, take_steps):
    take_steps(make_step, make_job(task, label), micro_batch=6)


@pytest.mark.slow
@pytest.mark.parametrize("make_step, label", [(Stack, "cd:id-sm-bd-cg"), (graphed, "G-cg-q-12o")])
def test_jobs_that_share_a_step_neither_mix_devices_nor_wait(label, make_step, make_job, take_steps):
    take_steps(make_step, *(make_job(label=label, seed=seed) for seed in range(3)))


@pytest.mark.slow
@pytest.mark.parametrize("make_step, positions", [(plain, "none"), (graphed, "learned")])
def test_a_language_model_neither_mixes_devices_nor_waits(positions, make_step, tiny, corpus, take_steps):
    job = tiny.make_job(corpus, positions=positions, grad_clip=0.5)
    take_steps(make_step, job, corpora={corpus.digest: corpus}, micro_batch=3)


def test_reading_a_number_on_the_meta_device_raises():
    with pytest.raises(RuntimeError, match="meta"):
        torch.zeros((), device="meta").item()
