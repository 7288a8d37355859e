"""The checks of S/R/G labels hold, and the matching check fails for each planted fault."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from madbench.labels import every_label, factors, family_of, parse
from madbench.mixers import checks
from madbench.mixers.ops import rope, short_conv
from madbench.mixers.ops.rope import rotate
from madbench.mixers.srg import block_attention, decoding, dynamic_mlp, parts, tiled, tiles
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.grammar import LETTERS
from madbench.mixers.srg.parts import SequenceMixing, lag_readout
from madbench.mixers.srg.theorems import appendices, main_text
from madbench.mixers.srg.theorems.statements import WORKED_OUT, Statements
from mixers.srg.equations import APPENDICES
from srg_letters import FEATURES, labels_of_all_pairs


def checks_of(label):
    return {check.name: check for check in family_of(label).checks(parse(label))}


@pytest.mark.slow
def test_labels_of_all_pairs_cover_every_pair_of_factors():
    def pairs(labels):
        return {pair for label in labels for pair in itertools.combinations(factors(parse(label)).items(), 2)}

    few = [label for label in every_label() if sum(letter in FEATURES for letter in label) <= 2]
    assert pairs(labels_of_all_pairs()) == pairs(few)
    assert len(labels_of_all_pairs()) < 40


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_check_of_labels_with_all_pairs_of_letters_holds(part):
    outcomes = {label: checks.run_checks(label) for label in labels_of_all_pairs()[part::8]}
    failed = [(label, each.row) for label, own in outcomes.items() for each in own if each.verdict == "fail"]
    assert outcomes and not failed


COSTLY = {"path dense", "path chunked", "path tiled", "sequences", "bfloat16", "bfloat16 sums"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "label, left_out", [("S-p", ()), ("R-c", ()), ("G-pcg-q-12", COSTLY), ("R-q-12o", ()), ("D-pcgka-v-12o", ())]
)
def test_every_check_of_a_label_holds(label, left_out):
    """The checks of the appendices are tested in another file."""
    names = {*checks_of(label)} - APPENDICES - {*left_out}
    outcomes = checks.run_checks(label, names=names)
    assert {"parameters", "causality", "steps"} <= {outcome.check.name for outcome in outcomes}
    assert not [outcome.row for outcome in outcomes if outcome.verdict == "fail"]


def test_inapplicable_theorem_checks_give_a_reason():
    routing, truncation = (checks_of("S-p")[name] for name in ("routing", "truncation"))
    assert checks.run_check(routing).verdict == "not applicable" and "softmax" in routing.reason
    assert "no sequence mixing" in truncation.reason
    assert checks_of("R-q-1")["truncation"].is_difference and not checks_of("R-q-1o")["truncation"].is_difference
    assert "older scores" in checks_of("R-q-2o")["truncation"].reason
    assert checks_of("R-pg-q-1o")["truncation"].is_difference


@pytest.mark.parametrize("label", ["R-k-q-12o", "D-p", "G-pcg-q-12"])
def test_theorems_do_not_apply_to_letters_that_they_do_not_list(label):
    """Checks of the operator apply to every letter."""
    family, parsed = family_of(label), parse(label)
    without = {row.letter: WORKED_OUT.replace(row.letter, "") for row in parsed.letters}
    for letter, letters in without.items():
        statements = Statements(family, parsed, letters)
        found = [*main_text.checks(statements), *appendices.checks(statements)]
        assert found and all(check.run is None for check in found)
        assert any(f"it is not worked out for {letter!r} (" in check.reason for check in found)
    every = checks_of(label)
    assert all(every[name].run for name in ("parameters", "causality", "gradients", "steps", "prefill", "lengths"))
    assert {check.name for check in found} < set(every)


def test_letters_that_theorems_name_are_letters_of_the_grammar():
    assert set(WORKED_OUT) <= {row.letter for row in LETTERS}


def leak(monkeypatch):
    """Let every row read the key of the next token in place of its own."""
    sound = DynamicMLP.project

    def project(self, *arguments):
        p = sound(self, *arguments)
        return replace(p, k=torch.cat((p.k[:, :, 1:], p.k[:, :, -1:]), dim=2))

    monkeypatch.setattr(DynamicMLP, "project", project)


def mask_one_too_few(monkeypatch):
    sound = DynamicMLP.attend
    monkeypatch.setattr(DynamicMLP, "attend", lambda self, p, first_row, **how: sound(self, p, first_row + 1, **how))


def take_rows_from_the_end(monkeypatch):
    def mix(self, y, into, s, out_of):
        low_rank = ((y @ into[:, -y.shape[-1] :]) * s) @ out_of[:, -y.shape[-1] :].transpose(-1, -2)
        return y * (1 + self.p[:, None, -y.shape[-1] :]) + low_rank

    monkeypatch.setattr(SequenceMixing, "_mix", mix)


def mix_neighbors(monkeypatch):
    sound = SequenceMixing.right
    monkeypatch.setattr(SequenceMixing, "right", lambda self, y, s: sound(self, y, s) + 0.1 * y.roll(1, -1))


def select_by_scale(monkeypatch):
    sound = block_attention.activate

    def activate(base, h, *given):
        a, norm = sound(base, h, *given)
        return a * (h[:, a.shape[1] :] > 0), norm

    monkeypatch.setattr(block_attention, "activate", activate)


def pair_wrongly(monkeypatch):
    monkeypatch.setattr(dynamic_mlp, "rotate", lambda x, position, style, _: rotate(x, position, "mispaired"))


def mask_after_mixing(monkeypatch):
    """Mask scores only after the mixing, so that scores of later tokens leak in."""

    def attend(self, p, first_row):
        z = block_attention.scores(self, p, first_row)
        a, norm = block_attention.activate(self.label.base, self.mix1.right(z, p.s1), first_row)
        w = self.mix2.right_transposed(a, p.s2).tril(first_row) if self.mix2 else a
        o = lag_readout(w, p.v) if self.by_lag else w @ p.v
        return o if norm is None else o / norm

    monkeypatch.setattr(DynamicMLP, "attend", attend)


def norm_before_mask(monkeypatch):
    def activate(base, h, first_row, *_):
        return torch.relu(h.tril(first_row)), h.square().sum(-1, keepdim=True).sqrt()

    monkeypatch.setattr(block_attention, "activate", activate)


def select_above_a_threshold(monkeypatch):
    sound = block_attention.activate

    def activate(base, h, first_row, *_):
        return sound(base, h - 0.5, first_row)

    monkeypatch.setattr(block_attention, "activate", activate)


def forget_the_norm(monkeypatch):
    def activate(base, h, first_row, *_):
        return torch.relu(h.tril(first_row)), None

    monkeypatch.setattr(block_attention, "activate", activate)


def count_short(monkeypatch):
    sound = DynamicMLP.__init__

    def initialize(self, *arguments, **settings):
        sound(self, *arguments, **settings)
        self.bias = torch.nn.Parameter(torch.zeros(3))

    monkeypatch.setattr(DynamicMLP, "__init__", initialize)


def read_out_past_the_rank(monkeypatch):
    sound = DynamicMLP.read_out
    monkeypatch.setattr(DynamicMLP, "read_out", lambda self, o, x, *given: sound(self, o, x, *given) + 0.1 * x)


def gate_before_rope(monkeypatch):
    def turn_nothing(x, position, style, _):
        return x * torch.arange(position + 1, position + 1 + x.shape[-2], device=x.device)[:, None]

    monkeypatch.setattr(dynamic_mlp, "rotate", turn_nothing)


def freeze_strengths(monkeypatch):
    monkeypatch.setattr(  # as wide as the rank, which kernels rely on
        SequenceMixing,
        "strengths",
        lambda self, x, *_: x.new_full((len(x), self.heads, x.shape[1], self.A.shape[-1]), 0.5),
    )


def decode_without_position(monkeypatch):
    sound = DynamicMLP.project

    def project(self, x, position, before=None, angles=None):
        return sound(self, x, 0, before, angles and rope.rotary_angles(x[..., : self.rotated], 0))

    monkeypatch.setattr(DynamicMLP, "project", project)


def rotate_registers(monkeypatch):
    sound = DynamicMLP.project

    def project(self, x, *given):
        p = sound(self, x, *given)
        keys = self.k(self.registers)[None].unflatten(-1, (self.query_heads, -1)).transpose(1, 2)
        return replace(p, to_registers=p.q @ keys.transpose(-1, -2))

    monkeypatch.setattr(DynamicMLP, "project", project)


def subtract_nothing(monkeypatch):
    sound = block_attention.activate
    monkeypatch.setattr(block_attention, "activate", lambda *given: sound(*given[:3], 0 * given[3]))


def adapt_the_input(monkeypatch):
    monkeypatch.setattr(
        DynamicMLP,
        "read_out",
        lambda self, o, x, *_: self.o(o.transpose(1, 2).flatten(-2)) + self.o_down(x).sum(-1)[..., None],
    )


def decode_wrongly_from_64_on(monkeypatch):
    sound = decoding.rotary_angles
    monkeypatch.setattr(decoding, "rotary_angles", lambda rows, position: sound(rows, position - (position > 0)))


def round_positions(monkeypatch):
    """Round positions to bfloat16 if queries have it. It is exact up to 256."""

    def angles(x, first_position):
        position = torch.arange(first_position, first_position + x.shape[-2]).to(x.dtype).double()
        frequency = 10000.0 ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
        angle = torch.outer(position, frequency).repeat(1, 2)
        dtype = torch.promote_types(x.dtype, torch.float32)
        return angle.cos().to(x.device, dtype), angle.sin().to(x.device, dtype)

    monkeypatch.setattr(rope, "rotary_angles", angles)
    monkeypatch.setattr(dynamic_mlp, "rotary_angles", angles)


def sum_squares_in_bfloat16(monkeypatch):
    monkeypatch.setattr(parts, "_norm", lambda h: h.square().sum(-1, keepdim=True).add(parts.EPS).sqrt())


def scale_gradient_of_tables(name, factor):
    """Scale the gradients of mixing tables in one path."""

    def sabotage(monkeypatch):
        sound = tiles.Sheet.unmix

        def unmix(self, y, inner, s, tables, grads, work):
            before = getattr(grads, name).clone()
            found = sound(self, y, inner, s, tables, grads, work)
            getattr(grads, name).sub_(before).mul_(factor).add_(before)
            return found

        monkeypatch.setattr(tiles.Sheet, "unmix", unmix)

    return sabotage


def lose_the_slope_of_one_head(monkeypatch):
    sound = block_attention.lag_readout

    def read(w, v):
        return sound(torch.cat((w[:, :1].detach(), w[:, 1:]), dim=1), v)

    monkeypatch.setattr(block_attention, "lag_readout", read)


def scale_a_head_from_row_64_on(monkeypatch):
    sound = DynamicMLP.attend

    def attend(self, p, first_row, **how):
        o = sound(self, p, first_row, **how)
        late = torch.arange(first_row, first_row + o.shape[2], device=o.device) >= 64
        return o * (1 + 1e-6 * late[:, None] * torch.tensor([0.0, 1.0]).to(o)[:, None, None])

    monkeypatch.setattr(DynamicMLP, "attend", attend)


def cut_tables_short_after_a_tile(monkeypatch):
    def up_to(self, slots):
        start = int(slots > tiled.TILE_ROWS)
        return tiles.Tables(*(torch.roll(table, start, -1)[..., :slots] for table in self))

    monkeypatch.setattr(tiles.Tables, "up_to", up_to)


def shift_tables_past_64_slots(monkeypatch):
    sound = SequenceMixing._mix

    def mix(self, y, into, s, out_of):
        return sound(self, y, torch.roll(into, int(y.shape[-1] > 64), 1), s, out_of)

    monkeypatch.setattr(SequenceMixing, "_mix", mix)


def see_one_key_less_in_later_blocks(monkeypatch):
    sound = block_attention.attend_block

    def attend(self, first_row, *block):
        return sound(self, first_row - (first_row > 0), *block)

    monkeypatch.setattr(block_attention, "attend_block", attend)


def keep_the_wrong_inputs(monkeypatch):
    sound = decoding._extend

    def extended(cache, mixer, x, new, slide):
        found = sound(cache, mixer, x, new, slide)
        return replace(found, inputs=found.inputs.roll(1, 1)) if new.k.shape[2] > 2 else found

    monkeypatch.setattr(decoding, "_extend", extended)


def lose_an_odd_prompt(monkeypatch):
    sound = decoding._extend

    def extended(cache, mixer, x, new, slide):
        found = sound(cache, mixer, x, new, slide)
        count = new.k.shape[2]
        return replace(found, position=found.position - (count > 1) * (count % 2))

    monkeypatch.setattr(decoding, "_extend", extended)


def overwrite_what_others_see(monkeypatch):
    sound = decoding._extend

    def extended(cache, mixer, x, new, slide):
        cache.storage.used = cache.rows.stop
        return sound(cache, mixer, x, new, slide)

    monkeypatch.setattr(decoding, "_extend", extended)


def forget_a_tap(monkeypatch):
    sound = short_conv.ConvolveInBlocks.backward

    def backward(ctx, grad):
        of_x, of_taps = sound(ctx, grad)
        return of_x, of_taps * torch.tensor([1.0, 1.0, 0.0, 1.0]).to(of_taps)

    monkeypatch.setattr(short_conv.ConvolveInBlocks, "backward", staticmethod(backward))


def skip_a_group(monkeypatch):
    """Take the first group of sequences that share their tiles twice, in place of the last group."""
    sound = tiled._Pass._groups

    def groups(self):
        found = list(sound(self))
        return [*found[:-1], found[0]] if len(found) > 1 else found

    monkeypatch.setattr(tiled._Pass, "_groups", groups)


def read_registers_of_another_row(monkeypatch):
    sound = DynamicMLP.register_values
    monkeypatch.setattr(DynamicMLP, "register_values", lambda self: sound(self).roll(1, 2))


def slide_by_one_too_few(monkeypatch):
    sound = decoding._extend

    def extended(cache, mixer, x, new, slide):
        found = sound(cache, mixer, x, new, slide)
        start = found.rows.start + (slide and found.position > mixer.max_len)
        return replace(found, rows=slice(start, found.rows.stop))

    monkeypatch.setattr(decoding, "_extend", extended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "label", "caught_by"),
    [
        (decode_wrongly_from_64_on, "S-p", "steps"),
        (decode_wrongly_from_64_on, "R-pg-q-1", "prefill"),
        (round_positions, "S-p", "RoPE in bfloat16"),
        (round_positions, "G-pcg-q-12o", "RoPE in bfloat16"),
        (sum_squares_in_bfloat16, "R", "norm"),
        (sum_squares_in_bfloat16, "R", "bfloat16 sums"),
        (sum_squares_in_bfloat16, "G-c", "norm"),
        (scale_gradient_of_tables("A", 2), "R-q-12o", "path tiled"),
        (scale_gradient_of_tables("B", 0), "G-q-1o", "path tiled"),
        (scale_gradient_of_tables("gain", 2), "R-q-2", "path tiled"),
        (lose_the_slope_of_one_head, "R-q-2o", "path dense"),
        (lose_the_slope_of_one_head, "R-q-2o", "gradients"),
        (scale_a_head_from_row_64_on, "R-c", "path dense"),
        (scale_a_head_from_row_64_on, "G-q-12", "path chunked"),
        (cut_tables_short_after_a_tile, "R-q-1", "path tiled"),
        (shift_tables_past_64_slots, "R-q-1o", "path dense"),
        (see_one_key_less_in_later_blocks, "S-q-1", "path chunked"),
        (keep_the_wrong_inputs, "R-c", "prefill"),
        (lose_an_odd_prompt, "S-p", "prefill"),
        (overwrite_what_others_see, "R-p", "prefill"),
        (forget_a_tap, "S-c", "gradients"),
        (forget_a_tap, "S-c", "path dense"),
        (skip_a_group, "R-q-1", "sequences"),
        (read_registers_of_another_row, "R-k-q", "path dense"),
        (slide_by_one_too_few, "R-q-1o", "sliding window"),
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
        (mix_neighbors, "R-q-12o", "token-wise case"),
        (take_rows_from_the_end, "G-q-2o", "zero extension"),
        (mix_neighbors, "R-c-q-1", "oldest window"),
        (freeze_strengths, "R-gk-q-12", "oldest window"),
        (take_rows_from_the_end, "G-p-q-1", "suffix extension"),
        (select_by_scale, "G-cg-q", "scale branch"),
    ],
)  # fmt: skip
def test_a_broken_operator_is_caught_by_name(sabotage, label, caught_by, monkeypatch):
    sabotage(monkeypatch)
    assert checks.run_check(checks_of(label)[caught_by]).verdict == "fail"


def test_maps_reproduce_the_forward_pass():
    """The weights times the values give the output, and rows of weights by lag do not depend on the length."""
    mixer, x = checks.sample(family_of("G-cg-q-12o"), parse("G-cg-q-12o"))
    maps, v = mixer.maps(x), mixer.project(x, 0).v
    o = torch.stack([maps.weights[:, :, t, : t + 1].unsqueeze(-2) @ v[:, :, : t + 1].flip(2) for t in range(8)], 2)
    torch.testing.assert_close(mixer.read_out(o.squeeze(-2), x), mixer(x))
    assert (maps.activations[:, :, 3, 4:] == 0).all() and (maps.scores[:, :, 3, 4:] == 0).all()
