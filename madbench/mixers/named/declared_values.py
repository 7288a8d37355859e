"""Initial values of a layer as its parts declare them, for operators that change some of them."""

from __future__ import annotations

import torch

from madbench.mixers.named.layer import INIT_STD, NamedLayer, draw
from madbench.mixers.named.parts import Vector


@torch.no_grad()
def draw_declared(layer: NamedLayer) -> None:
    """Draws all parameters of a layer whose linear maps have no initial values of their own.

    Linear maps and taps: N(0, 0.02^2). Biases: 0. Gains: 1. Vectors: as declared.
    """
    parts = layer.operator.parts(layer.dims)
    for name, parameter in layer.named_parameters():
        part = parts.get(name)
        if isinstance(part, Vector):
            draw(parameter, part.init)
        elif name.endswith(".bias"):
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.fill_(1)
        else:
            parameter.normal_(std=INIT_STD)
