"""A user's module as a label, given by class, entry point or path. Modules that are not causal are refused."""

from __future__ import annotations

import re
import sys

import pytest
import torch

import madbench
from installed import forget_installed
from madbench.errors import LabelError, ModuleError
from madbench.labels import expand, family_of, label_identity, parse, trust
from madbench.mixers import solve
from madbench.mixers.checks import run_checks

MODULES = """\
import torch
from torch import nn

class Mean(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        steps = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return self.out(x.cumsum(1, dtype=torch.promote_types(x.dtype, torch.float32)) / steps)

class Ahead(Mean):
    def forward(self, x):
        return self.out(x.mean(1, keepdim=True).expand_as(x))

class Narrow(Mean):
    def forward(self, x):
        return super().forward(x)[..., :-1]

class Needy(nn.Module):
    def __init__(self, d_model, kernel):
        super().__init__()

class Stateful(Mean):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.register_buffer("last", torch.zeros(d_model))

    def forward(self, x):
        y = super().forward(x) + self.last
        self.last = x.mean((0, 1)).detach()
        return y

class Counting(Mean):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls

class AcrossTheBatch(Mean):
    def forward(self, x):
        return super().forward(x) - x.mean(0, keepdim=True)

class BatchNorm(Mean):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x):
        return self.norm(super().forward(x).transpose(1, 2)).transpose(1, 2)

class LaterAhead(Mean):
    def forward(self, x):
        return super().forward(x) + (x.mean(1, keepdim=True) if x.shape[1] > 16 else 0)

class Double(Mean):
    def forward(self, x):
        return super().forward(x).double()

class NotANumber(Mean):
    def forward(self, x):
        return super().forward(x) * float("nan")

class InPlace(Mean):
    def forward(self, x):
        return super().forward(x.mul_(2))

class Lazy(Mean):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.out = nn.LazyLinear(d_model)

class Exits(Mean):
    def __init__(self, d_model):
        raise SystemExit(3)

class Pair(Mean):
    def forward(self, x):
        return super().forward(x), None

class Dropped(Mean):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.1, self.training)

class Masked(Mean):
    def __init__(self, d_model, max_len):
        super().__init__(d_model)
        self.register_buffer("mask", torch.ones(max_len, max_len).tril())

    def forward(self, x):
        mask = self.mask[: x.shape[1], : x.shape[1]].to(x.dtype)
        return self.out(mask / mask.sum(1, keepdim=True) @ x)

class Positive(Mean):  # not a number where its rate is below zero, which it is not as drawn
    def __init__(self, d_model):
        super().__init__(d_model)
        self.rate = nn.Parameter(torch.full((d_model,), 1e-6))

    def forward(self, x):
        return super().forward(x * self.rate.sqrt())

class Floats(Mean):
    def forward(self, x):
        return self.out(super().forward(x).float().exp().to(x.dtype))

class OverFeatures(Mean):
    def forward(self, x):
        y = super().forward(x)
        return self.out(y / (1 + y.square().sum(-1, keepdim=True)).sqrt())

class OverTokens(Mean):
    def forward(self, x):
        return super().forward(self.out(x).cumsum(1))

class Detached(Mean):
    def forward(self, x):
        return super().forward(x).float().double().detach().to(x.dtype) * x.sigmoid()

class NotAModule:
    pass

Layer = nn.TransformerEncoderLayer
ONE = Mean(16)

def same(d_model):
    return ONE

def mean(dim):
    return Mean(dim)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """``own_mixers.py`` and an entry point in the working folder, imported again for each test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_mixers.py").write_text(MODULES)
    (tmp_path / "mixers.yaml").write_text("mean: own_mixers:Mean\n")
    forget_installed()
    names = [*re.findall(r"^(?:class|def) (\w+)", MODULES, re.MULTILINE), "Layer", "ONE", "nn"]
    trust.allow(f"my:own_mixers.{name}" for name in names)
    yield tmp_path / "own_mixers.py"
    trust.forget_allowed()
    sys.modules.pop("own_mixers", None)
    forget_installed()


def test_entry_point_path_and_class_give_one_label():
    expected = ["my:own_mixers.Mean"]
    assert expand(["my:mean"]) == expand(["my:own_mixers:Mean"]) == expand(expected) == expected
    from own_mixers import Mean

    assert expand(Mean) == expected and expand(["S", Mean]) == ["S", *expected]


@pytest.mark.slow
def test_the_parameters_of_a_module_are_counted_and_no_rank_is_solved():
    allocation = solve("my:mean", 16)
    assert (allocation.total, allocation.ranks, allocation.ratio) == (16 * 17, {}, 16 * 17 / (4 * 16**2))
    mixer = madbench.build("my:own_mixers.mean", 16, 8)
    assert sum(parameter.numel() for parameter in mixer.parameters()) == 16 * 17
    assert mixer(torch.randn(2, 8, 16)).shape == (2, 8, 16)


@pytest.mark.slow
def test_a_causal_module_passes_every_check():
    frame = madbench.verify("my:mean")
    assert {"causality", "steps", "prefill", "use"} <= set(frame.check) and set(frame.verdict) == {"pass"}


@pytest.mark.slow
def test_a_module_that_looks_ahead_is_refused_and_verify_measures_it():
    with pytest.raises(ModuleError, match="is not causal: row 0 changes with the later token 1"):
        solve("my:own_mixers.Ahead", 16)
    verdicts = madbench.verify("my:own_mixers.Ahead").set_index("check").verdict
    assert verdicts["causality"] == "fail"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Narrow", r"shape \(2, 32, 15\)"),
        ("Needy", "needs 'kernel'"),
        ("same", "share parameters"),
        ("Stateful", "keeps state between calls"),
        ("Counting", "keeps state between calls"),
        ("AcrossTheBatch", "mixes the examples of a batch"),
        ("BatchNorm", "mixes the examples of a batch"),
        ("Layer", "mixes the examples of a batch: .* batch first"),
        ("LaterAhead", "is not causal: row 0 changes with the later token 1"),
        ("Double", "its output has dtype torch.float64 and its input torch.float32"),
        ("NotANumber", "NaN or infinity"),
        ("InPlace", "changes its input in place"),
        ("Lazy", "'out.weight' has no shape before the first input"),
        ("Exits", "SystemExit: 3"),
        ("Pair", "a tuple; .* return only the first value"),
    ],
)
def test_a_class_that_is_not_a_mixer_is_refused_with_advice(name, problem):
    with pytest.raises(ModuleError, match=problem):
        solve(f"my:own_mixers.{name}", 16, n_head=2, max_len=32)


def test_a_plan_of_a_module_that_fails_names_the_task_and_is_no_error_of_the_budget():
    with pytest.raises(ModuleError, match="^compression at seq_len .*: my:own_mixers.Exits at d_model .*SystemExit: 3"):
        madbench.plan("my:own_mixers.Exits", tasks="compression", profile="quick")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Mean", "Dropped", "Masked", "Positive", "mean"])
def test_causal_modules_have_no_leak(name):
    assert not solve(f"my:own_mixers.{name}", 16, n_head=2, max_len=32).leak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check", "expected", "unexpected"),
    [
        ("Floats", "gradients", "runs in float64 and the module rounds to float32, for example with .float()", ""),
        ("Detached", "gradients", "gradient of module.out", "float"),
        ("Ahead", "causality", "before token", "float"),
        ("OverFeatures", "bfloat16 sums", "sum over features", "tokens"),
        ("OverTokens", "bfloat16 sums", "cumsum over tokens", "features"),
    ],
)
def test_verify_names_the_true_cause_of_a_failed_check(name, check, expected, unexpected):
    (outcome,) = run_checks(f"my:own_mixers.{name}", names=(check,))
    assert outcome.verdict == "fail" and expected in outcome.row["reason"]
    assert not unexpected or unexpected not in outcome.row["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AcrossTheBatch", "Stateful", "BatchNorm"])
def test_verify_finds_modules_that_mix_batch_rows_or_keep_state(name):
    verdicts = madbench.verify(f"my:own_mixers.{name}").set_index("check").verdict
    assert verdicts["alone"] == "fail"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ONE", "one Mean that exists already"),
        ("NotAModule", "subclass of torch.nn.Module, but NotAModule is none"),
        ("nn", "got <module 'torch.nn'"),
    ],
)
def test_a_name_that_does_not_give_a_module_is_a_label_error(name, problem):
    with pytest.raises(LabelError, match=problem):
        label_identity(f"my:own_mixers.{name}")


def test_a_class_that_other_processes_cannot_import_is_a_label_error():
    from own_mixers import Mean

    class Local(Mean):
        pass

    for value, problem in (
        (lambda d: Mean(d), "lambda"),
        (Local, "inside a function"),
        (Mean(16), "an object of Mean"),
    ):
        with pytest.raises(LabelError, match=problem):
            madbench.parse(value)


def test_the_identity_of_a_module_changes_after_an_edit(modules):
    first = label_identity("my:mean")
    modules.write_text(MODULES.replace("x.cumsum(1", "2 * x.cumsum(1"))
    with pytest.raises(LabelError, match="edited after this process imported it"):
        label_identity("my:mean")
    sys.modules.pop("own_mixers")
    forget_installed()
    assert label_identity("my:mean") != first
    modules.unlink()
    sys.modules.pop("own_mixers")
    forget_installed()
    with pytest.raises(LabelError, match="no module 'own_mixers'"):
        label_identity("my:own_mixers.Mean")


def test_a_misspelled_entry_names_the_nearest():
    with pytest.raises(LabelError, match="did you mean 'mean'"):
        madbench.parse("my:maen")


def test_a_misspelled_class_names_the_nearest_class_of_its_file():
    trust.allow(["my:own_mixers.Narow", "my:own_mixers.Modul"])
    with pytest.raises(LabelError, match="has no attribute 'Narow'; did you mean 'Narrow'"):
        label_identity("my:own_mixers.Narow")
    with pytest.raises(LabelError, match="has no attribute 'Modul'; expected one of: Mean, "):
        label_identity("my:own_mixers.Modul")


@pytest.mark.slow
def test_the_sample_is_a_sound_module_without_any_entry(modules):
    (modules.parent / "mixers.yaml").unlink()
    assert set(madbench.verify("my:mean").verdict) == {"pass"}


def test_a_module_is_explained_by_its_own_docstring_alone():
    row = parse("my:own_mixers.Mean")
    assert family_of(row).explain(row)[0].what == "A module of your own, without a docstring."
