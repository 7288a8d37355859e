"""The paper's model of interacting agents: a fixed embedding of symbols, and one bidirectional mixer."""

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
    """Map symbols to the values of agents: ``mixer(E[symbols])`` (sections 3 to 6).

    A symbol is the index of an agent's state. There is no norm, residual, MLP or position embedding.

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
        """Map symbols (B, L) to the values (B, L) of all agents."""
        y = self._sums(symbols)
        if self.relu is None:
            return y
        a, b, c, d = self.relu.unbind()
        return a - b * F.relu(c - d * y)

    def _sums(self, symbols: Tensor) -> Tensor:
        """The values (B, L) of agents with symbols (B, L), before the ReLU layer."""
        if not self._by_count:
            values: Tensor = self.readout(self.mixer(self.vectors[symbols]))
            return values.squeeze(-1)
        # Equal symbols have equal values: effects between all symbols, times the count of each symbol.
        counts = self.vectors.new_zeros(len(symbols), len(self.vectors))
        counts.scatter_add_(1, symbols, torch.ones_like(symbols, dtype=counts.dtype))
        return (counts @ cast(Tensor, self.effects()).T).gather(1, symbols)

    def effects(self) -> Tensor | None:
        """The learned effects T of symbols on each other: (S, S) for pairs of agents, (S, S, S) for triples.

        The first axis is the symbol of the agent that is acted on, and the other axes are the symbols of the other
        agents. An entry is the effect of these other symbols on the first, times the value of the other symbols, summed
        over heads. Each pair of other agents is counted once. T depends neither on the embedding nor on the
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
        effects: Tensor = sum(pair * (e @ of_head[..., 0].T).prod(1) for pair, of_head in zip(pairs, w))
        return effects

    def _pairs(self) -> Tensor:
        """The effects (S, S) of a mixer of pairs, from its outputs for every single agent and for every two agents."""
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
        """Set the initial weights from which gradient flow provably converges (Theorems 4.4, G.7).

        This applies to couplings with one head and one factor, and to couplings of triples or more. Their matrix or
        tensor C starts at 0. Their weights w give every symbol, or every tuple of symbols, the value 1.

        No theorem applies to couplings of pairs with several heads or factors. Their weights start from N(0, 0.3^2):
        with several factors, C = 0 would never change, because the gradient of a product of zeros is zero. A mixer that
        is not a :class:`Coupling` keeps its weights.
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
    """The mean squared error over agents and samples. The paper's error is a sum over agents (section 4)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def branch(self, symbols: Tensor, values: Tensor) -> str:
        """Return the empty text: calls with inputs of equal shapes and dtypes always run the same operators.

        A recorded call may therefore be replayed for any of them (:mod:`madbench.training.replay`).
        """
        return ""

    def forward(self, symbols: Tensor, values: Tensor) -> Tensor:
        """Map symbols (B, L) and the true values (B, L) of their agents to the scalar loss."""
        return F.mse_loss(self.model(symbols), values)


def interaction_mixer(
    label: str, width: int, max_len: int, *, n_head: int, path: str = "auto", **settings: Any
) -> nn.Module:
    """Build the bidirectional mixer of a label.

    For a label with base ``C``, it is a :class:`Coupling` of output width 1. Any other mixer is built by
    :func:`madbench.mixers.build` with ``settings``. ``width`` is the width of the embedding, and ``max_len`` is the
    largest number of agents.
    """
    parsed = parse(label)
    if getattr(parsed, "base", "") != "C":
        return mixers.build(parsed, width, max_len, n_head=n_head, path=path, causal=False, **settings)
    kind = {name: getattr(parsed, name) for name in ("orders", "degree", "product", "tuples") if hasattr(parsed, name)}
    coupling = Coupling(n_head, width, 1, causal=False, path=path, **kind)
    return attach(coupling, mixers.label_traits(parsed), parsed)
