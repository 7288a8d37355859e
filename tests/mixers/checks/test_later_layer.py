"""Checks of a later layer of a model, which differs from the first layer of its label."""

from __future__ import annotations

import pytest

from madbench.labels import as_label, family_of
from madbench.mixers.checks import run_checks
from madbench.mixers.checks.later_layer import LATER
from madbench.mixers.named.operators import OPERATORS
from madbench.mixers.named.operators.rwkv7 import RWKV7
from madbench.mixers.named.recurrent_layer import RecurrentLayer

PATHS = ("later layer dense", "later layer chunked", "later layer step")
NAMES = ("path dense", "later layer scan", *PATHS)


def failures(label: str) -> dict[str, str]:
    """The failing checks of a later layer, and of path dense of its first layer: check to the place of the error."""
    outcomes = {each.check.name: each for each in run_checks(label, names=NAMES)}
    assert {"path dense", "later layer step"} < {*outcomes}
    return {name: each.where for name, each in outcomes.items() if each.verdict != "pass"}


@pytest.mark.slow
@pytest.mark.parametrize("label", ["RWKV-7", "RWKV-7!", "HGRN(bound)", "HGRN2(bound)", "mLSTM"])
def test_later_layers_equal_their_reference_loops(label):
    assert failures(label) == {}


def test_every_operator_whose_layers_differ_has_the_checks():
    family = family_of("KDA")
    differ = {label.operator.name for label in family.labels() if family.takes_layer(label)}
    assert differ == {"RWKV-7", "HGRN", "HGRN2", "mLSTM"} and LATER.earlier
    assert all(operator.takes_layer for operator in OPERATORS.values() if operator.shares_values)
    for name, has_checks in (("KDA", False), ("HGRN2", False), ("HGRN2(bound)", True)):
        names = {check.name for check in family.checks(as_label(name))}
        assert (set(PATHS) <= names) == has_checks, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "place"), [(lambda values: 2 * values, ""), (lambda values: values.detach(), "gradient of first.")]
)
def test_wrong_values_and_lost_gradients_fail_only_the_later_layer_checks(monkeypatch, wrong, place):
    right = RWKV7.rows

    def rows(self, layer, x, carried, shared=None):
        if not layer.dims.is_first:
            shared = {name: wrong(values) for name, values in shared.items()}
        return right(self, layer, x, carried, shared)

    monkeypatch.setattr(RWKV7, "rows", rows)
    failed = failures("RWKV-7")
    assert {*failed} == {*PATHS} and all(where.startswith(place) for where in failed.values()), failed


@pytest.mark.slow
def test_a_step_that_drops_shared_values_fails_only_its_check(monkeypatch):
    right = RecurrentLayer.step
    monkeypatch.setattr(RecurrentLayer, "step", lambda self, x, cache=None, **_: right(self, x, cache))
    assert {*failures("RWKV-7")} == {"later layer step"}
