"""A layer of flash-linear-attention as a mixer: (B, T, D) -> (B, T, D)."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError
from madbench.mixers.fla.budget import LayerAllocation, make
from madbench.mixers.fla.layers import LAYERS
from madbench.mixers.inputs import check_sequences

DEVICE = "cuda"
"""The device type that the library's kernels support."""


class FlaMixer(nn.Module):
    """A layer with the options of ``allocation`` and exactly its number of parameters.

    Linear maps start from N(0, 0.02^2) and biases from zero, as in the library's own models, unless the layer
    initializes its weights itself. Raises ``TrainingError`` if there is no GPU, which the Triton kernels need.
    """

    def __init__(self, allocation: LayerAllocation, path: str = "auto"):
        super().__init__()
        if path != "auto":
            raise TrainingError(f"path {path!r} is not known: {allocation.label} has only the library's kernels")
        label, layer = allocation.label, LAYERS[allocation.label.layer]
        if not torch.get_device_module(DEVICE).is_available():
            instead = f"; {layer.counterpart} computes the same on a CPU" if layer.counterpart else ""
            raise TrainingError(f"{label} runs on a CUDA GPU only, and there is none here{instead}")
        self.allocation = allocation
        # not get_default_device, which ignores `with torch.device(...)` in torch 2.6
        self.layer = self._new_layer(torch.empty(0).device)
        if layer.needs and getattr(sys.modules[type(self.layer).__module__], layer.needs) is None:
            raise TrainingError(f"{label} needs kernels of state-spaces/mamba too: pip install mamba-ssm")

    def _new_layer(self, device: torch.device) -> nn.Module:
        """A newly initialized layer."""
        allocation = self.allocation
        layer = make(allocation.label, allocation.size.d_model, allocation.options, device)
        if not LAYERS[allocation.label.layer].keeps_init:
            for module in layer.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=0.02)
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
        return layer

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initializes the weights again. With one seed they equal those of a new mixer."""
        new = self._new_layer(next(self.layer.parameters()).device)
        for kind in (nn.Module.parameters, nn.Module.buffers):
            for tensor, start in zip(kind(self.layer), kind(new), strict=True):
                tensor.copy_(start)

    @property
    def o(self) -> nn.Linear:
        """The projection that writes to the residual stream."""
        return self.layer.get_submodule(LAYERS[self.allocation.label.layer].output)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D). Raises ``TrainingError`` for another shape, integers, or x on the CPU."""
        check_sequences(x, self.allocation.label)
        if x.device.type != DEVICE:
            raise TrainingError(
                f"{self.allocation.label} computes on a CUDA GPU only, not on {x.device}: --device cuda"
            )
        if not len(x):  # the kernels do not accept an empty batch
            return self.o(x[..., :1].expand(*x.shape[:-1], self.o.in_features))
        output = self.layer(x)
        return output[0] if isinstance(output, tuple) else output

    def resolve_path(self, batch: int, length: int) -> str:
        """Returns the only path: the library's kernels."""
        return "fla"
