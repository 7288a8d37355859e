"""Float16 compared with float64 loops: also the first rows of labels with small scores are accurate."""

from __future__ import annotations

import pytest
import torch

from madbench import mixers
from madbench.mixers.checks.residuals import decode_tokens

D, LENGTH = 32, 20
LABELS = [
    "R-cg-q",
    "G-cg-q",
    "L-cg-q",
    "R-cg-q-12",
    "G-cg-q-12o",
    "L-cg-q-12",
    "S-cg-q-12",
    "D-cg-q-12o",
    "R-pc",
    "G-cg-q",
]
LABELS += ["R-cgk-q-12", "G-cgk-q-12o", "R", "G-p"]
MOST_ERROR = 5e-3  # about five roundings of float16


def errors(y: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The relative error of each row, as the median over sequences, because a ReLU at its edge may switch in one of
    them. Rows that are zero in exact arithmetic count as right."""
    sizes = expected.norm(dim=-1)
    return torch.where(sizes > 0, (y.double() - expected).norm(dim=-1) / sizes, 0).median(0).values


@pytest.mark.slow
@pytest.mark.parametrize("is_cast", [False, True])
@pytest.mark.parametrize("label", LABELS)
def test_float16_outputs_and_steps_are_within_a_few_roundings(label, is_cast):
    torch.manual_seed(0)
    mixer = mixers.build(label, D, LENGTH, n_head=2, budget="paper").eval().requires_grad_(False)
    x = torch.randn(4, LENGTH, D)
    if not is_cast:
        mixer, x = mixer.half(), x.half()
    expected = mixer.reference(x)
    for path in ("dense", "chunked"):
        mixer.path, mixer.chunk = path, 8
        with torch.autocast("cpu", torch.float16, enabled=is_cast):
            assert errors(mixer(x), expected).max() < MOST_ERROR, path
    for has_gradients in (True, False):  # without, steps in other dtypes read copies of the weights
        with torch.autocast("cpu", torch.float16, enabled=is_cast), torch.set_grad_enabled(has_gradients):
            assert errors(decode_tokens(mixer, x), expected).max() < MOST_ERROR
