"""The model, the optimizer and the parameter groups of a language job."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import sample_jobs
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.suites.language.trial import LanguageTrial
from madbench.training.optimizer import AdamW, decaying_parameters, make_optimizer, parameter_groups
from sample_jobs import language_job

MODEL = GPTConfig(d_model=32, n_layer=2, seq_len=16)
TRAINING = LanguageTraining(tokens_per_step=64, steps=500)
JOB = language_job("G-cg-q-12o", "0" * 16, 64, model=MODEL, mixer={"mix_rank": 2}, training=TRAINING, budget="paper")


def test_the_seed_alone_decides_the_initial_weights_and_random_state_is_left_alone():
    state = torch.get_rng_state()
    first, again, other = LanguageTrial.build(JOB), LanguageTrial.build(JOB), LanguageTrial.build(replace(JOB, seed=1))
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_the_model_has_the_shape_of_the_job():
    job = replace(JOB, label="S", model=replace(MODEL, n_head=4, positions="learned"))
    model = LanguageTrial.build(job)
    assert model.embedding.weight.shape == (64, 32) and model.positions.weight.shape == (16, 32)
    assert len(model.blocks) == 2
    allocation = LanguageTrial.build(JOB).blocks[1].mixer.allocation
    assert (model.blocks[0].mixer.n_head, allocation.size.max_len, allocation.ranks["mix"]) == (4, 16, 2)
    assert allocation.size.budget == "paper"


def test_linear_maps_decay_and_biases_gains_and_diagonals_do_not():
    model = LanguageTrial.build(replace(JOB, model=replace(MODEL, positions="learned")))
    optimizer = make_optimizer(model, replace(JOB.training, weight_decay=0.3, learning_rate=2e-3, beta1=0.8, beta2=0.9))
    decaying_parameters, kept = optimizer.param_groups
    assert (decaying_parameters["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    for group in (decaying_parameters, kept):
        assert group["lr"] == 2e-3 and group["betas"] == (0.8, 0.9)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    without = {names[id(parameter)] for parameter in kept["params"]}
    assert {names[id(parameter)] for parameter in decaying_parameters["params"]} == set(names.values()) - without
    mixer = {"qk_gate.bias", "vo_gate.bias", "mix1.p", "mix2.p", "mix1.gate.bias", "mix2.gate.bias"}
    block = {f"mixer.{name}" for name in mixer} | {"mixer_norm.weight", "mlp_norm.weight"}
    assert without == {f"blocks.{n}.{name}" for n in (0, 1) for name in block} | {"norm.weight"}


@pytest.mark.parametrize("label", ["S-1!", "R-2!", "D-12!", "G-cg-q-12o"])
def test_no_diagonal_decays_whatever_the_label_mixes(label):
    named = dict(LanguageTrial.build(replace(JOB, label=label)).named_parameters())
    diagonals = {name for name in named if name.endswith(".p")}
    assert len(diagonals) == 2 * sum(digit in label for digit in "12")
    assert not diagonals & decaying_parameters(LanguageTrial.build(replace(JOB, label=label)))


@pytest.mark.parametrize("label", ["S", "R-c", "G-cg-q-12o"])
def test_every_parameter_is_in_one_group_and_counted_once(label):
    model = LanguageTrial.build(replace(JOB, label=label))
    rows = parameter_groups(model)
    assert sum(row["parameters"] for row in rows) == sum(p.numel() for p in model.parameters())
    assert sum(row["tensors"] for row in rows) == len(list(model.parameters()))
    keys = [(row["group"], row["decays"]) for row in rows]
    assert len(set(keys)) == len(keys)


def test_groups_have_the_parameters_of_the_budgets_terms():
    model = LanguageTrial.build(replace(JOB, model=replace(MODEL, positions="learned")))
    terms = model.blocks[0].mixer.allocation.terms
    sizes = {}
    for row in parameter_groups(model):
        sizes[row["group"]] = sizes.get(row["group"], 0) + row["parameters"]
    assert sizes == {
        "embedding": 64 * 32,
        "positions": 16 * 32,
        "norms": 5 * 32,
        "mlp": 2 * 8 * 32**2,
        "mixer projections": 2 * (terms["qk"] + terms["vo"]),
        "mixer conv": 2 * terms["conv"],
        "mixer gates": 2 * (terms["qk_gate"] + terms["vo_gate"]),
        "mixing gates": 2 * (terms["mix1"] + terms["mix2"]),
        "mixing tables": 2 * (terms["mix1_tables"] + terms["mix2_tables"]),
    }


def test_adamw_gives_the_bits_and_the_state_of_torchs_adamw():
    def trained(kind):
        torch.manual_seed(0)
        weights = [torch.randn(5, 3, requires_grad=True), torch.randn(4, requires_grad=True)]
        optimizer = kind([{"params": weights[:1], "weight_decay": 0.1}, {"params": weights[1:]}], lr=0.01, fused=True)
        for _ in range(3):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            optimizer.step()
        copy = kind(optimizer.param_groups, fused=True)
        copy.load_state_dict(optimizer.state_dict())
        moments = [moment for state in copy.state_dict()["state"].values() for moment in state.values()]
        return [*weights, *moments], optimizer.state_dict()["param_groups"]

    (ours, our_groups), (torchs, torchs_groups) = trained(AdamW), trained(torch.optim.AdamW)
    assert len(ours) == 8 and all(map(torch.equal, ours, torchs)) and our_groups == torchs_groups


TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from madbench.models.shapes import ModelConfig
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job, train_job
sizes = dict(seq_len=16, num_train_examples=32, num_validation_examples=16, num_test_examples=16)
job = mad_job("S", setting=sizes, model=ModelConfig(d_model=16), training=TrainingConfig(epochs=1, batch_size=16))
assert train_job(job, Path(sys.argv[2]), print).status == "finished"
print(*sorted({"torch", "torch._dynamo", "triton"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_training_imports_neither_torchs_compiler_nor_triton(tmp_path):
    """Each of them takes a good part of the processor time of a short command."""
    words = [sys.executable, "-c", TRAIN, str(Path(sample_jobs.__file__).parent), str(tmp_path)]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1] == "torch"
