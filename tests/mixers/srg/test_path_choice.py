"""Paths that compute only some letters refuse a new letter, and decoding does not use them for it."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
import torch

from madbench.errors import TrainingError
from madbench.mixers import Size
from madbench.mixers.srg import grammar
from madbench.mixers.srg.budget import solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.kernels import fused

ACTS_ON_SCORES = next(field.default for field in fields(grammar.Letter) if field.name == "acts_on_scores")
ALL_TOGETHER = {"sdpa", "tiled", "fused"}


@pytest.fixture
def refused_paths(monkeypatch):
    """``refused_paths(label)``: the refused paths that compute only some letters, with the messages."""
    monkeypatch.setattr(fused, "has_triton", lambda: True)

    def refused_paths(label):
        refused = {}
        for path in ALL_TOGETHER:
            try:
                make(label, path)
            except TrainingError as error:
                refused[path] = str(error)
        return refused

    return refused_paths


@pytest.fixture
def e_is_new(monkeypatch):
    """Treat the letter e as a new letter whose row says nothing about scores."""
    rows = tuple(replace(row, acts_on_scores=ACTS_ON_SCORES) if row.letter == "e" else row for row in grammar.LETTERS)
    monkeypatch.setattr(grammar, "LETTERS", rows)


def make(label, path="auto"):
    torch.manual_seed(0)
    return DynamicMLP(solve(grammar.from_letters(label), Size(16, 2, 6, "paper")), path=path).double()


LABELS = {"S-e": {"fused"}, "S-we": {"fused"}, "D-e": {"fused"}, "R-pe": {"sdpa"}, "G-ce-q-12o": {"sdpa"}}
"""Labels with e, and the paths that refuse them for another reason."""


@pytest.mark.parametrize("label", LABELS)
def test_paths_that_refuse_a_new_letter_depend_on_where_it_acts(refused_paths, label):
    assert refused_paths(label).keys() == LABELS[label]


@pytest.mark.parametrize("label", LABELS)
def test_a_new_letter_is_refused_by_every_path_that_does_not_know_it(e_is_new, refused_paths, label):
    refused = refused_paths(label)
    assert refused.keys() == ALL_TOGETHER
    new_letter = r"the label has ('e' \(exclusive\)|.*, 'e'|.* and 'e'|.*'e' and .*|.*'e', .*); use 'auto'$"
    assert all(re.search(f"cannot compute {label}: .*{new_letter}", why) for why in refused.values())
    assert make(label).resolve_path(1, 6) == make(label).resolve_path(64, 6) == "dense"


@pytest.mark.parametrize("label", ["S-e", "S-we"])
def test_steps_with_a_new_letter_do_not_use_torchs_attention(e_is_new, monkeypatch, label):
    mixer, x = make(label), torch.randn(2, 6, 16, dtype=torch.float64)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
    rows, cache = mixer(x), None
    for token, row in zip(x.unbind(1), rows.unbind(1), strict=True):
        y, cache = mixer.step(token, cache)
        torch.testing.assert_close(y, row)
