"""A user's own module as a label: from a class, an entry or a path, refused where it is no causal mixer."""

from __future__ import annotations

import sys

import pytest
import torch

import madbench
from conftest import forget_installed
from madbench.errors import BudgetError, LabelError
from madbench.labels import expand, family_of, label_identity, parse, unreadable
from madbench.mixers import solve

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

ONE = Mean(16)

def same(d_model):
    return ONE

def mean(dim):
    return Mean(dim)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """``own_mixers.py`` and an entry in the working folder, imported anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_mixers.py").write_text(MODULES)
    (tmp_path / "mixers.yaml").write_text("mean: own_mixers:Mean\n")
    forget_installed()
    yield tmp_path / "own_mixers.py"
    sys.modules.pop("own_mixers", None)
    forget_installed()


def test_entry_path_and_class_are_one_label():
    expected = ["my:own_mixers.Mean"]
    assert expand(["my:mean"]) == expand(["my:own_mixers:Mean"]) == expand(expected) == expected
    from own_mixers import Mean

    assert expand(Mean) == expected and expand(["S", Mean]) == ["S", *expected]


def test_parameters_are_measured_and_no_rank_is_solved():
    allocation = solve("my:mean", 16)
    assert (allocation.total, allocation.ranks, allocation.ratio) == (16 * 17, {}, 16 * 17 / (4 * 16**2))
    mixer = madbench.build("my:own_mixers.mean", 16, 8)
    assert sum(parameter.numel() for parameter in mixer.parameters()) == 16 * 17
    assert mixer(torch.randn(2, 8, 16)).shape == (2, 8, 16)


def test_every_check_holds_of_a_causal_module():
    frame = madbench.verify("my:mean")
    assert {"causality", "steps", "prefill", "use"} <= set(frame.check) and set(frame.verdict) == {"pass"}


def test_a_module_that_looks_ahead_is_refused_and_verify_measures_it():
    with pytest.raises(BudgetError, match="is not causal: row 0 changes with token 1"):
        solve("my:own_mixers.Ahead", 16)
    verdicts = madbench.verify("my:own_mixers.Ahead").set_index("check").verdict
    assert verdicts["causality"] == "fail"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("Narrow", r"shape \(2, 8, 15\)"), ("Needy", "needs 'kernel'"), ("same", "share parameters")],
)
def test_what_is_no_mixer_is_refused_with_what_to_do(name, problem):
    with pytest.raises(BudgetError, match=problem):
        solve(f"my:own_mixers.{name}", 16)


def test_what_other_processes_cannot_import_is_no_label():
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


def test_another_source_is_another_job_and_one_that_is_gone_is_said(modules):
    first = label_identity("my:mean")
    modules.write_text(MODULES + "# edited\n")
    with pytest.raises(LabelError, match="edited after this process imported it"):
        label_identity("my:mean")
    forget_installed()
    assert label_identity("my:mean") != first
    modules.unlink()
    sys.modules.pop("own_mixers")
    forget_installed()
    assert "no module 'own_mixers'" in unreadable("my:own_mixers.Mean")


def test_a_misspelt_entry_names_the_nearest():
    with pytest.raises(LabelError, match="did you mean 'mean'"):
        madbench.parse("my:maen")


def test_the_sample_is_a_sound_module_without_any_entry(modules):
    (modules.parent / "mixers.yaml").unlink()
    assert set(madbench.verify("my:mean").verdict) == {"pass"}


def test_a_module_is_explained_by_its_own_docstring_alone():
    row = parse("my:own_mixers.Mean")
    assert family_of(row).explain(row)[0].what == "A module of your own, without a docstring."
