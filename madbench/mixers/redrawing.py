"""Drawing the initial parameters again after construction, for modules that were built on the device ``meta``."""

from __future__ import annotations

from typing import Any, cast

from torch import nn


def redraw_parts(module: nn.Module) -> None:
    """Initialize the parameters of the submodules of ``module`` again, in the order of their registration.

    This draws as many random numbers as the constructors of the submodules. With the same seed, later draws are
    therefore equal, whether the submodules were constructed or initialized again.
    """
    for part in module.modules():
        if part is not module and hasattr(part, "reset_parameters"):
            cast(Any, part).reset_parameters()
