"""Every S/R/G label as one module: project, score, mix, activate, mix, read out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.probe import LagKernel, Probe, by_lag
from madbench.mixers.srg.budget import CONV_TAPS, Allocation
from madbench.mixers.srg.parts import SequenceMixing, ShortConv, activate, lag_readout, lag_scores, newest_first, rotate
from madbench.mixers.srg.reference import reference

PATHS = ("auto", "reference", "dense", "chunked", "sdpa")
DENSE_LIMIT_LENGTH = 512  # beyond it, blocks that skip the masked half are faster though they are computed twice
DENSE_LIMIT_BYTES = 2**30  # of one (B, H, T, T) float32 tensor


@dataclass(frozen=True)
class Projected:
    """What the rows of a block and the tokens they see became; every field but ``k``, ``v`` has one row a query."""

    q: Tensor  # (B, H_q, T, K), rotated and gated
    k: Tensor  # (B, H_q, S, K), rotated
    v: Tensor  # (B, H, S, V)
    s1: Tensor | None  # (B, H_q, T, R) strengths of R(1)
    s2: Tensor | None  # (B, H, T, R) strengths of R(2)


@dataclass(frozen=True)
class Cache:
    """State of token-by-token decoding: keys, values and the last three inputs."""

    k: Tensor  # (B, H_q, S, K), rotated, oldest first
    v: Tensor  # (B, H, S, V)
    inputs: Tensor  # (B, 3, D) for the convolution, zeros before the first token
    position: int  # tokens decoded so far; with a sliding window more than S


@dataclass(frozen=True)
class Maps:
    """What every row computes on the way to its output, slot by slot; slots that it cannot see are zero."""

    scores: Tensor  # z (B, H_q, T, T)
    hidden: Tensor  # h (B, H_q, T, T), the scores after R(1)
    activations: Tensor  # a (B, H, T, T)
    weights: Tensor  # w (B, H, T, T), the activations after R(2)


class DynamicMLP(nn.Module):
    """One causal mixer (paper eq. 7-11, appendices G, J, L): each head is a two-layer MLP instantiated from the prefix.

    For row t, with ``l`` running over the slots of its prefix::

        h_t = (x_t W_q M1(x_t)) K(X)^T R1(x_t)      scores, mixed over slots
        a_t = softmax(h_t) | ReLU(L2Norm(h_t)) | Softplus(h_t^scale) * ReLU(L2Norm(h_t^gate))
        o_t = (a_t R2(x_t)^T V(X)) M2(x_t) W_o      activations, mixed over slots, read out

    Differs from the paper's text where its equations leave room: RoPE acts before the QK gate, all gates have a bias,
    the convolution acts on the inputs of K and V only, and slots of the layout without ``o`` are counted from the oldest
    token.

    Args:
        allocation: label, width, heads, maximum length and ranks, from :func:`madbench.mixers.srg.budget.solve`.
        rope: ``rotation`` or ``mispaired`` (see :func:`madbench.mixers.srg.parts.rotate`).
        path: ``auto``, or one of ``reference`` (float64 loops), ``dense`` (all rows at once), ``chunked`` (blocks of
            ``chunk`` rows, recomputed in the backward pass; peak memory B H chunk T instead of B H T T) and ``sdpa``
            (torch's scaled dot product attention; S without mixing only). All compute the same function.
        chunk: rows of a block.

    Parameters: exactly ``allocation.total``.
    """

    def __init__(self, allocation: Allocation, rope: str = "rotation", path: str = "auto", chunk: int = 128):
        super().__init__()
        if path not in PATHS:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, PATHS)}")
        self.allocation, self.variant, self.max_len = allocation, allocation.label, allocation.size.max_len
        self.n_head, self.query_heads = allocation.size.n_head, allocation.query_heads
        self.rope, self.chunk, self.by_lag = rope, chunk, allocation.label.layout == "lag"
        variant, d_model, r_qk, r_vo = allocation.label, allocation.size.d_model, allocation.r_qk, allocation.r_vo
        self.uses_sdpa = variant.base == "S" and not variant.has_mixing
        if path == "sdpa" and not self.uses_sdpa:
            raise TrainingError(f"path 'sdpa' computes softmax attention without mixing, not {variant}; use 'auto'")
        self.path = path

        self.q = nn.Linear(d_model, r_qk, bias=False)
        self.k = nn.Linear(d_model, r_qk, bias=False)
        self.v = nn.Linear(d_model, r_vo, bias=False)
        self.o = nn.Linear(r_vo, d_model, bias=False)
        self.k_conv = ShortConv(d_model) if variant.conv else None
        self.v_conv = ShortConv(d_model) if variant.conv else None
        self.qk_gate = nn.Linear(d_model, r_qk) if variant.gates else None
        self.vo_gate = nn.Linear(d_model, r_vo) if variant.gates else None
        tables = (self.max_len, allocation.r)
        self.mix1 = SequenceMixing(d_model, self.query_heads, *tables) if variant.mix1 else None
        self.mix2 = SequenceMixing(d_model, self.n_head, *tables) if variant.mix2 else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Projections, taps, A and B from N(0, 0.02^2); p and biases zero."""
        for name, parameter in self.named_parameters():
            if name.endswith((".bias", ".p")):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D); row t depends on rows 0..t only. Raises ``TrainingError`` when T is 0 or too long."""
        self._check_length(x.shape[1])
        path = self.resolve_path(x.shape[0], x.shape[1])
        if path == "reference":
            y = reference(dict(self.named_parameters()), self.variant, self.n_head, x, self.rope)
            return y.to(x.dtype)
        projected = self._project(x, 0)
        if path == "sdpa":
            o = F.scaled_dot_product_attention(projected.q, projected.k, projected.v, is_causal=True)
        elif path == "dense":
            o = self._attend(self._ordered(projected), 0)
        else:
            o = self._attend_in_chunks(projected)
        return self._read_out(o, x)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decodes one token: x (B, D) -> output (B, D) and the cache for the next one.

        Equals row ``cache.position`` of :meth:`forward`. With mixing, more than ``max_len`` tokens are an error.
        ``slide`` keeps a window of the newest ``max_len``: its output is the last row of :meth:`forward` on them
        alone (paper, Theorem 2.3), unless a conv reads inputs before the window, or scores depend on absolute positions
        because a gate follows RoPE or ``rope`` is ``mispaired``.
        """
        if x.dim() != 2:
            raise TrainingError(
                f"{self.variant}: a step takes one token of each sequence, (B, D), not {tuple(x.shape)}"
            )
        if cache is None:
            nothing = x.new_zeros(x.shape[0], 0, self.allocation.size.d_model)
            empty = self._project(nothing, 0)
            cache = Cache(empty.k, empty.v, x.new_zeros(x.shape[0], CONV_TAPS - 1, x.shape[1]), 0)
        row = x[:, None]
        new = self._project(row, cache.position, cache.inputs)
        k, v = torch.cat((cache.k, new.k), dim=2), torch.cat((cache.v, new.v), dim=2)
        if slide:
            k, v = k[:, :, -self.max_len :], v[:, :, -self.max_len :]
        self._check_length(k.shape[2])
        o = self._attend(self._ordered(replace(new, k=k, v=v)), k.shape[2] - 1)
        inputs = torch.cat((cache.inputs, row), dim=1)[:, 1:]
        return self._read_out(o, row)[:, 0], Cache(k, v, inputs, cache.position + 1)

    def maps(self, x: Tensor, position: int = 0) -> Maps:
        """Scores, activations and weights of x (B, T, D), whose first row is at ``position``; of T x T each."""
        self._check_length(x.shape[1])
        p = self._ordered(self._project(x, position))
        z = self._scores(p).tril()
        h = self.mix1.right(z, p.s1).tril() if self.mix1 else z
        a, norm = activate(self.variant.base, h, 0)
        a = a if norm is None else a / norm
        return Maps(z, h, a, self.mix2.right_transposed(a, p.s2).tril() if self.mix2 else a)

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """Scores, active slots, weights, gates and mixing tables for x (B, T, D).

        Scores of G are those of the gate, whose sign decides (Proposition 2.4). Without ``o`` slots are counted from the
        oldest token, so slot l of a row is again the one l steps before it.
        """
        maps = self.maps(x)
        h, w = maps.hidden[:, : self.n_head], maps.weights
        if not self.by_lag:
            h, w = by_lag(h), by_lag(w)
        gates = {"QK": self.qk_gate, "VO": self.vo_gate}
        values = {name: torch.sigmoid(gate(x)) for name, gate in gates.items() if gate}
        kernels = {}
        for name, mixing in (("R(1)", self.mix1), ("R(2)", self.mix2)):
            if mixing:
                values[name] = mixing.strengths(x).transpose(1, 2)
                strengths = values[name].mean((0, 1))
                kernels[name] = LagKernel(mixing.A, mixing.B, mixing.p, strengths, self.variant.layout)
        return Probe(w, h, None if self.variant.base == "S" else h > 0, values, kernels)

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for an input of this shape."""
        if self.path != "auto":
            return self.path
        if self.uses_sdpa:
            return "sdpa"
        scores = batch * self.query_heads * length * length * 4
        is_small = length <= DENSE_LIMIT_LENGTH and scores <= DENSE_LIMIT_BYTES
        return "dense" if is_small or length <= self.chunk else "chunked"

    def _check_length(self, length: int) -> None:
        if length == 0:
            raise TrainingError(f"{self.variant}: 0 tokens; a sequence has at least one")
        if self.variant.has_mixing and length > self.max_len:
            limit = f"its mixing tables hold max_len = {self.max_len}; build it with a larger max_len"
            raise TrainingError(f"{self.variant}: {length} tokens, but {limit}")

    def _project(self, x: Tensor, position: int, before: Tensor | None = None) -> Projected:
        if self.k_conv:
            q, k, v = self.q(x), self.k(self.k_conv(x, before)), self.v(self.v_conv(x, before))
        else:
            weights = (self.q.weight, self.k.weight, self.v.weight)
            q, k, v = F.linear(x, torch.cat(weights)).split([len(weight) for weight in weights], dim=-1)
        q, k, v = _split_heads(q, self.query_heads), _split_heads(k, self.query_heads), _split_heads(v, self.n_head)
        if self.variant.rope:
            q, k = rotate(q, position, self.rope), rotate(k, position, self.rope)
        if self.qk_gate:
            q = q * torch.sigmoid(_split_heads(self.qk_gate(x), self.query_heads))
        s1 = self.mix1.strengths(x) if self.mix1 else None
        s2 = self.mix2.strengths(x) if self.mix2 else None
        return Projected(q, k, v, s1, s2)

    def _ordered(self, p: Projected) -> Projected:
        return replace(p, k=newest_first(p.k), v=newest_first(p.v)) if self.by_lag else p

    def _scores(self, p: Projected) -> Tensor:
        """(B, H_q, M, W); what stands in slots that a row cannot see has no meaning."""
        q = p.q * p.q.shape[-1] ** -0.5 if self.variant.base == "S" else p.q
        return lag_scores(q, p.k) if self.by_lag else q @ p.k.transpose(-1, -2)

    def _attend(self, p: Projected, first_row: int) -> Tensor:
        """Rows ``first_row, ...`` against all the keys up to the last of them: (B, H, M, V)."""
        z = self._scores(p)
        h = self.mix1.right(z.tril(first_row), p.s1) if self.mix1 else z
        a, norm = activate(self.variant.base, h, first_row)
        w = self.mix2.right_transposed(a, p.s2).tril(first_row) if self.mix2 else a
        o = lag_readout(w, p.v) if self.by_lag else w @ p.v
        return o if norm is None else (o / norm).to(o.dtype)

    def _attend_in_chunks(self, p: Projected) -> Tensor:
        whole, length, blocks = self._ordered(p), p.q.shape[2], []
        for start in range(0, length, self.chunk):
            end = min(start + self.chunk, length)
            q, s1, s2 = (None if t is None else t[:, :, start:end] for t in (p.q, p.s1, p.s2))
            seen = slice(length - end, None) if self.by_lag else slice(0, end)
            block = (q, whole.k[:, :, seen], whole.v[:, :, seen], s1, s2)
            if torch.is_grad_enabled():
                how = {"use_reentrant": False, "preserve_rng_state": False}  # a block draws no random numbers
                blocks.append(checkpoint(self._attend_block, start, *block, **how))
            else:
                blocks.append(self._attend_block(start, *block))
        return torch.cat(blocks, dim=2)

    def _attend_block(self, first_row: int, *block: Tensor | None) -> Tensor:
        return self._attend(Projected(*block), first_row)

    def _read_out(self, o: Tensor, x: Tensor) -> Tensor:
        o = o.transpose(1, 2).flatten(-2)
        if self.vo_gate:
            o = o * torch.sigmoid(self.vo_gate(x))
        return self.o(o)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, heads * C) -> (B, heads, T, C)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
