"""Repeated initialization of parameters, for modules that were built on ``meta``."""

from __future__ import annotations

from torch import nn


def redraw_parts(module: nn.Module) -> None:
    """Initializes the parameters of the parts of ``module`` again, in the order of its constructor.

    With one seed, the numbers drawn afterwards are therefore the same as in the constructor.
    """
    for part in module.modules():
        if part is not module and hasattr(part, "reset_parameters"):
            part.reset_parameters()
