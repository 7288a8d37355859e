"""Proposition 1: attention without RoPE and convolution does not see the order of earlier tokens.

A row of softmax attention is a sum over the tokens that it sees, and no term depends on a token's place. RoPE turns
queries and keys by their places, and a convolution mixes neighbors, so that with either of them the order matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from madbench.mixers import Check, Label, build

WORKED_OUT = {"S": False, "S-p": True, "S-c": True}
"""The labels for which the proposition was worked out. True if the order of earlier tokens matters."""
D_MODEL, TOKENS = 16, 12
TOLERANCE = 1e-10
"""Far above the rounding errors of float64, and far below the effect of an order."""


def checks(label: Label) -> Iterator[Check]:
    """The checks of a label. Nothing for a label for which the proposition was not worked out."""
    if str(label) not in WORKED_OUT:
        return
    matters = WORKED_OUT[str(label)]
    statement = f"The last row {'depends' if matters else 'does not depend'} on the order of the tokens before it."
    change = partial(change_of_last_row, str(label))
    yield Check("order of tokens", statement, "Proposition 1", change, TOLERANCE, is_difference=matters)


def change_of_last_row(label: str) -> float:
    """The largest change of the last output row, relative to it, if the earlier tokens are reversed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer = build(label, D_MODEL, TOKENS).double().eval()
        x = torch.randn(1, TOKENS, D_MODEL, dtype=torch.float64)
    reversed_x = torch.cat((x[:, :-1].flip(1), x[:, -1:]), dim=1)
    with torch.no_grad():
        before, after = (mixer(each)[:, -1] for each in (x, reversed_x))
    return float((after - before).abs().max() / before.abs().max())
