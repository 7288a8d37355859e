"""Letters beyond the paper's Table 1, and RoPE after the gate: loops, paths, counts, settings."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import BudgetError, ConfigError, TrainingError
from madbench.experiment import ExperimentOptions, prepare
from madbench.labels import every_label, parse
from madbench.mixers import build, solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.listing import all_labels
from madbench.rows import Grid, Row
from madbench.suites.mad.suite import MAD
from srg_rows import decode, fast_paths, rows_by_loops

LABELS = (
    "D", "D-p", "D-c-q", "D-pcg-v-12o", "D-q-1", "D-gka-q-2o", "S-pk-q", "S-k!", "S-ck-v-12", "R-k-q", "R-pgk-q-12o",
    "R-k-12!", "G-pck-q-12o", "G-ka!", "R-a-q", "S-ca-q", "G-pcgka-v-12o", "R-a-q-1o",
    "L", "L-pcgk-v-12o", "L-g-q-2", "S-ph", "D-gkh-q-2o", "R-cah-q-12o", "G-h", "L-ph", "S-pe", "S-che", "D-ckahe-q-2o",
    "R-ce-q-12o", "G-pke-q-1", "L-e", "S-pm", "D-pcgkamhe-v-12o", "R-cme-q-12o", "G-pgkm-q-1", "L-am-q",
)  # fmt: skip
LABELS_WITH_OTHER_LETTERS = [label for label in every_label() if label not in set(all_labels())]


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_every_path_and_decoding_equal_the_equations(label, make, randn):
    mixer, x = make(label), randn(1, 5, 16)
    expected = rows_by_loops(mixer, x)
    for path in ("reference", *fast_paths(mixer)):
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected)
    torch.testing.assert_close(decode(mixer, x), expected)


@pytest.mark.parametrize("label", ["D-p", "D-gka-q-12o", "R-pgk-q-12o", "G-pcka!", "S-ca-q"])
def test_gradients_of_every_path_equal_the_reference(label, make, randn):
    mixer, x, cotangent = make(label), randn(2, 5, 16), randn(2, 5, 16, seed=2)

    def gradients(path):
        mixer.path = path
        return torch.autograd.grad((mixer(x) * cotangent).sum(), list(mixer.parameters()))

    expected = gradients("reference")
    largest = max(gradient.norm() for gradient in expected)
    for path in fast_paths(mixer):
        for (name, _), given, reference in zip(mixer.named_parameters(), gradients(path), expected):
            assert (given - reference).norm() < 1e-9 * largest, (path, name)


def test_steps_and_blocks_agree_under_bfloat16_autocast(randn):
    x = randn(2, 8, 32).float()
    for label in ("D-p", "D-pgk-q-12o", "G-ka-q"):
        torch.manual_seed(0)
        mixer = build(label, 32, 8, budget="paper").requires_grad_(False)
        with torch.autocast("cpu", torch.bfloat16):
            steps, whole = decode(mixer, x).float(), mixer(x).float()
        assert (steps - whole).norm() < 0.03 * whole.norm()


@pytest.mark.parametrize("label", ["S-pg-q", "R-pcg-q-12o", "G-pgk-q-1o"])
def test_rope_after_the_gate_equals_its_equation_and_differs_from_the_usual(label, make, randn):
    mixer, x = make(label, d_model=32, rope_order="after_gate"), randn(1, 5, 32)
    torch.testing.assert_close(mixer(x), rows_by_loops(mixer, x, rope_order="after_gate"))
    torch.testing.assert_close(decode(mixer, x), mixer(x))
    usual = make(label, d_model=32)
    assert (mixer(x) - usual(x)).norm() > 1e-2 * mixer(x).norm()


@pytest.mark.parametrize(("label", "order", "holds"), [
    ("R-pg-q-12o", "after_gate", True), ("R-pg-q-12o", "before_gate", False), ("S-pgk-q", "after_gate", True),
])  # fmt: skip
def test_with_rope_after_the_gate_a_sliding_window_equals_a_fresh_sequence(label, order, holds, make, randn):
    """Theorem 2.3, which the paper's order breaks."""
    mixer, x = make(label, max_len=4, d_model=32, rope_order=order), randn(1, 9, 32)
    given, expected = decode(mixer, x, slide=True)[:, -1], mixer(x[:, -4:])[:, -1]
    assert torch.allclose(given, expected) == holds


def test_lambda_starts_near_lambda_init_and_the_norm_scales_by_what_is_left(make, randn):
    mixer = build("D-p", 32, 8, lambda_init=0.5)
    assert abs(mixer.contrast().item() - 0.5) < 0.05 and (mixer.head_norm.weight == 1).all()
    mixer, x = make("D", lambda_init=0.5), randn(1, 5, 16)
    torch.testing.assert_close(mixer(x), rows_by_loops(mixer, x, lambda_init=0.5))


def test_adapters_start_at_zero_and_registers_do_not():
    mixer = build("R-ka-q", 32, 8, registers=3, adapter_rank=2)
    assert mixer.registers.shape == (3, 32) and 0.01 < mixer.registers.std() < 0.03
    assert mixer.v_down.weight.shape == (2, 32) and mixer.o_up.weight.shape == (32, 2)
    assert not mixer.v_up.weight.any() and not mixer.o_up.weight.any() and mixer.v_down.weight.all()


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["strict", "paper"])
def test_counts_equal_the_built_module_and_strict_ones_meet_the_budget(budget):
    built = 0
    for label in LABELS_WITH_OTHER_LETTERS[:: len(LABELS_WITH_OTHER_LETTERS) // 100]:
        for n_head in (1, 3):
            try:
                allocation = solve(label, 24, n_head, 9, budget)
            except BudgetError:
                continue
            mixer = DynamicMLP(allocation)
            assert sum(parameter.numel() for parameter in mixer.parameters()) == allocation.total, label
            assert budget == "paper" or allocation.label.over or allocation.total <= allocation.target
            built += 1
    assert built > 100


def test_terms_flops_and_state_equal_hand_counts():
    """d 64, 2 heads, 4 registers, adapters of rank 4, 32 positions."""
    d = solve("D-pc", 64, 2, 32)
    assert (d.r_qk, d.r_vo, d.target - 4 * 64**2) == (64, 64, 8 * 64 + 4 * 16 + 32)
    assert d.terms["contrast"] == 4 * 16 and d.terms["head_norm"] == 32 and d.slack == 0
    one = solve("R-ka-q-1", 64, 2, 32, "paper")
    assert one.terms["registers"] == 4 * 64 and one.terms["adapters"] == 2 * 4 * (64 + one.r_vo)
    assert one.terms["mix1_tables"] == 2 * (32 + 4) * (2 * 16 + 1) and "(L + k)" in one.formulas["mix1_tables"][0]
    plain = solve("R-q-1", 64, 2, 32, "paper")
    assert (one.r_qk, one.r_vo) == (plain.r_qk, plain.r_vo)
    pairs = 2 * (one.r_qk + one.r_vo) + 2 * (4 * 16 + 2)
    expected = plain.flops_per_token(32) + 4 * pairs + 2 * one.terms["adapters"]
    assert one.flops_per_token(32) == expected and one.state_bytes_per_token() == plain.state_bytes_per_token()


@pytest.mark.parametrize(("label", "settings"), [
    ("R-pc", {"rope_order": "after_gate"}), ("R-g-q", {"rope_order": "after_gate"}), ("S-p", {"registers": 5}),
    ("R-k-q", {"adapter_rank": 2}), ("R-ka-q", {"lambda_init": 0.5}),
])  # fmt: skip
def test_a_setting_of_letters_that_a_label_lacks_is_refused(label, settings):
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name} has no effect on '{label}'"):
        build(label, 32, 8, **settings)
    (value,) = settings.values()
    with pytest.raises(ConfigError, match=f"model.{name} has no effect on '{label}'"):
        MAD.Profile.load("quick", [f"model.{name}={value}"]).mixer_settings(label)


@pytest.mark.parametrize("settings", [{"registers": 0}, {"adapter_rank": 0}, {"lambda_init": 1.0}, {"rope_order": "x"}])
def test_a_setting_out_of_its_range_is_refused(settings):
    with pytest.raises(ConfigError):
        build("D-pgka-q", 32, 8, **settings)


def test_sdpa_is_refused_for_registers():
    assert build("D-p", 32, 8).resolve_path(1, 8) == "sdpa"
    with pytest.raises(TrainingError, match=r"'sdpa' cannot compute S-k-q: .* the label has 'k' \(registers\); use"):
        build("S-k-q", 32, 8, path="sdpa")


def test_a_setting_is_part_of_job_ids_only_off_its_default(tmp_path):
    """So runs that were stored before the setting was added keep their ids."""
    usual = {"mix_rank": 8, "rank_multiple": 1, "rope": "rotation"}
    profile = MAD.Profile.load("quick")
    for label in ("S", "R-pcg-q-12o", "R-k-q", "D-pga-q"):
        assert profile.mixer_settings(label) == usual
    changed = MAD.Profile.load("quick", ["model.registers=8"])
    assert changed.mixer_settings("R-k-q") == usual | {"registers": 8}
    prepare(Grid((Row("D-pga-q"),), ("memorization",), (0,)), ExperimentOptions(device="cpu", results=tmp_path))
    (job,), (other,) = (MAD.jobs(["R-k-q"], one, seeds=[0], tasks=["memorization"]) for one in (profile, changed))
    assert job.id != other.id
    assert profile.trains_job(job) and changed.trains_job(other)
    assert not changed.trains_job(job) and not profile.trains_job(other)


def test_every_row_sees_all_registers_in_both_softmaxes(make, randn):
    mixer, x = make("D-k-q", registers=3), randn(1, 4, 16)
    maps = mixer.maps(x)
    assert maps.weights.shape == (1, 2, 4, 7)
    visible = maps.weights != 0
    assert visible[0, 0].sum(-1).tolist() == [4, 5, 6, 7] and visible[..., :3].all()
    assert parse("D-k-q").query_heads(2) == 4 and maps.scores.shape[1] == 4


@pytest.mark.parametrize("label", ["R-k-q-1o", "R-k-12!", "D-k-q"])
def test_a_probe_leaves_out_registers_and_orders_tokens_by_lag(label, make, randn):
    mixer, x = make(label), randn(1, 5, 16)
    probe, maps = mixer.probe(x), mixer.maps(x)
    slots = [4 + (lag if mixer.by_lag else 4 - lag) for lag in range(5)]
    torch.testing.assert_close(probe.weights[:, :, 4], maps.weights[:, :, 4, slots])
    assert probe.scores.shape == (1, 2, 5, 5) and (probe.active is None) == label.startswith("D")
    assert all(kernel.p.shape == (2, 6) and kernel.A.shape[:2] == (2, 6) for kernel in probe.kernels.values())
