"""The published fidelity equals the rules of the reference implementation, each written out independently.

Rules: initial weights, norms, sinusoids, decay of every parameter, batches of an evaluation, choice of the epoch.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from madbench.mixers import Traits
from madbench.mixers.traits import attach
from madbench.models.blocks import Backbone, sinusoids
from madbench.models.mad import MadModel, imitate_reference
from madbench.models.shapes import ModelConfig
from madbench.suites import epoch_trial, token_trial
from madbench.suites.mad.suite import MAD
from madbench.training.optimizer import make_optimizer, parameter_groups

build = token_trial.TokenTrial.build


@pytest.fixture
def wide(make_job):
    """``wide(task, fidelity)``: a job of width 128, with enough weights to measure their spread."""
    return lambda task, fidelity: replace(
        make_job(label="G-cg-q-12o", task=task, fidelity=fidelity), model=ModelConfig(d_model=128)
    )


def test_published_weight_decay_shrinks_every_parameter_and_corrected_only_some(make_job):
    job = make_job(label="G-cg-q-12o", fidelity="published", weight_decay=0.5, learning_rate=0.1)
    for fidelity, all_shrink in (("published", True), ("corrected", False)):
        model = build(job)
        for parameter in model.parameters():
            nn.init.ones_(parameter)
            parameter.grad = torch.zeros_like(parameter)
        make_optimizer(model, job.training, fidelity).step()
        shrunk = [bool((parameter == 1 - 0.1 * 0.5).all()) for parameter in model.parameters()]
        assert any(shrunk) and all(shrunk) == all_shrink
        assert all(row["decays"] for row in parameter_groups(model, fidelity)) == all_shrink


def test_linear_maps_of_the_token_model_start_uniform_within_one_over_the_root_of_their_inputs(wide):
    linear = {name: m for name, m in build(wide("memorization", "published")).named_modules() if type(m) is nn.Linear}
    assert {"head", "backbone.layers.0.q", "backbone.layers.0.mix1.gate", "backbone.layers.3.down"} <= set(linear)
    for name, layer in linear.items():
        bound, weight = layer.in_features**-0.5, layer.weight
        assert weight.abs().max() <= bound * (1 + 1e-6), name
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=4 / weight.numel() ** 0.5), name
        assert layer.bias is None or (layer.bias == 0).all()
    assert linear["head"].weight.std().item() == pytest.approx(0.051, abs=0.003)


@pytest.mark.parametrize(
    ("task", "fidelity"), [("compression", "published"), ("compression", "corrected"), ("memorization", "corrected")]
)
def test_linear_maps_start_normal_in_the_autoencoder_and_in_the_corrected_fidelity(task, fidelity, wide):
    for name, layer in build(wide(task, fidelity)).named_modules():
        if isinstance(layer, (nn.Linear, nn.Embedding)):
            error = 4 * 0.02 / (2 * layer.weight.numel()) ** 0.5
            assert layer.weight.std().item() == pytest.approx(0.02, abs=error), name
            assert (layer.weight.abs() > 0.02 * 3**0.5).any(), "not uniform"


EVERY_LETTER = ("S-p", "S-pcgka-v", "R-cg-q-12", "G-pcgka-q-12o", "D-pcgka-q", "D-ka-q", "R-a-v")
EVERY_FAMILY = (
    "cd:exp-sum-p", "cd:id-ss-cg", "cd:id-smhk1-bwn-cug", "cd:id-dm-bd-g", "cd:id-dg-o", "cd:mlstm-c",
    "cd:id-hz1-bi-wx", "hfa:2w-p-q", "hfa:L3", "hfa:C1", "ha:3us-p-q", "ha:L3", "ha:C3",
)  # fmt: skip
FIXED_VALUES = ("v_up.weight", "o_up.weight")  # zero, so that adapters add nothing at first


@pytest.mark.parametrize("label", EVERY_LETTER + EVERY_FAMILY)
def test_initial_values_that_an_operator_fixes_are_equal_in_both_fidelities(label, make_job):
    """The fixed values are adapters at zero, D's lambdas, registers, taps, A, B, p, gains, and the biases and rates
    of gates."""
    ours, theirs = (
        build(replace(make_job(label=label, fidelity=one, task="memorization"), budget="paper"))
        for one in ("corrected", "published")
    )
    linear = {f"{name}.weight" for name, module in ours.named_modules() if isinstance(module, nn.Linear)}
    fixed = {name for name in linear if name.endswith(FIXED_VALUES)}
    assert bool(fixed) == ("a" in label and ":" not in label)
    for name, parameter in theirs.named_parameters():
        is_drawn_anew = name in linear - fixed
        assert torch.equal(parameter, ours.get_parameter(name)) != is_drawn_anew, name
        assert name not in fixed or not parameter.any(), name
        if is_drawn_anew:
            assert parameter.abs().max() <= parameter.shape[1] ** -0.5 * (1 + 1e-6), name


def test_adapters_add_nothing_before_the_first_step_in_either_fidelity(make_job):
    for fidelity in ("corrected", "published"):
        mixer = build(make_job(label="S-pcgka-v", fidelity=fidelity)).backbone.layers[0]
        x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
        expected = mixer(x)
        nn.init.normal_(mixer.v_down.weight, std=9.0), nn.init.normal_(mixer.o_down.weight, std=9.0)
        assert torch.equal(mixer(x), expected)


@pytest.mark.parametrize("kept", ["gate", "gate.weight"])
def test_keeps_init_names_a_module_or_a_parameter(kept):
    """Names are those of :meth:`torch.nn.Module.named_parameters` or prefixes of them."""
    mixer = nn.Sequential()
    mixer.gate, mixer.out = nn.Linear(8, 8), nn.Linear(8, 8)
    nn.init.zeros_(mixer.gate.weight), nn.init.zeros_(mixer.out.weight)
    model = MadModel(Backbone(5, 8, 1, lambda: attach(mixer, Traits(keeps_init=(kept,)), "mine:x")))
    imitate_reference(model)
    assert not mixer.gate.weight.any() and mixer.out.weight.any()


@pytest.mark.parametrize("label", ["S", "D-pcgk-q", "R-cg-q-12o", "cd:id-ss-cg", "S-pcgka-v"])
@pytest.mark.parametrize("fidelity", ["corrected", "published"])
def test_the_identity_of_a_family_is_the_same_for_all_tasks_and_fidelities(label, fidelity):
    profile = MAD.Profile.load("quick")
    jobs = MAD.jobs([label], profile, tasks=["memorization", "compression"], fidelity=fidelity)
    assert [job.family for job in jobs] == ["1", "1"]


def test_only_linear_maps_start_differently_in_the_two_fidelities(wide):
    ours, theirs = (build(wide("memorization", fidelity)) for fidelity in ("corrected", "published"))
    linear = {f"{name}.weight" for name, module in ours.named_modules() if isinstance(module, nn.Linear)}
    for name, parameter in theirs.named_parameters():
        assert torch.equal(parameter, ours.get_parameter(name)) == (name not in linear), name


@pytest.mark.parametrize(("fidelity", "eps"), [("corrected", 1e-6), ("published", 1e-5)])
def test_norms_use_the_epsilon_of_the_fidelity(fidelity, eps, make_job):
    for task in ("memorization", "compression"):
        norms = [m for m in build(make_job(task=task, fidelity=fidelity)).modules() if isinstance(m, nn.RMSNorm)]
        assert len(norms) >= 5
        x = 1e-3 * torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
        for norm in norms:
            torch.testing.assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + eps).sqrt())


@pytest.mark.parametrize("width", [2, 3, 8, 9, 128])
def test_published_sinusoids_fall_to_one_over_ten_thousand_and_an_odd_width_ends_in_zero(width):
    half, table = width // 2, sinusoids(40, width, "published")
    assert table.shape == (40, width) and table.dtype == torch.float32
    for t in (0, 1, 7, 39):
        angles = [t * math.exp(-math.log(10000) * i / max(half - 1, 1)) for i in range(half)]
        row = [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (width % 2)
        assert table[t].tolist() == pytest.approx(row, abs=1e-6)


def test_the_autoencoder_has_the_sinusoids_of_its_fidelity(make_job):
    for fidelity in ("corrected", "published"):
        positions = build(make_job(task="compression", fidelity=fidelity)).positions
        assert torch.equal(positions, sinusoids(16, 16, fidelity))
    assert not torch.equal(positions, sinusoids(16, 16))


def reference_run(job):
    """The perplexity and the accuracy of every epoch of a job trained by the rules of the reference.

    The optimizer is AdamW over all parameters at a constant rate. Per batch, accuracy is averaged over the classes that
    occur as a target or a prediction, and perplexity is exp of the mean loss. Both are averaged over batches by
    examples. An accuracy above 0.999 ends the run.
    """
    model, data, config = build(job), token_trial.load_data(job, "cpu"), job.training
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    judge = nn.CrossEntropyLoss(ignore_index=-100)
    epochs = []
    for epoch in range(config.epochs):
        order = torch.from_numpy(epoch_trial.epoch_order(job, epoch, len(data["train"][0])))
        for chosen in order.split(config.batch_size):
            inputs, targets = (tensor[chosen] for tensor in data["train"])
            optimizer.zero_grad()
            judge(model(inputs).flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
        accuracy = perplexity = 0.0
        inputs, targets = data["test"]
        for start in range(0, len(inputs), config.batch_size):
            end = min(start + config.batch_size, len(inputs))
            with torch.no_grad():
                logits, answers = model(inputs[start:end]).flatten(0, 1), targets[start:end].flatten()
            share = (end - start) / len(inputs)
            perplexity += share * math.exp(judge(logits, answers))
            pairs = [(a, p) for a, p in zip(answers.tolist(), logits.argmax(-1).tolist()) if a != -100]
            recalls = []
            for cls in {cls for pair in pairs for cls in pair}:
                hits = [answer == predicted for answer, predicted in pairs if answer == cls]
                recalls.append(sum(hits) / max(1, len(hits)))
            accuracy += share * sum(recalls) / len(recalls)
        epochs.append((perplexity, accuracy))
        if accuracy > 0.999:
            break
    return zip(*epochs)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["in_context_recall", "compression", "memorization"])
def test_a_published_run_equals_a_loop_with_the_rules_of_the_reference(task, make_job, train):
    """24 test examples in batches of 16 and 8. The decay is large enough to matter."""
    job = make_job(task=task, label="S-p", fidelity="published", weight_decay=1.0, learning_rate=1e-2, epochs=12)
    record = train(job)
    perplexities, accuracies = reference_run(job)
    assert [row["test_batch_perplexity"] for row in record.curve] == pytest.approx(perplexities, rel=1e-3)
    best = min(record.curve, key=lambda row: row["test_batch_perplexity"])
    assert record.metrics["test_batch_perplexity"] == best["test_batch_perplexity"]
    assert record.metrics["accuracy"] == pytest.approx(accuracies[best["epoch"] - 1], abs=0.02)
