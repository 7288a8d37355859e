"""MAD's two models: a token model, which answers at every position, and an autoencoder.

The autoencoder reconstructs the whole input from the backbone's output at the last token.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from madbench.mixers.ops.linear_maps import call
from madbench.mixers.traits import has_name, mixers_in
from madbench.models.blocks import Backbone, RMSNorm, linear, sinusoids


class MadModel(nn.Module):
    """MAD's token model: a backbone, an RMSNorm, and a linear map with bias to logits.

    The linear map does not share the weights of the embedding. The model is causal if its mixers are causal.
    """

    def __init__(self, backbone: Backbone):
        super().__init__()
        vocab_size, d_model = backbone.embedding.get_parameter("weight").shape
        self.backbone = backbone
        self.norm = RMSNorm(d_model)
        self.head = linear(d_model, vocab_size, bias=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to logits (B, T, vocab_size)."""
        logits: Tensor = self.head(self.hidden(tokens))
        return logits

    def hidden(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to the vectors (B, T, D) that :attr:`output_layer` maps to logits."""
        hidden: Tensor = self.norm(self.backbone(tokens))
        return hidden

    @property
    def readout(self) -> tuple[Tensor, Tensor]:
        """The weight (vocab_size, D) and the bias (vocab_size,) of :attr:`output_layer`."""
        return self.head.weight, self.head.bias

    @property
    def output_layer(self) -> nn.Module:
        """The linear layer that maps the result of :meth:`hidden` to logits."""
        return self.head


class Autoencoder(nn.Module):
    """MAD's autoencoder: a backbone as the encoder, and an MLP as the decoder.

    At each position, the input of the decoder is the encoder's output at the last token plus a fixed position vector.
    The decoder's output is the logits of this position.
    """

    positions: Tensor
    """(max_len, d_model) position vectors."""

    def __init__(self, backbone: Backbone, max_len: int):
        super().__init__()
        vocab_size, d_model = backbone.embedding.get_parameter("weight").shape
        self.backbone = backbone
        self.decoder = nn.Sequential(
            RMSNorm(d_model),
            linear(d_model, d_model, bias=True),
            nn.GELU(),
            RMSNorm(d_model),
            linear(d_model, d_model, bias=True),
            nn.GELU(),
            RMSNorm(d_model),
            linear(d_model, vocab_size, bias=True),
        )
        self.register_buffer("positions", sinusoids(max_len, d_model), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to logits (B, T, vocab_size)."""
        logits: Tensor = self.decoder[-1](self.hidden(tokens))
        return logits

    def hidden(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to the vectors (B, T, D) that :attr:`output_layer` maps to logits."""
        summary = self.backbone(tokens)[:, -1:]
        x = summary + self.positions[: tokens.shape[1]]
        for layer in list(self.decoder)[:-1]:
            x = call(layer, x)
        return x

    @property
    def readout(self) -> tuple[Tensor, Tensor]:
        """The weight (vocab_size, D) and the bias (vocab_size,) of :attr:`output_layer`."""
        return cast("tuple[Tensor, Tensor]", (self.decoder[-1].weight, self.decoder[-1].bias))

    @property
    def output_layer(self) -> nn.Module:
        """The linear layer that maps the result of :meth:`hidden` to logits."""
        return self.decoder[-1]


def imitate_reference(model: MadModel | Autoencoder) -> None:
    """Give a new model the initial weights, norms and sinusoids of the fidelity ``published``.

    Linear maps of the token model and its mixers start with torch's default, uniform within 1 / sqrt(inputs). Linear
    maps of the autoencoder stay at N(0, 0.02^2). Initial values that a mixer's operator prescribes are kept. These are
    the values of the linear maps that the mixer's family names (:class:`madbench.labels.traits.Traits`), and the values
    of every parameter outside linear maps. The norms add 1e-5 to the mean square in place of 1e-6.
    """
    own = tuple(f"{name}.{kept}" for name, _, traits in mixers_in(model) for kept in traits.keeps_init)
    for name, module in model.named_modules():
        if isinstance(module, RMSNorm):
            module.eps = 1e-5
        elif isinstance(module, nn.Linear) and isinstance(model, MadModel) and not has_name(f"{name}.weight", own):
            nn.init.kaiming_uniform_(module.weight, a=5**0.5)
    if isinstance(model, Autoencoder):
        max_len, d_model = model.positions.shape
        model.positions = sinusoids(max_len, d_model, "published")
