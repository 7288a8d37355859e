"""The checks of S/R/G hold for sound operators, and fail, by name, for operators broken on purpose."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

from madbench.labels import all_labels, every_label, expand, family_of, parse
from madbench.mixers import checks
from madbench.mixers.srg import dynamic_mlp
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import SequenceMixing, lag_readout, rotate


def verdicts(label):
    return {outcome.check.name: outcome for outcome in checks.run_checks(label)}


@pytest.mark.slow
@pytest.mark.parametrize("label", sorted({*expand(["@table1"]), *all_labels()[::5], *every_label()[::40]}))
def test_every_check_of_every_label_of_the_paper_holds(label):
    assert "fail" not in {outcome.verdict for outcome in checks.run_checks(label)}


@pytest.mark.parametrize("label", ["G-pcg-q-12", "R-q-12o"])
def test_every_check_of_a_label_with_mixing_holds(label):
    assert "fail" not in {outcome.verdict for outcome in verdicts(label).values()}


def test_a_statement_that_says_nothing_about_a_label_does_not_apply_and_says_why():
    of_softmax, of_position = verdicts("S-p"), verdicts("R-q-1")
    assert of_softmax["routing"].verdict == "not applicable" and "softmax" in of_softmax["routing"].check.reason
    assert "no sequence mixing" in of_softmax["truncation"].check.reason
    assert of_position["truncation"].check.is_difference and not verdicts("R-q-1o")["truncation"].check.is_difference
    assert "older scores" in verdicts("R-q-2o")["truncation"].check.reason
    assert verdicts("R-pg-q-1o")["truncation"].check.is_difference


def leak(monkeypatch):
    """Every row meets the key of the token after it in the place of its own."""
    sound = DynamicMLP._project

    def project(self, *arguments):
        p = sound(self, *arguments)
        return replace(p, k=torch.cat((p.k[:, :, 1:], p.k[:, :, -1:]), dim=2))

    monkeypatch.setattr(DynamicMLP, "_project", project)


def mask_one_too_few(monkeypatch):
    sound = DynamicMLP._attend
    monkeypatch.setattr(DynamicMLP, "_attend", lambda self, p, first_row: sound(self, p, first_row + 1))


def take_rows_from_the_end(monkeypatch):
    def mix(self, y, into, s, out_of):
        low_rank = ((y @ into[:, -y.shape[-1] :]) * s) @ out_of[:, -y.shape[-1] :].transpose(-1, -2)
        return y * (1 + self.p[:, None, -y.shape[-1] :]) + low_rank

    monkeypatch.setattr(SequenceMixing, "_mix", mix)


def pair_wrongly(monkeypatch):
    monkeypatch.setattr(dynamic_mlp, "rotate", lambda x, position, style, _: rotate(x, position, "mispaired"))


def mask_after_mixing(monkeypatch):
    """Scores of later tokens are mixed into those that a row sees, and masked only then."""

    def attend(self, p, first_row):
        z = self._scores(p)
        a, norm = dynamic_mlp.activate(self.variant.base, self.mix1.right(z, p.s1), first_row)
        w = self.mix2.right_transposed(a, p.s2).tril(first_row) if self.mix2 else a
        o = lag_readout(w, p.v) if self.by_lag else w @ p.v
        return o if norm is None else o / norm

    monkeypatch.setattr(DynamicMLP, "_attend", attend)


def norm_before_mask(monkeypatch):
    def activate(base, h, first_row, contrast=None):
        return torch.relu(h.tril(first_row)), h.square().sum(-1, keepdim=True).sqrt()

    monkeypatch.setattr(dynamic_mlp, "activate", activate)


def select_above_a_threshold(monkeypatch):
    sound = dynamic_mlp.activate

    def activate(base, h, first_row, contrast=None):
        return sound(base, h - 0.5, first_row)

    monkeypatch.setattr(dynamic_mlp, "activate", activate)


def forget_the_norm(monkeypatch):
    def activate(base, h, first_row, contrast=None):
        return torch.relu(h.tril(first_row)), None

    monkeypatch.setattr(dynamic_mlp, "activate", activate)


def count_short(monkeypatch):
    sound = DynamicMLP.__init__

    def initialise(self, *arguments, **settings):
        sound(self, *arguments, **settings)
        self.bias = torch.nn.Parameter(torch.zeros(3))

    monkeypatch.setattr(DynamicMLP, "__init__", initialise)


def read_out_past_the_rank(monkeypatch):
    sound = DynamicMLP._read_out
    monkeypatch.setattr(DynamicMLP, "_read_out", lambda self, o, x: sound(self, o, x) + 0.1 * x)


def gate_before_rope(monkeypatch):
    def turn_nothing(x, position, style, _):
        return x * torch.arange(position + 1, position + 1 + x.shape[-2])[:, None]

    monkeypatch.setattr(dynamic_mlp, "rotate", turn_nothing)


def freeze_strengths(monkeypatch):
    constant = functools.partial(torch.full, fill_value=0.5, dtype=torch.float64)
    monkeypatch.setattr(SequenceMixing, "strengths", lambda self, x: constant((len(x), self.heads, x.shape[1], 1)))


def decode_without_position(monkeypatch):
    sound = DynamicMLP._project
    monkeypatch.setattr(
        DynamicMLP, "_project", lambda self, x, position, before=None, _=None: sound(self, x, 0, before)
    )


def rotate_registers(monkeypatch):
    sound = DynamicMLP._project

    def project(self, x, *given):
        p = sound(self, x, *given)
        keys = self.k(self.registers)[None].unflatten(-1, (self.query_heads, -1)).transpose(1, 2)
        return replace(p, to_registers=p.q @ keys.transpose(-1, -2))

    monkeypatch.setattr(DynamicMLP, "_project", project)


def subtract_nothing(monkeypatch):
    sound = dynamic_mlp.activate
    monkeypatch.setattr(dynamic_mlp, "activate", lambda *given: sound(*given[:3], 0 * given[3]))


def adapt_the_input(monkeypatch):
    monkeypatch.setattr(
        DynamicMLP,
        "_read_out",
        lambda self, o, x: self.o(o.transpose(1, 2).flatten(-2)) + self.o_down(x).sum(-1)[..., None],
    )


@pytest.mark.parametrize(
    ("sabotage", "label", "caught_by"),
    [
        (leak, "R", "causality"),
        (mask_one_too_few, "R", "causality"),
        (mask_one_too_few, "S-q-12o", "path dense"),
        (leak, "S-q-12o", "causality"),
        (leak, "G-cg-q-12o", "causality"),
        (take_rows_from_the_end, "R-12o!", "extension"),
        (take_rows_from_the_end, "G-q-2", "lengths"),
        (take_rows_from_the_end, "R-q-1o", "truncation"),
        (pair_wrongly, "S-p", "RoPE"),
        (pair_wrongly, "G-pcg-q-12o", "RoPE"),
        (mask_after_mixing, "R-q-1", "causality"),
        (mask_after_mixing, "S-v-12o", "lengths"),
        (norm_before_mask, "R", "causality"),
        (norm_before_mask, "R-q-12o", "dynamic MLP"),
        (select_above_a_threshold, "R-c", "routing"),
        (select_above_a_threshold, "G-1!", "linear readout"),
        (forget_the_norm, "R-p", "dynamic MLP"),
        (count_short, "S", "parameters"),
        (count_short, "R-cg-q", "budget"),
        (read_out_past_the_rank, "R-q-1", "update subspace"),
        (read_out_past_the_rank, "S-g-q", "null directions"),
        (gate_before_rope, "R-p", "RoPE"),
        (freeze_strengths, "R-q-1o", "bent boundaries"),
        (decode_without_position, "S-p", "steps"),
        (rotate_registers, "R-pk-q", "registers"),
        (rotate_registers, "R-pk-q-1o", "RoPE"),
        (subtract_nothing, "D-p", "differential softmax"),
        (adapt_the_input, "R-a-q", "adapters"),
    ],
)  # fmt: skip
def test_a_broken_operator_is_caught_by_name(sabotage, label, caught_by, monkeypatch):
    sabotage(monkeypatch)
    (check,) = (check for check in family_of(label).checks(parse(label)) if check.name == caught_by)
    assert checks.run_check(check).verdict == "fail"


def test_the_maps_are_what_the_forward_pass_computes():
    """Weights read the values out; their rows are those of longer inputs, by lag."""
    mixer, x = checks.sample(family_of("G-cg-q-12o"), parse("G-cg-q-12o"))
    maps, v = mixer.maps(x), mixer._project(x, 0).v
    o = torch.stack([maps.weights[:, :, t, : t + 1].unsqueeze(-2) @ v[:, :, : t + 1].flip(2) for t in range(8)], 2)
    torch.testing.assert_close(mixer._read_out(o.squeeze(-2), x), mixer(x))
    assert (maps.activations[:, :, 3, 4:] == 0).all() and (maps.scores[:, :, 3, 4:] == 0).all()
