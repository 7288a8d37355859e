"""Values that functions accept as labels: texts, module classes and parsed labels."""

from __future__ import annotations

import pathlib

import pytest

import madbench
from madbench.errors import LabelError
from madbench.labels import label_identity, parse
from madbench.labels.parsing import as_label
from madbench.mixers import solve, used_settings
from madbench.mixers.sequence import block_period


@pytest.mark.parametrize("value", [5, None, b"S", ["S"], ("S",), {"S": 1}, pathlib.PurePath("S"), 1.5])
@pytest.mark.parametrize(
    "call",
    [
        parse,
        as_label,
        used_settings,
        block_period,
        label_identity,
        lambda label: madbench.build(label, 8, 8),
        lambda label: solve(label, 8),
    ],
)
def test_a_value_that_is_no_label_is_refused_by_its_type(call, value):
    with pytest.raises(LabelError, match=f"a label is text such as 'G-cg-q-12o', got {type(value).__name__}$"):
        call(value)


@pytest.mark.parametrize("text", ["G-cg-q-12o", "KDA", "3xKDA/S-p", "hfa:2", "cd:exp", "my:torch.nn.Identity"])
def test_a_parsed_label_is_returned_unchanged(text):
    label = parse(text)
    assert as_label(label) is label
