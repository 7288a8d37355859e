"""Labels of flash-linear-attention: grammar, errors, matching with a made-up library, and counts of the real one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import madbench
from madbench.errors import BudgetError, LabelError, MissingExtraError, TrainingError
from madbench.labels import expand, family_of, parse
from madbench.mixers import Size, solve
from madbench.mixers.fla import budget
from madbench.mixers.fla.layers import LAYERS
from made_up_fla import LIBRARY, GatedLinearAttention, forget_library

LABELS = [f"fla:{name}" for name in LAYERS]


@pytest.fixture(autouse=True)
def nothing_remembered():
    forget_library()
    yield
    forget_library()


@pytest.fixture
def made_up(monkeypatch):
    """Layers of the shapes of the library."""
    monkeypatch.setattr(budget, "library", lambda: LIBRARY)


@pytest.fixture
def absent(monkeypatch):
    def no_module(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])

    monkeypatch.setattr(budget, "import_module", no_module)


@pytest.mark.parametrize("label", [*LABELS, "fla:gla!"])
def test_labels_are_read_written_explained_and_have_neighbours(label):
    family, parsed = family_of(label), parse(label)
    assert str(parsed) == label and parse(str(parsed)) == parsed
    rows = family.explain(parsed)
    assert LAYERS[parsed.layer].module in rows[0].name and "GPU" in rows[-1].what
    for other in family.neighbours(parsed):
        theirs = family.factors(other)
        assert sum(theirs[name] != value for name, value in family.factors(parsed).items()) == 1


@pytest.mark.parametrize(
    "text, at, hint", [("fla:glas", 7, "'gla'"), ("fla:delta", 9, "'deltanet'"), ("fla:", 4, "gla")]
)
def test_an_unknown_layer_is_pointed_at(text, at, hint):
    with pytest.raises(LabelError) as error:
        parse(text)
    first, second = str(error.value).splitlines()
    assert hint in second and second.index("^") == first.index(text) + at


def test_a_set_has_every_layer():
    assert expand(["~fla:gla"])[1:] and set(expand(["~fla:gla"])) <= {*LABELS, "fla:gla!"}


def test_without_the_package_one_sentence_says_how_to_get_it(absent):
    for label in LABELS:
        with pytest.raises(MissingExtraError, match=r"flash-linear-attention .*: pip install -e '\.\[fla\]'"):
            solve(label, 64)
    checks = list(family_of("fla:gla").checks(parse("fla:gla")))
    assert (
        len(checks) == 4
        and not any(check.run for check in checks)
        and all("pip install" in check.reason for check in checks)
    )


def test_a_package_that_cannot_be_imported_says_why(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'triton'", name="triton")

    monkeypatch.setattr(budget, "import_module", broken)
    with pytest.raises(TrainingError, match="cannot be imported: No module named 'triton'"):
        budget.library()


@pytest.mark.parametrize("d, heads", [(32, 1), (64, 2), (96, 3), (256, 4)])
def test_the_widest_layer_within_the_budget_is_taken_and_counted_to_the_unit(made_up, d, heads):
    found = solve("fla:gla", d, heads)
    totals = {}
    for options in LAYERS["gla"].candidates(d, heads):
        layer = GatedLinearAttention(d, **options)
        taps = layer.v_conv1d.weight.numel()
        totals[options["expand_v"]] = (sum(p.numel() for p in layer.parameters()), taps)
    fitting = [width for width, (total, taps) in totals.items() if total <= 4 * d * d + taps]
    assert found.options["expand_v"] == max(fitting) < max(totals)
    assert (found.total, found.target - 4 * d * d) == totals[max(fitting)] and found.terms[
        "conv"
    ] == found.target - 4 * d * d
    assert found.ranks == {
        "qk": d // 2,
        "vo": round(max(fitting) * d),
        "state": d // 2 * round(max(fitting) * d) // heads + 3 * round(max(fitting) * d),  # and the window of 4 taps
    }
    assert (
        solve("fla:gla!", d, heads).options
        == solve("fla:gla", d, heads, budget="paper").options
        == {"num_heads": heads}
    )


def test_sizes_that_do_not_fit_or_are_refused_are_errors(made_up):
    with pytest.raises(BudgetError, match="parameters over the budget of"):
        solve("fla:gla", 2, 1)
    with pytest.raises(BudgetError, match="rejects d_model 7 .*keys must be whole"):
        solve("fla:gla", 7, 1)


def test_building_needs_a_gpu_and_names_what_needs_none(made_up, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="fla:gla runs on a CUDA GPU only, .*; GLA computes the same on a CPU$"):
        madbench.build("fla:gla", d_model=64, max_len=8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    mixer = madbench.build("fla:gla", d_model=64, max_len=8)
    assert sum(p.numel() for p in mixer.parameters()) == mixer.allocation.total and mixer.o.out_features == 64
    assert mixer.resolve_path(2, 8) == "fla" and 0.01 < mixer.layer.q_proj.weight.std().item() < 0.03
    with pytest.raises(TrainingError, match="not on cpu"):
        mixer(torch.zeros(1, 8, 64))
    with pytest.raises(TrainingError, match="path 'dense' is not known"):
        madbench.build("fla:gla", d_model=64, max_len=8, path="dense")


def test_counterparts_are_labels():
    assert {str(parse(layer.counterpart)) for layer in LAYERS.values() if layer.counterpart}


def test_candidates_are_labelled_widths_in_ascending_order():
    for name, layer in LAYERS.items():
        for d, heads in ((64, 2), (768, 12)):
            candidates = layer.candidates(d, heads)
            assert candidates and all(a != b for a, b in zip(candidates, candidates[1:])), name


@pytest.mark.parametrize(
    ("d", "heads", "at_the_budget", "of_the_library"),
    [(128, 2, 2, 2), (1024, 2, 2, 4), (2048, 2, 4, 8), (2560, 2, 8, 10), (2048, 16, 16, 16), (2046, 4, 4, 4)],
)
def test_retention_has_heads_of_at_most_256_keys_where_that_is_possible(d, heads, at_the_budget, of_the_library):
    layer = LAYERS["retnet"]
    assert {options["num_heads"] for options in layer.candidates(d, heads)} == {at_the_budget}
    assert layer.defaults(d, heads)["num_heads"] == of_the_library


@pytest.mark.parametrize("size", [(1024, 2), (2048, 2)])
def test_the_layers_of_the_paper_s_table_are_built_at_its_sizes(size):
    pytest.importorskip("fla", exc_type=ImportError)
    for name in ("gsa", "retnet", "hgrn", "hgrn2"):
        for label in (f"fla:{name}", f"fla:{name}!"):
            assert solve(label, *size).total > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_the_library_fit_the_budget_and_are_counted_to_the_unit(name):
    pytest.importorskip("fla", exc_type=ImportError)
    size = Size(d_model=128, n_head=2, max_len=64)
    found = budget.solve(budget.Label(name), size)
    layer = budget.make(budget.Label(name), size.d_model, found.options, "cpu")
    assert sum(p.numel() for p in layer.parameters()) == found.total
    assert 0.8 < found.ratio <= 1
    counts = [
        sum(budget._count(budget.Label(name), 128, options)[0].values()) for options in LAYERS[name].candidates(128, 2)
    ]
    assert counts == sorted(counts)


def test_the_token_shift_is_part_of_the_state_and_not_of_the_recurrence(made_up):
    found = solve("fla:rwkv7", 64, 2)
    assert found.ranks["state"] == found.recurrent + 64 == 64 * found.ranks["vo"] // 2 + 64


def test_what_mamba_3_carries_beside_its_state_is_the_last_key_value_and_angles():
    layer = SimpleNamespace(num_heads=4, num_rope_angles=6, ssm_state_size=24, head_dim=32)
    assert LAYERS["mamba3"].carried(layer) == 4 * (6 + 24 + 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_the_state_of_the_library_s_layers_is_that_of_their_formulas(name):
    """Numbers carried per layer: the recurrence, windows of W - 1 = 3 taps, token shifts; of PaTH, the cache too."""
    pytest.importorskip("fla", exc_type=ImportError)
    heads, d = 2, 128
    found = budget.solve(budget.Label(name), Size(d_model=d, n_head=heads, max_len=64))
    qk, vo = found.ranks.get("qk", 0), found.ranks["vo"]
    outer = qk * vo // heads
    layer = budget.make(budget.Label(name), d, found.options, "meta")
    expected = {
        "hgrn": vo,
        "gsa": qk // heads * (qk + vo),
        "deltanet": outer + 3 * (2 * qk + vo),
        "gated-deltanet": outer + 3 * (2 * qk + vo),
        "kda": outer + 3 * (2 * qk + vo),
        "gated-deltaproduct": outer + 3 * (qk + 2 * qk + 2 * vo),
        "rwkv7": outer + d,
        "mamba2": vo * qk + 3 * (vo + 2 * qk),
        "path": 2 * vo,
    }
    if name == "mamba3":
        held = layer.allocate_inference_cache(1, 64, device="meta")
        expected["mamba3"] = sum(tensor.numel() for tensor in held)
    assert found.ranks["state"] == expected.get(name, outer)
    assert found.cache == (2 * vo if name == "path" else 0)
    if name == "gated-deltanet":
        assert found.ranks["state"] == 4584
