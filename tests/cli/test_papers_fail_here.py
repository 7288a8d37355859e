"""If an operator of madbench is broken, items that call it fail here without contradicting a paper.

Items of arithmetic do not change.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

import madbench
from madbench.labels import expand, family_of, parse
from madbench.mixers import Check, build
from madbench.mixers.cd import parts as cd_parts
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.checks.residuals import filled_mixer
from madbench.mixers.srg import parts
from madbench.papers import built_in, load_paper
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.mixers.ha.operator import HyperAttention
from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention
from madbench.papers.making import Request, measure_of, state_of_verdicts
from madbench.papers.operators import failing_operators, operators_of
from madbench.papers.settings import SettingsMeasure
from madbench.suites import checks_of

MIXERS = Path(madbench.__file__).parent / "mixers"
NAMES = ("operator", "parts", "forms", "coupling", "mixer", "dynamic_mlp", "block_attention", "tiled")
OPERATORS = {str(path) for name in NAMES for path in MIXERS.rglob(f"{name}.py")}


class Changed:
    """A module with some of its functions replaced."""

    def __init__(self, module: object, **functions: Callable):
        self.__dict__ |= functions
        self.module = module

    def __getattr__(self, name: str):
        return getattr(self.module, name)


def plant_abs_for_relu(patch):
    patch.setattr(parts, "F", Changed(parts.F, relu=torch.abs))
    patch.setitem(cd_parts.READOUTS, "relu", torch.abs)
    patch.setitem(cd_parts.FEATURES, "krelu", torch.abs)


def plant_no_norm(patch):
    patch.setattr(parts, "_norm", lambda h: torch.ones_like(h[..., :1]))


def plant_untransposed_mixing(patch):
    patch.setattr(parts.SequenceMixing, "right_transposed", parts.SequenceMixing.right)


def plant_squared_readout(patch):
    read_out, combine = cd_parts.read_out, CoefficientMixer._read_out
    patch.setattr(cd_parts, "read_out", lambda readout, s: read_out(readout, s).square())
    patch.setattr(CoefficientMixer, "_read_out", lambda self, y, x: combine(self, y.square(), x))
    for kind in (Coupling, HyperAttention, HyperFeatureAttention):
        own = kind.read_out
        patch.setattr(kind, "read_out", lambda self, o, own=own: own(self, o.square()))


def plant_exp_for_softplus(patch):
    patch.setattr(parts, "F", Changed(parts.F, softplus=torch.exp))
    patch.setattr(cd_parts, "softplus", torch.exp)
    patch.setitem(cd_parts.READOUTS, "softplus", torch.exp)
    patch.setitem(cd_parts.FEATURES, "ksoftplus", torch.exp)


def plant_garbage_mixing(patch):
    def garbage(operator: Callable) -> Callable:
        def noisy(*of, **options):
            made = operator(*of, **options)
            return made + torch.randn(made.shape, dtype=made.dtype)

        return noisy

    patch.setattr(parts.SequenceMixing, "_mix", garbage(parts.SequenceMixing._mix))
    patch.setattr(CoefficientMixer, "_combine_rows", garbage(CoefficientMixer._combine_rows))
    for kind in (Coupling, HyperAttention, HyperFeatureAttention):
        patch.setattr(kind, "attend", garbage(kind.attend))


FAULTS = [
    plant_abs_for_relu, plant_no_norm, plant_untransposed_mixing, plant_squared_readout, plant_exp_for_softplus,
    plant_garbage_mixing,
]  # fmt: skip


def items_without_training() -> list[Request]:
    """The items of these papers that neither train nor run another verb."""
    papers = map(load_paper, built_in())
    made = [Request(p, item) for p in papers for item in p.items if item.is_made_here]
    return [each for each in made if not (each.item.profiles or each.item.command)]


def operators(request: Request) -> list[str]:
    return operators_of(request, measure_of(request.item), None)


def output(label: str) -> torch.Tensor:
    """The output of a random mixer of the label."""
    mixer, x = filled_mixer(lambda: build(label, 48, 8, n_head=4, budget="paper", path="dense"))
    return mixer(x)


def every_check(label: str) -> Iterable[Check]:
    return (*family_of(label).checks(parse(label)), *checks_of(label))


def state(request: Request) -> str:
    return state_of_verdicts(measure_of(request.item).decide(request, None).verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("plant", FAULTS)
def test_items_that_call_a_broken_operator_fail_here_but_arithmetic_does_not(plant, monkeypatch):
    items = items_without_training()
    labels = dict.fromkeys(label for each in items for label in operators(each))
    right = {label: output(label) for label in labels}
    arithmetic = [each for each in items if each.item.checks and each.item.arithmetic]
    states = [state(each) for each in arithmetic]
    plant(monkeypatch)
    broken = {label for label in labels if not torch.allclose(output(label), right[label])}
    assert len(broken) > 2 and failing_operators(broken).keys() == broken
    assert [state(each) for each in arithmetic] == states
    called = [each for each in items if broken & {*operators(each)}]
    assert len(called) > 5 and not [each.item.id for each in called if each.item.arithmetic]


@pytest.mark.slow
def test_an_operator_that_is_broken_is_named_and_nothing_is_trained(main, monkeypatch, tmp_path):
    plant_abs_for_relu(monkeypatch)
    for item, label in (("lemmaB.2", "R"), ("table2", "G-cg-q-12o")):
        ended = main("paper", "hypermlp", item, "--results", tmp_path)
        assert ended.code == 1 and f"fails here: {label}" in ended.stdout and f"madbench verify {label}" in ended.stdout
        assert "contradicted" not in ended.stdout
    assert not (tmp_path / "runs").exists()
    listed = json.loads(main("paper", "hypermlp", "--results", tmp_path, "-f", "json").stdout)["items"]
    states = {row["item"]: row["state"] for row in listed}
    assert (states["lemmaB.2"], states["table2"]) == ("fails here", "fails here (quick)")
    lines = json.loads(main("paper", "--results", tmp_path, "-f", "json").stdout)["papers"]
    (hypermlp,) = [line for line in lines if line["paper"] == "hypermlp"]
    assert (hypermlp["made"], hypermlp["states"]["fails here"]) == (2, {"operator": 1, "trained": 1})


@pytest.mark.slow
def test_items_of_arithmetic_are_counted_separately(main, tmp_path):
    assert main("paper", "talk", "numbers", "--results", tmp_path).code == 0
    lines = json.loads(main("paper", "--results", tmp_path, "-f", "json").stdout)["papers"]
    (talk,) = [line for line in lines if line["paper"] == "talk"]
    assert talk["states"]["contradicted"] == {"arithmetic": 1}
    assert "arithmetic | contradicted" in main("paper", "talk", "--results", tmp_path).stdout


@pytest.mark.slow
def test_every_item_without_training_names_operators_or_is_arithmetic():
    named = {(each.paper.name, each.item.id): bool(operators(each)) for each in items_without_training()}
    assert named == {(each.paper.name, each.item.id): not each.item.arithmetic for each in items_without_training()}


@pytest.mark.slow
def test_arithmetic_calls_no_function_of_an_operator():
    called = set()

    def watch(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path in OPERATORS:
            called.add(path)

    for each in items_without_training():
        if each.item.arithmetic and not isinstance(measure_of(each.item), SettingsMeasure):
            names, labels = each.item.checks, expand(each.item.labels)
            checks = [check for label in labels for check in every_check(label) if check.name in names]
            decide = functools.partial(measure_of(each.item).decide, each, None)
            runs = [check.run for check in checks if check.run] or [decide]
            sys.setprofile(watch)
            try:
                for run in runs:
                    run()
            finally:
                sys.setprofile(None)
            assert not called, each.item.id
