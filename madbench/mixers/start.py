"""Where training starts: parameters drawn again, as on a module that was built on ``meta``."""

from __future__ import annotations

from torch import nn


def redraw_parts(module: nn.Module) -> None:
    """Draws the parameters of the parts of ``module`` again, in the order in which its constructor made them.

    So that from one seed what is drawn after them is what it is in the constructor.
    """
    for part in module.modules():
        if part is not module and hasattr(part, "reset_parameters"):
            part.reset_parameters()
