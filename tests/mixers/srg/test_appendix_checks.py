"""The checks of HyperMLP's appendices hold, and the matching check fails for each planted fault."""

from __future__ import annotations

import pytest
import torch

from madbench.labels import expand, family_of, parse
from madbench.mixers import checks
from madbench.mixers.srg import block_attention
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import SequenceMixing, lag_readout
from madbench.mixers.srg.theorems import boundaries, pool
from mixers.srg.equations import APPENDICES


def checks_of(label):
    return {check.name: check for check in family_of(label).checks(parse(label))}


def outcomes(label, names=APPENDICES):
    return {outcome.check.name: outcome for outcome in checks.run_checks(label, names=names)}


@pytest.mark.slow
@pytest.mark.parametrize("label", expand(["@table1"])[::3])
def test_appendix_checks_hold_for_labels_of_table_1(label):
    assert "fail" not in {outcome.verdict for outcome in outcomes(label).values()}


@pytest.mark.slow
@pytest.mark.parametrize("label", ["R-gka-q", "G-pc-q-12", "D-pg-v"])
def test_appendix_checks_hold_for_other_labels(label):
    assert not [one.row for one in outcomes(label).values() if one.verdict == "fail"]


@pytest.mark.slow
def test_checks_that_do_not_apply_to_a_label_have_a_reason():
    assert "softmax" in checks_of("S")["pool"].reason and "RoPE" in checks_of("R-p")["pool"].reason
    assert "GLU" in checks_of("G")["added document"].reason and "documents" in checks_of("R-c")["added document"].reason
    assert "R(1)" in checks_of("R")["explicit construction"].reason and checks_of("R-q-12")["convolution"].is_difference
    assert "first slots" in checks_of("R-k-q-1o")["convolution"].reason
    assert [one.verdict for one in outcomes("R", ("pool", "spurious slots")).values()] == ["pass", "pass"]


def mix_backwards(monkeypatch):
    """Multiply by R^T in place of R."""
    monkeypatch.setattr(SequenceMixing, "right", SequenceMixing.right_transposed)


def mix_neighbors(monkeypatch):
    sound = SequenceMixing.right
    monkeypatch.setattr(SequenceMixing, "right", lambda self, y, s: sound(self, y, s) + 0.1 * y.roll(1, -1))


def mix_too_much(monkeypatch):
    sound = SequenceMixing.right
    monkeypatch.setattr(SequenceMixing, "right", lambda self, y, s: 100 * sound(self, y, s))


def mix_by_the_diagonal_alone(monkeypatch):
    monkeypatch.setattr(
        SequenceMixing, "_mix", lambda self, y, into, s, out_of: y * (1 + self.p[:, None, : y.shape[-1]])
    )


def scale_the_diagonal(monkeypatch):
    """Add the product with Diag(p), scaled by the token, in every slot."""
    sound = SequenceMixing.right
    monkeypatch.setattr(
        SequenceMixing, "right", lambda self, y, s: sound(self, y, s) + s[..., :1] * y * self.p[:, None, : y.shape[-1]]
    )


def freeze_strengths(monkeypatch):
    monkeypatch.setattr(
        SequenceMixing,
        "strengths",
        lambda self, x, *_: x.new_full((len(x), self.heads, x.shape[1], self.A.shape[-1]), 0.5),
    )


def forget_the_norm(monkeypatch):
    monkeypatch.setattr(block_attention, "activate", lambda base, h, last, *_: (torch.relu(h.tril(last)), None))


def select_above_a_threshold(monkeypatch):
    sound = block_attention.activate
    monkeypatch.setattr(block_attention, "activate", lambda base, h, *given: sound(base, h - 0.5, *given))


def read_out_louder(monkeypatch):
    sound = DynamicMLP.read_out
    monkeypatch.setattr(DynamicMLP, "read_out", lambda self, o, x: 10 * sound(self, o, x))


def read_out_bent(monkeypatch):
    sound = DynamicMLP.read_out
    monkeypatch.setattr(DynamicMLP, "read_out", lambda self, o, x: torch.tanh(sound(self, o, x)))


def read_out_in_steps(monkeypatch):
    sound = DynamicMLP.read_out
    monkeypatch.setattr(
        DynamicMLP, "read_out", lambda self, o, x: sound(self, o, x) + (sound(self, o, x) * 1e4).detach().round() / 1e4
    )


def lose_the_slope_of_one_head(monkeypatch):
    monkeypatch.setattr(
        block_attention, "lag_readout", lambda w, v: lag_readout(torch.cat((w[:, :1].detach(), w[:, 1:]), dim=1), v)
    )


def read_out_negative(monkeypatch):
    """Keep the sign of scores in the activations: no ReLU."""
    sound = block_attention.activate
    monkeypatch.setattr(block_attention, "activate", lambda base, h, *given: sound("L", h, *given))


def leave_r1_out(monkeypatch):
    monkeypatch.setattr(SequenceMixing, "right", lambda self, y, s: y)


def transpose_r2(monkeypatch):
    monkeypatch.setattr(SequenceMixing, "right_transposed", SequenceMixing.right)


def count_registers_twice(monkeypatch):
    sound = DynamicMLP.register_values
    monkeypatch.setattr(DynamicMLP, "register_values", lambda self: 2 * sound(self))


def address_more(monkeypatch):
    sound = pool.Pool.features
    monkeypatch.setattr(pool.Pool, "features", lambda self, u, v: 10 * sound(self, u, v))


def double_the_atoms(monkeypatch):
    monkeypatch.setattr(pool, "_mix_columns", lambda mix, context, *given: 2 * context)


def count_half_of_the_mass(monkeypatch):
    sound = pool.total_variation
    monkeypatch.setattr(pool, "total_variation", lambda *measures: sound(*measures) / 2)


def sum_squares_of_the_mass(monkeypatch):
    sound = pool._least_variation
    monkeypatch.setattr(pool, "_least_variation", lambda *problem: sound(*problem) ** 2)


def filter_ahead(monkeypatch):
    sound = boundaries.filter_by_fft
    monkeypatch.setattr(boundaries, "filter_by_fft", lambda rows, kernels: sound(rows, kernels).roll(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "label", "caught_by"),
    [
        (mix_neighbors, "R-q-1o", "diagonal mixing"),
        (mix_backwards, "R-q-1", "mixed normals"),
        (mix_by_the_diagonal_alone, "G-q-1o", "turned normals"),
        (freeze_strengths, "R-q-1o", "differential"),
        (mix_backwards, "S-g-q-1", "differential"),
        (freeze_strengths, "R-q-1o", "deformation"),
        (forget_the_norm, "R-c", "pool"),
        (mix_backwards, "R-q-1o", "pool"),
        (count_registers_twice, "R-k-q", "pool"),
        (mix_too_much, "R-q-12", "atoms"),
        (address_more, "R", "bounded features"),
        (count_half_of_the_mass, "R-g-q", "bounded readout"),
        (select_above_a_threshold, "R", "restriction"),
        (sum_squares_of_the_mass, "R", "variation norm"),
        (read_out_louder, "R-a-q", "bounded output"),
        (lose_the_slope_of_one_head, "R-q-2o", "tangent kernel"),
        (read_out_bent, "S-p", "constant kernel"),
        (read_out_in_steps, "R", "lazy descent"),
        (select_above_a_threshold, "G-c", "stable selection"),
        (filter_ahead, "R-q-1o", "convolution"),
        (mix_backwards, "S-q-12o", "convolution"),
        (select_above_a_threshold, "R-ga-q", "added document"),
        (forget_the_norm, "R", "added document"),
        (select_above_a_threshold, "G-pg-q", "spurious slots"),
        (freeze_strengths, "R-q-1o", "explicit construction"),
        (mix_by_the_diagonal_alone, "R-cg-q-12", "explicit construction"),
        (freeze_strengths, "R-q-1", "curved kink"),
        (mix_neighbors, "R-q-1o", "swapped normals"),
        (select_above_a_threshold, "R-q-12o", "linear cells"),
        (read_out_bent, "R-p", "linear cells"),
        (forget_the_norm, "R-c", "bent cells"),
        (read_out_in_steps, "G-cg-q", "smooth cells"),
        (read_out_in_steps, "R-pg-q-12", "smooth cells"),
        (scale_the_diagonal, "R-q-1o", "low-rank deformation"),
        (mix_neighbors, "R-c-q-12o", "dummy slots"),
        (double_the_atoms, "R", "reachable atoms"),
        (mix_backwards, "R-cg-q-1o", "warped sum"),
        (freeze_strengths, "R-q-12", "warped sum"),
        (forget_the_norm, "R-q-1o", "noise average"),
        (mix_by_the_diagonal_alone, "R-cg-q-12o", "noise average"),
        (leave_r1_out, "R-q-1", "signal margin"),
        (transpose_r2, "R-cg-q-12o", "context summaries"),
        (mix_by_the_diagonal_alone, "R-q-2", "context summaries"),
        (read_out_negative, "R", "weights of one sign"),
        (select_above_a_threshold, "R", "summary by one head"),
    ],
)  # fmt: skip
def test_each_planted_fault_fails_the_matching_check(sabotage, label, caught_by, monkeypatch):
    assert checks.run_check(checks_of(label)[caught_by]).verdict == "pass"
    sabotage(monkeypatch)
    assert checks.run_check(checks_of(label)[caught_by]).verdict == "fail"


@pytest.mark.slow
@pytest.mark.parametrize("head", [0, 1])
def test_nan_in_one_head_fails_every_bound(head, monkeypatch):
    broken = torch.tensor([1.0, torch.nan] if head else [torch.nan, 1.0]).double()[:, None, None]
    sound_mix, sound_read = SequenceMixing.right, DynamicMLP.read_out
    monkeypatch.setattr(SequenceMixing, "right", lambda self, y, s: sound_mix(self, y, s) * broken.to(y))
    monkeypatch.setattr(DynamicMLP, "read_out", lambda self, o, x: sound_read(self, o * broken.to(o), x))
    for label, name in (("R-q-1o", "atoms"), ("R-q-1o", "bounded readout"), ("R-q-12o", "bounded output")):
        assert checks.run_check(checks_of(label)[name]).verdict == "fail", name


def test_total_variation_counts_equal_atoms_once():
    atoms = torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]])
    weights = torch.tensor([[1.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
    assert pool.total_variation(atoms, weights).tolist() == [1.0, 3.0]


def test_a_gate_on_slots_increases_the_total_variation():
    atoms, gate = torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 0.0])
    weights = torch.tensor([[1.0, -1.0]])
    assert pool.total_variation(atoms, gate * weights) > pool.total_variation(atoms, weights)


@pytest.mark.parametrize("rank", [1, 3, 11])
def test_low_rank_mixing_is_no_closer_to_a_shift_than_the_bound(rank):
    shift = torch.eye(24, dtype=torch.float64).roll(1, 1).triu()
    diagonal = torch.zeros_like(shift)
    for _ in range(100):  # the best low rank for a diagonal, the best diagonal for it
        u, s, v = torch.linalg.svd(shift - diagonal)
        low_rank = u[:, :rank] * s[:rank] @ v[:rank]
        diagonal = (shift - low_rank).diag().diag()
    found = float((shift - diagonal - low_rank).square().sum()) / 23
    assert boundaries.uncovered_shift(24, rank) - 1e-12 <= found < 1 - rank / 23 + 1e-12
    assert boundaries.uncovered_shift(24, 12) == 0 and boundaries.uncovered_shift(24, 0) == 1
