"""Drawing the initial parameters again after construction, for modules that were built on the device ``meta``."""

from __future__ import annotations

from typing import Any, cast

from torch import nn


def redraw_parts(module: nn.Module) -> None:
    """Initialize the parameters of the submodules of ``module`` again, in the order of their registration.

    As many random numbers are drawn as by the constructor. With the same seed, draws after this call therefore equal
    the draws after the construction of the submodules.
    """
    for part in module.modules():
        if part is not module and hasattr(part, "reset_parameters"):
            cast(Any, part).reset_parameters()
