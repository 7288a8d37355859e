"""The theory's model of interacting agents: a fixed embedding and one bidirectional mixer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from madbench import mixers
from madbench.labels import parse
from madbench.mixers.traits import attach
from madbench.models.blocks import linear
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention
from madbench.papers.interactions.mixers.tuples import ALL


class InteractionModel(nn.Module):
    """Maps symbols to values by ``mixer(E[symbols])``, with no norm, residual, MLP or positions (sections 3 to 6).

    Args:
        vectors: the embedding E (S, d), which is not trained.
        mixer: bidirectional, (B, L, d) -> (B, L, d). A :class:`Coupling` of output width 1 returns the values itself.
            Any other mixer is followed by a linear map to one number.
        has_relu: True if a dense layer with a ReLU follows, a - b relu(c - d y), which starts as min(1, y) (B.2).
    """

    if TYPE_CHECKING:
        vectors: Tensor

    def __init__(self, vectors: Tensor, mixer: nn.Module, has_relu: bool = False):
        super().__init__()
        self.register_buffer("vectors", vectors, persistent=False)
        self.mixer = mixer
        self.readout = nn.Identity() if isinstance(mixer, Coupling) else linear(vectors.shape[1], 1)
        self.relu = nn.Parameter(torch.ones(4)) if has_relu else None
        symbols, width = vectors.shape
        self._by_count = isinstance(mixer, Coupling) and mixer.degree == 2 and symbols == width

    def forward(self, symbols: Tensor) -> Tensor:
        """Map symbols (B, L) to the value of every agent, (B, L)."""
        y = self._sums(symbols)
        if self.relu is None:
            return y
        a, b, c, d = self.relu
        return a - b * F.relu(c - d * y)

    def _sums(self, symbols: Tensor) -> Tensor:
        """The values (B, L) of symbols (B, L) before the ReLU layer."""
        if not self._by_count:
            return self.readout(self.mixer(self.vectors[symbols])).squeeze(-1)
        # Equal symbols have equal values: effects between all symbols, times the count of each symbol.
        counts = self.vectors.new_zeros(len(symbols), len(self.vectors))
        counts.scatter_add_(1, symbols, torch.ones_like(symbols, dtype=counts.dtype))
        return (counts @ cast(Tensor, self.effects()).T).gather(1, symbols)

    def effects(self) -> Tensor | None:
        """The learned effects T of S symbols on each other: (S, S) for pairs, (S, S, S) for triples.

        An entry is the effect of the other symbols on the first symbol, times the value of the other symbols, summed
        over heads. Each pair of other agents is counted once. T does not depend on the embedding and on the
        factorization of the effects (Corollary D.3). A ReLU layer after the mixer is left out.

        None if the mixer is neither a :class:`Coupling` of at most 3 tokens nor linear HyperFeatureAttention without
        RoPE.
        """
        if isinstance(self.mixer, HyperFeatureAttention) and self.mixer.linear and not self.mixer.rope:
            return self._pairs()
        if not isinstance(self.mixer, Coupling) or self.mixer.degree > 3:
            return None
        e, c, w = self.vectors, self.mixer.c, self.mixer.w
        if self.mixer.degree == 3:
            tensors = torch.einsum("ma,habc,nb,oc->hmno", e, c, e, e)
            tensor = (tensors * torch.einsum("nb,oc,hbck->hno", e, e, w)[:, None]).sum(0)
            return tensor + tensor.mT if self.mixer.tuples == ALL else tensor
        pairs = [torch.einsum("ma,fab,nb->fmn", e, of_head, e).prod(0) for of_head in c]
        return sum(pair * (e @ of_head[..., 0].T).prod(1) for pair, of_head in zip(pairs, w))

    def _pairs(self) -> Tensor:
        """The effects (S, S) of a mixer of pairs, computed from its output for one agent and for every two agents."""
        symbols = torch.arange(len(self.vectors), device=self.vectors.device)
        alone = self._sums(symbols[:, None])[:, 0]
        return torch.stack(
            [
                self._sums(torch.stack([symbol.expand_as(symbols), symbols], 1))[:, 0] - alone[symbol]
                for symbol in symbols
            ]
        )

    @torch.no_grad()
    def start(self) -> None:
        """Set initial weights from which gradient flow provably converges (Theorems 4.4, G.7), in full couplings.

        In linear attention of one head and in HyperAttention, the coupling matrix or tensor C starts at 0, and the
        weights w start with a value of 1 for every symbol or tuple of symbols. No theorem applies to linear attention
        with several heads or factors. There all weights start from N(0, 0.3^2): with several factors, C = 0 would
        never change, because the gradient of a product of zeros is zero. Mixers that are not a :class:`Coupling` keep
        their weights.
        """
        if not isinstance(self.mixer, Coupling):
            return
        c, w = self.mixer.c, self.mixer.w
        if self.mixer.degree == 2 and (len(c) > 1 or len(c[0]) > 1):
            for parameter in self.mixer.parameters():
                nn.init.normal_(parameter, std=0.3)
            return
        ones = torch.linalg.pinv(self.vectors).sum(1)  # E w = 1
        values = ones
        for _ in range(self.mixer.degree - 2):
            values = values[..., None] * ones
        nn.init.zeros_(c)
        w.copy_(values[..., None].expand_as(w))


class ValueLoss(nn.Module):
    """Mean squared error over agents and samples. The paper's error is a sum over agents (section 4)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def branch(self, symbols: Tensor, values: Tensor) -> str:
        """Return the empty name. Calls with inputs of equal shapes and dtypes always run the same operators."""
        return ""

    def forward(self, symbols: Tensor, values: Tensor) -> Tensor:
        """Map symbols and values (B, L) to the scalar loss."""
        return F.mse_loss(self.model(symbols), values)


def interaction_mixer(
    label: str, width: int, max_len: int, *, n_head: int, path: str = "auto", **settings: Any
) -> nn.Module:
    """Build the bidirectional mixer of a label. A label with base ``C`` gets a :class:`Coupling` of output width 1.

    Any other mixer is built by :func:`madbench.mixers.build` with ``settings``.
    """
    parsed = parse(label)
    if getattr(parsed, "base", "") != "C":
        return mixers.build(parsed, width, max_len, n_head=n_head, path=path, causal=False, **settings)
    kind = {name: getattr(parsed, name) for name in ("orders", "degree", "product", "tuples") if hasattr(parsed, name)}
    coupling = Coupling(n_head, width, 1, causal=False, path=path, **kind)
    return attach(coupling, mixers.label_traits(parsed), parsed)
