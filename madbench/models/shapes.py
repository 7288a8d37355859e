"""Configurations of the models around mixers, and the cost of these models. The module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from madbench.config import check_at_least
from madbench.jobs import NOT_AT_DEFAULT

if TYPE_CHECKING:
    from madbench.mixers.sequence import MixerSequence


@dataclass(frozen=True)
class Cost:
    """The cost of a model, computed without building it.

    The costs of its mixers come from formulas of their families.
    """

    parameters: int
    """Trainable parameters of the whole model."""
    flops_per_token: float
    """Forward floating-point operations per token, two for each multiply-add."""


def swiglu_width(d_model: int, width: int = 0) -> int:
    """The inner width of a SwiGLU: ``width``, or if ``width`` is 0, 8/3 ``d_model`` rounded up to a multiple of 16."""
    return width or -(-8 * d_model // (3 * 16)) * 16


@dataclass(frozen=True)
class BlocksConfig:
    """The sizes of a model's blocks, each of which has a mixer and an MLP."""

    d_model: int = 128
    """Width of the residual stream."""
    n_head: int = 2
    """Heads of every mixer, including the softmax baseline."""
    n_layer: int = 2
    """Blocks; a block is one mixer and one SwiGLU."""
    mlp_width: int = field(default=0, metadata=NOT_AT_DEFAULT)
    """Inner width of the MLPs; 0 is 8/3 d_model in a SwiGLU, and 4 d_model in the language model's MLP."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "d_model", "n_head", "n_layer")
        check_at_least(self, 0, "mlp_width")

    @property
    def inner_width(self) -> int:
        """The inner width of the MLPs: ``mlp_width``, or the default width if that is 0."""
        return swiglu_width(self.d_model, self.mlp_width)

    @property
    def mlp_weights(self) -> int:
        """The number of weights of one MLP."""
        return 3 * self.d_model * self.inner_width

    def blocks_cost(self, mixers: MixerSequence, tokens: int, **causal: bool) -> Cost:
        """The cost of all blocks on sequences of ``tokens`` tokens: all their parameters, and forward FLOPs per token.

        FLOPs are those of mixers and of the matrix products of MLPs. ``causal=False`` counts all pairs of tokens, and
        only bidirectional families accept it.
        """
        parameters = mixers.total + self.n_layer * (self.mlp_weights + 2 * self.d_model)
        return Cost(parameters, mixers.flops_per_token(tokens, **causal) + 2 * self.n_layer * self.mlp_weights)


@dataclass(frozen=True)
class ModelConfig(BlocksConfig):
    """The sizes of MAD's models around the mixers. The defaults are MAD's."""

    def cost(self, mixers: MixerSequence, tokens: int, vocab_size: int, is_autoencoder: bool = False) -> Cost:
        """The cost of MAD's token model or autoencoder (:mod:`madbench.models.mad`) on ``tokens`` tokens."""
        blocks, width = self.blocks_cost(mixers, tokens), self.d_model
        parameters = blocks.parameters + vocab_size * width + width + (width + 1) * vocab_size
        flops = blocks.flops_per_token + 2 * width * vocab_size
        if is_autoencoder:
            parameters += 2 * (width + (width + 1) * width)
            flops += 4 * width * width
        return Cost(parameters, flops)


@dataclass(frozen=True)
class SignalModelConfig(BlocksConfig):
    """The sizes of the model of real numbers (:mod:`madbench.models.signals`), apart from its mixers."""

    d_model: int = 32
    """Width of the residual stream."""
    mlp_width: int = field(default=0, metadata=NOT_AT_DEFAULT)
    """Inner width of the SwiGLUs; 0 is 8/3 d_model."""
    causal: bool = False
    """True if a token sees only tokens up to itself, False if it sees all tokens."""

    def cost(self, mixers: MixerSequence, tokens: int, channels: int, outputs: int) -> Cost:
        """The cost of the model of real numbers (:mod:`madbench.models.signals`) on sequences of ``tokens`` tokens.

        ``channels`` is the number of real numbers per token, and ``outputs`` the size of an output vector.
        """
        causal = {} if self.causal else {"causal": False}
        blocks, width = self.blocks_cost(mixers, tokens, **causal), self.d_model
        parameters = blocks.parameters + (channels + 1) * width + width + (width + 1) * outputs
        return Cost(parameters, blocks.flops_per_token + 2 * width * (channels + outputs))


@dataclass(frozen=True)
class GPTConfig(BlocksConfig):
    """The sizes of the GPT-2 model around the mixers.

    The defaults are those of the S/R/G paper: GPT-2 small with two heads.
    """

    d_model: int = 768
    """Width of the residual stream."""
    n_layer: int = 12
    """Blocks; a block is one mixer and one MLP."""
    seq_len: int = 1024
    """Tokens of context in training and evaluation. The tables of R(1) and R(2) have this length."""
    positions: Literal["none", "learned"] = "none"
    """``learned``: a vector for every position, as in GPT-2. ``none``: positions only from the mixer, as in the paper.
    """
    mlp: Literal["gelu", "swiglu"] = field(default="gelu", metadata=NOT_AT_DEFAULT)
    """GPT-2's MLP, or the SwiGLU of MAD and LLaMA."""
    output: Literal["tied", "untied"] = field(default="tied", metadata=NOT_AT_DEFAULT)
    """``tied``: the output shares the embedding's weights."""
    norm: Literal["layernorm", "rmsnorm"] = field(default="layernorm", metadata=NOT_AT_DEFAULT)
    """GPT-2's LayerNorm with a gain, or LLaMA's RMSNorm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "seq_len")

    @property
    def inner_width(self) -> int:
        return super().inner_width if self.mlp == "swiglu" else self.mlp_width or 4 * self.d_model

    @property
    def mlp_weights(self) -> int:
        return (3 if self.mlp == "swiglu" else 2) * self.d_model * self.inner_width

    def cost(self, mixers: MixerSequence, vocab_size: int) -> Cost:
        """The cost of the language model (:mod:`madbench.models.gpt`) on sequences of ``seq_len`` tokens.

        With d = ``d_model``, FLOPs per token are the sum of the mixers' FLOPs, 2 d ``vocab_size`` for the output, and
        per block 4 d ``inner_width`` for a GELU MLP or 6 d ``inner_width`` for a SwiGLU.
        """
        blocks = self.blocks_cost(mixers, self.seq_len)
        rows = vocab_size
        if self.output == "untied":
            rows += vocab_size
        if self.positions == "learned":
            rows += self.seq_len
        parameters = blocks.parameters + rows * self.d_model + self.d_model
        return Cost(parameters, blocks.flops_per_token + 2 * self.d_model * vocab_size)
