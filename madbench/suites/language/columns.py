"""The columns of tables of language models.

To add a column, add a ``Column`` to this module, compute its number in
:func:`madbench.suites.language.curves.run_losses`, and show it in
:class:`madbench.suites.language.scores.LanguageScoring`.
"""

from __future__ import annotations

import math
from typing import Any

from madbench.suites.columns import Column

LOSS = "loss_l5"
"""The name of the column with the language model's L5 (:func:`madbench.suites.columns.loss_l5`)."""
PERPLEXITY = "perplexity"
"""The name of the column with the exponential of the last validation loss."""
SPEED = "tokens_per_second"
STEPS = "steps_to_"
"""The prefix of the names of columns that count the steps to a loss."""

_DETAIL: dict[str, Any] = {"is_compared": False, "is_attributed": False}
"""The fields of a column by which labels are not compared, and for which no factor effects are computed."""


def _loss(name: str, heading: str, **fields: Any) -> Column:
    """A column of losses in nats per token. ``fields`` add to the usual fields of such a column, or replace them."""
    usual = {
        "digits": 3,
        "better": "lower",
        "limits": (0.0, math.inf),
        "resolution": 0.001,
        "title": name,
        "unit": "nats_per_token",
        "difference": "nats per token of a loss",
        **_DETAIL,
    }
    return Column(name, heading, **(usual | fields))


def _perplexity(name: str, heading: str) -> Column:
    return Column(
        name,
        heading,
        digits=2,
        better="lower",
        limits=(1.0, math.inf),
        resolution=0.01,
        difference="points of perplexity",
        **_DETAIL,
    )


_OF_LOSS = (
    _loss(LOSS, "L5 loss",
        title="language model, L5", axis="L5, nats per token (less is better)",
        is_compared=True, is_attributed=True,
        legend="L5: mean of the last five training losses"),
    _loss("validation_loss", "Val loss", is_compared=True),
    _loss("validation_bits_per_byte", "Bits/byte"),
    _loss("equal_time_validation_loss", "Val, equal time",
        legend="Val, x s: validation loss after x seconds of training, which all runs have reached"),
)  # fmt: skip
_OF_PERPLEXITY = (_perplexity(PERPLEXITY, "PPL"), _perplexity("perplexity_l5", "PPL of 5"))
_OF_SPEED = Column(SPEED, "Tokens/s", digits=0, resolution=1.0, **_DETAIL)
COLUMNS = {column.name: column for column in (*_OF_LOSS, *_OF_PERPLEXITY, _OF_SPEED)}
"""The columns of losses, perplexities and speed, by name. Losses are in nats per token, or in bits per byte."""
LOSSES = tuple(column.name for column in _OF_LOSS)
"""The names of the columns of losses. A diverged run has no loss; tables count it with the loss of a uniform guess."""
PERPLEXITIES = tuple(column.name for column in _OF_PERPLEXITY)
"""The names of two columns: exp of the last validation loss, and exp of the mean of the last five validation losses."""


def steps_name(threshold: float) -> str:
    """The name of the column with the steps to a training loss below ``threshold``, such as ``steps_to_3.0`` for 3."""
    return f"{STEPS}{float(threshold)}"


def steps_column(name: str) -> Column:
    """The column with the steps to a training loss. ``name`` is a result of :func:`steps_name`."""
    threshold = name.removeprefix(STEPS)
    return Column(
        name,
        f"to {threshold}",
        digits=0,
        better="lower",
        limits=(0.0, math.inf),
        resolution=1.0,
        title=f"Steps {threshold}",
        unit="steps",
        difference="steps",
        is_steps=True,
        legend="to x: steps to a training loss below x",
        counts="[k/n] of steps: k of n seeds get there",
        **_DETAIL,
    )
