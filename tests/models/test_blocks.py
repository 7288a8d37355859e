"""The autocast context of a precision."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from madbench.errors import ConfigError
from madbench.jobs import Precision
from madbench.models.blocks import autocast


@pytest.mark.parametrize("precision", get_args(Precision))
def test_only_bfloat16_changes_the_dtype_of_products(precision):
    x = torch.ones(2, 2)
    with autocast("cpu", precision):
        assert (x @ x).dtype == (torch.bfloat16 if precision == "bfloat16" else torch.float32)


@pytest.mark.parametrize("precision", ["float16", "bf16", "", "auto", None])
def test_an_unknown_precision_has_no_context(precision):
    with pytest.raises(ConfigError, match=f"precision {precision!r} is not known; expected one of: float32, bfloat16"):
        autocast("cpu", precision)
