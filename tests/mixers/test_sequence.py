"""The mixers of a model's blocks as a sequence, tested with a family whose blocks have different mixers."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from madbench.errors import BudgetError, FamilyError
from madbench.labels import parse, trust
from madbench.mixers import Layer, solve
from madbench.mixers.sequence import MixerSequence, block_labels, build_blocks, solve_blocks
from madbench.suites import size_of, suite_of
from sample_jobs import language_job, mad_job

FAMILY = '''
"""Labels of other families in turn over the blocks of a model: ``turn:S-p|R-c-q``."""
from dataclasses import dataclass

from madbench import mixers
from madbench.labels import family_identity, family_of, parse
from madbench.mixers import Explanation, Traits
from madbench.mixers.sequence import MixerSequence, solve_blocks
from madbench.mixers.srg.family import Settings


@dataclass(frozen=True)
class Label:
    parts: tuple

    def __str__(self):
        return "turn:" + "|".join(map(str, self.parts))


@dataclass(frozen=True)
class Period(MixerSequence):
    label: Label

    size = property(lambda self: self.blocks[0].size)
    ranks = property(lambda self: {f"{b.label} {name}": n for b in self.blocks for name, n in b.ranks.items()})
    terms = property(lambda self: {f"{b.label} {name}": n for b in self.blocks for name, n in b.terms.items()})


class Family(mixers.Family):
    name, version, Settings = "turn", "1", Settings

    def parse(self, text):
        return Label(tuple(map(parse, text.removeprefix("turn:").split("|"))))

    def blocks(self, label, count):
        return [label.parts[i % len(label.parts)] for i in range(count)]

    def traits(self, label):
        return Traits(settings=("mix_rank", "rank_multiple"))

    def factors(self, label):
        return {"parts": str(label)}

    def neighbors(self, label):
        return []

    def explain(self, label):
        return [row for part in label.parts for row in family_of(part).explain(part)]

    def solve(self, label, size, settings):
        own = {"mix_rank": settings.mix_rank, "rank_multiple": settings.rank_multiple}
        parts = len(label.parts), size.d_model, size.n_head, size.max_len, size.budget
        return Period(solve_blocks(label, *parts, **own).blocks, label)

    def build(self, allocation, settings, path="auto"):
        raise NotImplementedError

    def checks(self, label):
        return []


FAMILY = Family()
'''
PROJECT = """
[project]
name = "madbench-turn"
version = "1"

[project.entry-points."madbench.families"]
turn = "madbench_turn:FAMILY"
"""
LABEL = "turn:S-c|R-c-q-12o"
LAYERED = """
import torch
from torch import nn

class ByLayer(nn.Module):
    def __init__(self, d_model, layer_idx, n_layers):
        super().__init__()
        self.layer = layer_idx, n_layers
        self.out = nn.Linear(d_model, d_model * (1 + layer_idx))

    def forward(self, x):
        return self.out(x)[..., : x.shape[-1]]

class WithDefault(ByLayer):
    def __init__(self, d_model, layer_idx=7):
        super().__init__(d_model, layer_idx, None)
"""


@pytest.fixture
def turn(install_example, tmp_path):
    """The family ``turn`` as an installed package of one file."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "madbench_turn.py").write_text(FAMILY)
    install_example(tmp_path)


@pytest.fixture
def layered(tmp_path, monkeypatch):
    """The modules of ``LAYERED`` in the working folder."""
    (tmp_path / "layered.py").write_text(LAYERED)
    monkeypatch.chdir(tmp_path)
    trust.allow(["my:layered.ByLayer", "my:layered.WithDefault"])


def test_all_blocks_of_a_plain_label_share_one_allocation():
    sequence = solve_blocks("R-c-q-12o", 3, 32, 2, 16, mix_rank=2)
    one = solve("R-c-q-12o", 32, 2, 16, mix_rank=2)
    assert sequence.blocks == (one,) * 3 and sequence.kinds == [(one, 3)]
    assert (sequence.total, sequence.target, sequence.ratio) == (3 * one.total, 3 * one.target, one.ratio)
    assert sequence.flops_per_token(16) == 3 * one.flops_per_token(16)
    assert sequence.state_bytes_per_token(4) == 3 * one.state_bytes_per_token(4)
    assert sequence.state(9) == 3 * one.state(9) > 0
    assert sequence.ranks == one.ranks


def test_costs_of_different_mixers_are_sums_over_the_blocks(turn):
    assert list(map(str, block_labels(LABEL, 3))) == ["S-c", "R-c-q-12o", "S-c"]
    sequence = solve_blocks(LABEL, 3, 32, 2, 16, mix_rank=2)
    plain, mixing = solve("S-c", 32, 2, 16), solve("R-c-q-12o", 32, 2, 16, mix_rank=2)
    assert sequence.kinds == [(plain, 2), (mixing, 1)]
    assert sequence.total == 2 * plain.total + mixing.total
    assert sequence.ratio == sequence.total / (2 * plain.target + mixing.target)
    assert sequence.flops_per_token(9) == 2 * plain.flops_per_token(9) + mixing.flops_per_token(9)
    assert sequence.state(9) == 2 * plain.state(9) + mixing.state(9)
    assert sequence.ranks == [plain.ranks, mixing.ranks, plain.ranks]


@pytest.mark.slow
@pytest.mark.parametrize("make", [mad_job, language_job])
def test_the_size_of_a_job_and_its_record_count_every_block(turn, make):
    job = make(LABEL, mixer={"mix_rank": 2})
    job = dataclasses.replace(job, model=dataclasses.replace(job.model, d_model=32, n_layer=3))
    trial = suite_of(job).Trial
    model = trial.build(job)
    assert size_of(job).parameters == sum(parameter.numel() for parameter in model.parameters())
    mixers = [mixer for mixer in model.modules() if hasattr(mixer, "allocation")]
    assert [str(mixer.allocation.label) for mixer in mixers] == ["S-c", "R-c-q-12o", "S-c"]
    max_len = mixers[0].allocation.size.max_len
    solved = solve_blocks(LABEL, 3, 32, job.model.n_head, max_len, **job.mixer)
    assert MixerSequence.from_mixers(mixers) == solved


def test_a_family_that_names_too_few_block_labels_is_an_error(turn, monkeypatch):
    from madbench_turn import Family

    monkeypatch.setattr(Family, "blocks", lambda self, label, count: label.parts)
    with pytest.raises(FamilyError, match="family 'turn': blocks of '.*': 2 labels for 3 blocks"):
        block_labels(LABEL, 3)


@pytest.mark.slow
def test_a_module_that_requires_its_layer_index_is_built_and_counted_with_it(layered):
    label = parse("my:layered.ByLayer")
    made = list(build_blocks(label, 3, 8, 4, {}, {}))
    assert [mixer.module.layer for mixer in made] == [(0, 3), (1, 3), (2, 3)]
    sequence = solve_blocks(label, 3, 8, 2, 4)
    assert [block.size.layer for block in sequence.blocks] == [Layer(0, 3, 0), Layer(1, 3, 1), Layer(2, 3, 2)]
    assert sequence.total == sum(p.numel() for mixer in made for p in mixer.parameters()) == (1 + 2 + 3) * (64 + 8)
    assert torch.equal(made[2](x := torch.randn(1, 4, 8)), made[2].module(x))


@pytest.mark.slow
def test_a_module_with_a_default_layer_gets_no_layer_index(layered):
    made = list(build_blocks("my:layered.WithDefault", 2, 8, 4, {}, {}))
    assert [mixer.module.layer for mixer in made] == [(7, None)] * 2
    assert len(solve_blocks("my:layered.WithDefault", 2, 8, 2, 4).kinds) == 1


def test_a_layer_is_given_to_no_mixer_that_does_not_take_it():
    assert {block.size.layer for block in solve_blocks("S-p", 4, 16, 2, 8).blocks} == {Layer()}
    with pytest.raises(BudgetError):
        solve_blocks("S-p", 4, 16, 0, 8)
