"""A model for inputs of real numbers. It classifies a sequence of patches, or forecasts the last steps of a series."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from madbench.models.blocks import Backbone, RMSNorm, linear


class SignalModel(nn.Module):
    """A model of real numbers: a linear map of every token, mixers and SwiGLUs in turn, and a linear output.

    It has no position embeddings.

    Args:
        channels: number of real numbers per token.
        outputs: number of classes, or of numbers per predicted time step.
        horizon: number of time steps to predict, each from one of the last tokens. If 0, a class is predicted from the
            mean over tokens.
        d_model: width of the residual stream.
        n_layer: number of blocks, each of a mixer and a SwiGLU.
        make_mixer: returns a mixer. It is called once per block.
        mlp_width: inner width of the SwiGLUs; 0 is 8/3 ``d_model``.
    """

    def __init__(
        self, channels: int, outputs: int, horizon: int, d_model: int, n_layer: int,
        make_mixer: Callable[[], nn.Module], mlp_width: int = 0,
    ):  # fmt: skip
        super().__init__()
        self.horizon = horizon
        self.backbone = Backbone(linear(channels, d_model, bias=True), d_model, n_layer, make_mixer, mlp_width)
        self.norm = RMSNorm(d_model)
        self.head = linear(d_model, outputs, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, channels) to logits (B, outputs), or to (B, horizon, outputs) if ``horizon`` is not 0."""
        hidden = self.norm(self.backbone(x))
        logits: Tensor = self.head(hidden[:, -self.horizon :] if self.horizon else hidden.mean(1))
        return logits


class SignalLoss(nn.Module):
    """The loss of :class:`SignalModel`: mean cross-entropy of classes in nats, or mean squared error of time steps."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def branch(self, x: Tensor, targets: Tensor) -> str:
        """Return an empty key, because calls with inputs of one shape always run the same operators.

        A recorded call may be replayed for a call with the same key (:mod:`madbench.training.replay`).
        """
        return ""

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Map x (B, T, channels) and the targets to the loss, a float32 scalar.

        Targets are classes (B,), as integers, or time steps (B, horizon, outputs), as floats.
        """
        told = self.model(x).float()
        return F.mse_loss(told, targets) if targets.is_floating_point() else F.cross_entropy(told, targets)
