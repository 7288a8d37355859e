"""The MAD token model: a backbone and an untied readout, RMSNorm and linear with bias."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from madbench.models.blocks import Backbone, RMSNorm, linear


class MadModel(nn.Module):
    """Scores every token of the vocabulary at every position, causally when the mixer is causal."""

    def __init__(self, vocab_size: int, d_model: int, n_layer: int, make_mixer: Callable[[], nn.Module]):
        super().__init__()
        self.backbone = Backbone(vocab_size, d_model, n_layer, make_mixer)
        self.norm = RMSNorm(d_model)
        self.head = linear(d_model, vocab_size, bias=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) integers -> logits (B, T, vocab_size)."""
        return self.head(self.norm(self.backbone(tokens)))
