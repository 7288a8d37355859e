"""The example package of a family, found through its entry point as an installed one is."""

from __future__ import annotations

import pytest
import torch

from madbench import build
from madbench.errors import BudgetError, ConfigError, LabelError, TrainingError
from madbench.labels import differing_factors, expand, explain, family_identity, family_of, parse
from madbench.mixers import solve
from madbench.mixers.checks import run_check

LABELS = ("lin:elu", "lin:elu-g", "lin:relu", "lin:relu-g", "lin:id", "lin:id-g")


@pytest.fixture(autouse=True)
def installed(install_example):
    install_example("plugin")


@pytest.mark.slow
def test_labels_are_read_and_written():
    assert [str(parse(label)) for label in LABELS] == list(LABELS)
    assert expand(["~lin:elu"]) == ["lin:elu", "lin:relu", "lin:id", "lin:elu-g"]
    assert differing_factors(parse("lin:elu"), parse("lin:relu-g")) == ("map", "gate")
    with pytest.raises(LabelError, match="did you mean 'lin:elu'"):
        parse("lin:elo")


@pytest.mark.slow
def test_the_identity_has_version_distribution_and_source():
    version, distribution, source = family_identity(family_of("lin:elu")).split("+")
    assert (version, distribution, len(source)) == ("1", "0.1.0", len("code1-") + 32)


@pytest.mark.slow
def test_the_module_has_the_parameters_of_its_allocation_within_the_budget():
    for label in LABELS:
        mixer = build(label, 48, 20, n_head=3)
        assert sum(parameter.numel() for parameter in mixer.parameters()) == mixer.allocation.total, label
        assert 0.9 < mixer.allocation.ratio <= 1
        assert solve(label, 48, 3, 20, "paper").ranks == {"r": 48}
        with pytest.raises(BudgetError, match="too narrow"):
            solve(label, 2, 4, 20)
        with pytest.raises(BudgetError, match="its family chooses ranks by parameters, and cannot match FLOPs"):
            solve(label, 48, 3, 20, "flops")


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lin:elu", "lin:relu-g", "lin:id"])
def test_every_check_holds(label):
    checks = {check.name: check for check in family_of(label).checks(parse(label))}
    assert set(checks) == {
        "parameters", "causality", "gradients", "steps", "state", "bfloat16", "bfloat16 sums", "ordinary size",
        "settings", "effect of settings",
    }  # fmt: skip
    for check in checks.values():
        assert run_check(check).verdict in ("pass", "not applicable"), check.name


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lin:elu", "lin:relu-g", "lin:id"])
def test_the_mixer_of_the_plugin_equals_the_sum_over_the_prefix(label):
    torch.manual_seed(0)
    mixer = build(label, 8, 6, n_head=1).double()
    x = torch.randn(1, 6, 8).double()
    features = {
        "elu": lambda t: torch.where(t > 0, t + 1, t.exp()),
        "relu": lambda t: t.clamp(min=0),
        "id": lambda t: t,
    }
    phi = features[mixer.allocation.label.map]
    q, k, v = (x[0] @ mixer.qkv.weight.T).chunk(3, dim=-1)
    for t in range(6):
        weights = torch.stack([phi(q[t]) @ phi(k[i]) for i in range(t + 1)])
        o = weights @ v[: t + 1]
        if mixer.allocation.label.map != "id":
            o = o / (weights.sum() + 1e-6)
        if mixer.gate is not None:
            o = o * torch.sigmoid(mixer.gate.weight @ x[0, t] + mixer.gate.bias)
        torch.testing.assert_close(mixer(x)[0, t], mixer.o.weight @ o)


@pytest.mark.slow
def test_the_plugin_has_its_own_settings_and_paths():
    assert build("lin:elu", 16, 8, eps=1e-3).eps == 1e-3
    with pytest.raises(ConfigError, match="settings of lin:elu: unknown key 'mix_rank'"):
        build("lin:elu", 16, 8, mix_rank=4)
    with pytest.raises(ConfigError, match="eps must be positive"):
        build("lin:elu", 16, 8, eps=0.0)
    with pytest.raises(TrainingError, match="path 'chunked'"):
        build("lin:elu", 16, 8, path="chunked")


@pytest.mark.slow
def test_every_letter_is_explained():
    assert [row.letter for row in explain(parse("lin:relu-g"))] == ["relu", "g"]
