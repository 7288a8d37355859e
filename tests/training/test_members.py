"""Members of a group, and resumed runs, take the steps of single uninterrupted runs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from madbench.suites import suite_of
from madbench.suites.language.trial import Batches, Evaluation
from madbench.training.member import GroupMember
from madbench.training.stack import Stack
from madbench.training.step import PlainStep


@pytest.fixture
def member(tiny, corpus, tmp_path):
    """``member(seed, name, **training)``: a language job in a work folder of this name, with weight decay and clip."""

    def make(seed, name, **training):
        job = tiny.make_job(corpus, seed=seed, **{"weight_decay": 5.0, "grad_clip": 0.05} | training)
        job = dataclasses.replace(job, model=dataclasses.replace(job.model, n_layer=1))
        (tmp_path / name).mkdir(exist_ok=True)
        return GroupMember(job, tmp_path / name, lambda progress: None, corpora={corpus.digest: corpus})

    return make


def take(step, members, rates):
    """Take the next step of all members."""
    losses, _ = step(rates)
    for each, loss in zip(members, losses, strict=True):
        each.count_step(loss)


def weights(member):
    return torch.cat([parameter.detach().flatten() for parameter in member.trial.model.parameters()])


def test_each_member_of_a_group_has_its_own_data_clip_rate_and_decay(member):
    settings, rates = [{}, {"weight_decay": 20.0}], [1e-2, 2e-2]
    alone = [member(seed, f"alone{seed}", **each) for seed, each in enumerate(settings)]
    group = [member(seed, f"group{seed}", **each) for seed, each in enumerate(settings)]
    for seed, each in enumerate((*alone, *group)):
        with torch.no_grad():
            for name, parameter in each.trial.model.named_parameters():
                if name.endswith(".p"):
                    parameter.fill_(1)  # which decay would change
            each.trial.model.embedding.weight *= 1 + 4 * (seed % 2)  # and with it the gradients
    steps, stack = [PlainStep(each) for each in alone], Stack(group)
    for _ in range(2):
        for step, each, rate in zip(steps, alone, rates):
            take(step, [each], [rate])
        take(stack, group, rates)
    assert stack.gradients.norm(dim=1).tolist() == pytest.approx([0.05, 0.05], rel=1e-3)
    for one, same in zip(alone, group):
        torch.testing.assert_close(weights(same), weights(one), rtol=1e-4, atol=1e-5)


def test_a_resumed_run_takes_the_steps_of_one_that_was_not_interrupted(member):
    whole, begun = member(0, "whole"), member(0, "begun")
    for each in (whole, begun):
        take(PlainStep(each), [each], [1e-2])
    begun.save(0.0)
    resumed = member(0, "begun")
    assert resumed.state.step == 1
    for each in (whole, resumed):
        take(PlainStep(each), [each], [1e-2])
    assert torch.equal(weights(resumed), weights(whole))
    assert float(resumed.state.loss_sum) == float(whole.state.loss_sum)


def test_bits_per_byte_divide_by_the_bytes_of_the_targets(tiny, corpus, monkeypatch):
    ids = corpus.tokens("val")
    token_bytes = np.arange(corpus.padded_vocab_size)  # no two tokens alike
    monkeypatch.setattr(type(corpus), "token_bytes", lambda self: token_bytes)
    job = tiny.make_job(corpus)
    evaluation = Evaluation(Batches(corpus, 16, "cpu"), job.training, torch.autocast("cpu", enabled=False))
    expected = sum(int(ids[start + 1 : start + 17].sum()) for start in evaluation.validation_starts)
    assert evaluation.validation_bytes == expected
    model = suite_of(job).Trial.build(job)
    for weight in model.parameters():
        weight.data.zero_()  # then all tokens are equally likely
    bits = evaluation.validation(model)["validation_bits_per_byte"]
    of_token = math.log2(job.setting["vocab_size"])
    assert bits == pytest.approx(of_token * len(evaluation.validation_starts) * 16 / expected)
