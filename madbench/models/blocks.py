"""The parts of models besides mixers: linear maps, embeddings, norms, MLPs and position vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.errors import ConfigError
from madbench.jobs import PRECISIONS, Fidelity, Precision
from madbench.mixers.ops.linear_maps import call
from madbench.mixers.ops.tracing import is_traced
from madbench.mixers.sharing import Shared, mix
from madbench.models.rms_norm import NormalizeInBlocks
from madbench.models.shapes import swiglu_width

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

NORM_EPS = 1e-6
INIT_STD = 0.02


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """Make a linear map with weights from N(0, 0.02^2). If ``bias`` is true, it has a bias that is initially zero."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=INIT_STD)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def embedding(rows: int, width: int) -> nn.Embedding:
    """Make an embedding table (rows, width) with weights from N(0, 0.02^2)."""
    table = nn.Embedding(rows, width)
    nn.init.normal_(table.weight, std=INIT_STD)
    return table


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + 1e-6) times a gain, where the mean is over the last axis.

    The input is converted to the dtype of the gain, for example from bfloat16 under autocast.
    """

    def __init__(self, width: int):
        super().__init__(width, eps=NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to the normalized x (..., D), in the dtype of the gain."""
        x = x.to(self.weight.dtype)
        if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and not is_traced():
            y: Tensor = NormalizeInBlocks.apply(x, self.weight, self.eps)
            return y
        return super().forward(x)


def autocast(device: str, precision: Precision) -> torch.autocast:
    """Make an autocast context for a forward pass on ``device``, a torch device such as ``cuda``.

    Matrix products are in bfloat16 if ``precision`` is ``bfloat16``. For any other known precision the context does
    nothing. Weights keep their dtype. Raises ``ConfigError`` for an unknown precision.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r} is not known; expected one of: {', '.join(PRECISIONS)}")
    dtype = PRECISIONS[precision].autocast
    return torch.autocast(torch.device(device).type, getattr(torch, dtype or "bfloat16"), enabled=bool(dtype))


class SwiGLU(nn.Module):
    """(SiLU(x W_gate) * x W_up) W_down without biases. The inner width is :func:`swiglu_width` of the arguments."""

    def __init__(self, d_model: int, width: int = 0):
        super().__init__()
        inner = swiglu_width(d_model, width)
        self.gate = linear(d_model, inner)
        self.up = linear(d_model, inner)
        self.down = linear(inner, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., D)."""
        return call(self.down, F.silu(call(self.gate, x)) * call(self.up, x))


class Backbone(nn.Module):
    """A module that maps tokens to vectors: an embedding, then mixers and SwiGLUs in turn, ``x + layer(RMSNorm(x))``.

    ``tokens`` is the number of token ids, or a module that embeds other inputs. ``make_mixer`` is called once per
    block. There is no position embedding, so only the mixers can know positions. The output is not normalized, because
    the layers after the backbone begin with an RMSNorm. ``mlp_width`` is the inner width of the SwiGLUs; 0 is 8/3
    ``d_model``.
    """

    def __init__(
        self,
        tokens: int | nn.Module,
        d_model: int,
        n_layer: int,
        make_mixer: Callable[[], nn.Module],
        mlp_width: int = 0,
    ):
        super().__init__()
        self.embedding = embedding(tokens, d_model) if isinstance(tokens, int) else tokens
        layers = [layer for _ in range(n_layer) for layer in (make_mixer(), SwiGLU(d_model, mlp_width))]
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(RMSNorm(d_model) for _ in layers)

    @property
    def mixers(self) -> list[Mixer]:
        """The mixers of all blocks, in order."""
        return cast("list[Mixer]", list(self.layers[::2]))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to vectors (B, T, D).

        A backbone that was made with a module in place of the number of ids maps the inputs of that module.
        """
        x: Tensor = self.embedding(tokens)
        shared: Shared = {}
        for norm, layer in zip(self.norms, self.layers):
            x = x + mix(layer, norm(x), shared)
        return x


def sinusoids(length: int, width: int, fidelity: Fidelity = "corrected") -> Tensor:
    """Fixed position vectors (length, width) as in Vaswani et al. 2017.

    The first half of the columns has sines, and the second half has cosines. With D = ``width``, frequency i is
    10000^(-2i / D). If ``fidelity`` is ``published``, it is 10000^(-i / (D/2 - 1)), so that the last frequency is
    1/10000, and the last column of an odd width is zero.
    """
    if fidelity == "published":
        exponent = torch.arange(width // 2, dtype=torch.float64) / max(width // 2 - 1, 1)
    else:
        exponent = torch.arange(0, width, 2, dtype=torch.float64) / width
    angle = torch.outer(torch.arange(length, dtype=torch.float64), 10000.0**-exponent)
    table = torch.cat((angle.sin(), angle.cos()), dim=-1)[:, :width].float()
    return F.pad(table, (0, width - table.shape[1]))
