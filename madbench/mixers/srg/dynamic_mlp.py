"""The module of every S/R/G label: project, score, mix, activate, mix, read out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers import softmax
from madbench.mixers.inputs import check_sequences
from madbench.mixers.linear_maps import call, check_weights, project, weight_of
from madbench.mixers.precision import without_autocast
from madbench.mixers.probe import LagKernel, Probe, by_lag
from madbench.mixers.recompute import recompute
from madbench.mixers.srg import decoding, softmax_paths, tiled
from madbench.mixers.srg.budget import MlpAllocation
from madbench.mixers.srg.decoding import Cache
from madbench.mixers.srg.kernels import fused, proof
from madbench.mixers.srg.parts import (
    Contrast,
    Projected,
    Seen,
    SequenceMixing,
    ShortConv,
    activate,
    append_slots,
    exclude,
    in_window,
    lag_readout,
    lag_scores,
    mask_slots,
    newest_first,
    rotary_angles,
    rotate,
    split_slots,
    swap_position_and_lag,
)
from madbench.mixers.srg.reference import reference
from madbench.mixers.srg.stacked import attend_stacked
from madbench.mixers.srg.step_weights import Ahead, StepWeights
from madbench.mixers.start import redraw_parts
from madbench.mixers.tracing import is_symbolic, is_traced, is_transformed, needs_plain_operators

PATHS = ("auto", "reference", "dense", "chunked", "tiled", "sdpa", "fused")
HEAD_NORM_EPS = 1e-5
QK_NORM_EPS = 1e-6  # as in Qwen3
DENSE_LIMIT_LENGTH = 512  # for longer inputs, path chunked is faster: it skips masked slots, but recomputes its blocks
DENSE_LIMIT_BYTES = 2**30  # largest (B, H, T, T) float32 tensor of the dense path
TILED_FROM_BYTES = 2**22  # size of the same tensor from which tiles are faster; a smaller one fits in the cache anyway
MIXED_TILED_FROM_BYTES = 2**18  # the same with mixing, for which tiles need fewer passes
SOFTMAX_TILED_FROM_BYTES = 2**23  # the same for softmax without mixing, where torch's attention needs fewer calls


@dataclass(frozen=True)
class Maps:
    """Intermediate values of every row, by slot. Slots that a row cannot see are zero.

    S is T plus the number of registers, which are the first or the last slots.
    """

    scores: Tensor  # z (B, H_q, T, S)
    hidden: Tensor  # h (B, H_q, T, S), the scores after R(1)
    activations: Tensor  # a (B, H, T, S)
    weights: Tensor  # w (B, H, T, S), the activations after R(2)


class DynamicMLP(nn.Module):
    """One mixer (paper eq. 7-11, appendices G, J, L). Each head is a two-layer MLP whose weights come from the prefix.

    For row t, with ``l`` running over the slots of its prefix::

        h_t = (x_t W_q M1(x_t)) K(X)^T R1(x_t)      scores, mixed over slots
        a_t = softmax(h_t) | ReLU(L2Norm(h_t)) | Softplus(h_t^scale) * ReLU(L2Norm(h_t^gate))
        o_t = (a_t R2(x_t)^T V(X)) M2(x_t) W_o      activations, mixed over slots, read out

    The paper's equations leave some points open. Here RoPE acts before the QK gate, all gates have a bias, the
    convolution acts on the inputs of K and V only, and slots of the layout without ``o`` are counted from the oldest
    token.

    Some letters are not in the paper's Table 1:

    - D: ``a_t = softmax(h_t^1) - lambda softmax(h_t^2)``, and the output of a head is (1 - lambda_init) RMSNorm of its
      readout (Ye et al. 2024).
    - L: ``a_t = L2Norm(h_t)``, which reads every slot with its sign (H.10).
    - k: learned rows are the first slots of every prefix. They are scored by the query before RoPE, and so have no
      position (H.5).
    - a: W_v and W_o are each the sum of a matrix and a product of two thin matrices, which starts at zero
      (Proposition 2.6).
    - w: ``l`` runs over the last w tokens of the prefix and the registers. Earlier tokens have no slot: their rows and
      columns are removed from R(1) and R(2).
    - s: each softmax has one more term in its denominator, whose logit is learned and is not mixed by R(1). The logit
      is initialized like the weights, as in transformers' gpt-oss.
    - n: ``q_t <- gain RMSNorm(q_t)`` for each head, and keys likewise, before RoPE, the gate and 1 / sqrt(d_qk). Keys
      of registers are normalized too. The two gains, which heads share, start at one.
    - m: groups of heads share keys and values. They are projected and cached once per group. They are then repeated for
      every head before any other step, so that every path supports them. The two sets of query heads of G and D have
      separate keys.
    - h: the readout of a head is scaled by ``sigmoid(x_t w_h)``, after the norm of D and before the VO gate. There is
      no bias, and w_h is initialized like the weights of the other gates, so that a gate starts near 1/2, as in the
      authors' models (Qiu et al. 2025). Marin's models use 2 sigmoid and start w_h at zero, so that a gate starts at
      one.
    - e: the component along the token's own value is removed from the readout of a head (see
      :func:`madbench.mixers.srg.parts.exclude`). This happens before the norm of D and before all gates.

    Args:
        allocation: label, width, heads, maximum length and ranks, from :func:`madbench.mixers.srg.budget.solve`.
        rope: ``rotation`` or ``mispaired`` (see :func:`madbench.mixers.srg.parts.rotate`).
        rope_order: ``before_gate`` as in the paper, or ``after_gate``, with which scores depend on offsets alone even
            if the label has g.
        lambda_init: initial factor of the second softmax of D. DIFF V2 (``allocation.differential``) has none: its
            factor is sigmoid(x_t w_lambda) per head, without a bias. w_lambda starts as the weights of gates do, so
            that the factor starts near 1/2. Both softmaxes of a head share its key and value.
        position_rows: for mixing without ``o``: ``from_start``, or ``from_end`` as in the paper's public code. The row
            of a position then depends on the length of the whole input.
        register_place: for k with mixing: ``first``, or ``last``, behind a row's last token.
        causal: True if a row sees the tokens up to its own, False if it sees all tokens. If False, slot l of row t of T
            is, in the lag layout, the token (t - l) mod T, so that the last row equals that of the causal mixer. A
            convolution still reads earlier tokens only. With w, a row sees the tokens at a distance below w.
        path: ``auto``, or one of these paths. All compute the same function.

            - ``reference``: loops in float64
            - ``dense``: all rows at once
            - ``chunked``: blocks of ``chunk`` rows, recomputed in the backward pass; peak memory B H chunk T instead of
              B H T T
            - ``tiled``: blocks that fit in a CPU's cache, with gradients by hand; causal S, R and G without registers,
              w and s; causal S and D without registers and mixing, also with w and s
            - ``sdpa``: torch's scaled dot product attention; S and D without mixing and registers
            - ``fused``: Triton kernels on a GPU; causal S, R and G without registers, w and s; S must have mixing
        chunk: rows per block.

    Parameters: exactly ``allocation.total``.
    """

    paths = PATHS

    def __init__(
        self,
        allocation: MlpAllocation,
        rope: str = "rotation",
        path: str = "auto",
        chunk: int = 128,
        rope_order: str = "before_gate",
        lambda_init: float = 0.8,
        position_rows: str = "from_start",
        register_place: str = "first",
        causal: bool = True,
    ):
        super().__init__()
        if path not in PATHS:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, PATHS)}")
        self.allocation, self.variant, self.max_len = allocation, allocation.label, allocation.size.max_len
        self.rotated = allocation.rotated
        self.n_head, self.query_heads = allocation.size.n_head, allocation.query_heads
        self.rope, self.chunk, self.by_lag = rope, chunk, allocation.label.layout == "lag"
        self.position_rows, self.register_place, self.causal = position_rows, register_place, causal
        self.rope_order, self.lambda_init, self.register_slots = rope_order, lambda_init, allocation.registers
        variant, d_model, r_qk, r_vo = allocation.label, allocation.size.d_model, allocation.r_qk, allocation.r_vo
        self.scale = allocation.qk_width**-0.5 if variant.has_softmax else 1.0
        self.uses_sdpa = variant.has_softmax and not (variant.has_mixing or variant.registers)
        is_tiled = variant.base in tiled.TILED_BASES and not (variant.registers or variant.window or variant.sink)
        self.has_tiles = causal and (is_tiled or self.uses_sdpa)
        self.window, self.has_slots_of_window = allocation.window, allocation.has_slots_of_window
        if self.has_slots_of_window and not causal:
            why = "its mixing tables have rows for a token and those before it, and none for later tokens"
            raise TrainingError(f"{variant}: {why}; build it with causal=True, or use a label without w or without o")
        if path == "sdpa" and not self.uses_sdpa:
            what = "softmax attention without mixing and registers"
            raise TrainingError(f"path 'sdpa' computes {what}, not {variant}; use 'auto'")
        why = fused.refusal(allocation) if causal else "the kernels are causal"
        self.has_kernel = not why
        if path == "fused" and why:
            raise TrainingError(f"path 'fused' cannot compute {variant}: {why}; use 'auto'")
        if path == "tiled" and not self.has_tiles:
            what = f"{variant}{'' if causal else ' of all tokens'}"
            what = f"causal S, R, G and D without registers, S with w or s and D only without mixing, not {what}"
            raise TrainingError(f"path 'tiled' computes {what}; use 'auto'")
        self.path = path
        self.kernel_problem = ""  # reason why path auto does not use the kernels, once it is known
        self.is_stacked = False
        """True if the mixer is called under ``vmap``. Operators that work head by head then treat models as heads."""

        self.q = nn.Linear(d_model, r_qk, bias=False)
        self.k = nn.Linear(d_model, allocation.r_k, bias=False)
        self.v = nn.Linear(d_model, allocation.r_v, bias=False)
        self.o = nn.Linear(r_vo, d_model, bias=False)
        self.k_conv = ShortConv(d_model) if variant.conv else None
        self.v_conv = ShortConv(d_model) if variant.conv else None
        self.qk_gate = nn.Linear(d_model, r_qk) if "qk_gate" in allocation.terms else None
        self.vo_gate = nn.Linear(d_model, r_vo) if "vo_gate" in allocation.terms else None
        self.head_gate = nn.Linear(d_model, self.n_head, bias=False) if variant.head_gate else None
        self.sink = nn.Parameter(torch.empty(self.query_heads)) if variant.sink else None
        self.registers = nn.Parameter(torch.empty(allocation.registers, d_model)) if variant.registers else None
        thin = allocation.adapter_rank
        self.v_down, self.v_up = self._adapter(d_model, thin, allocation.r_v) if variant.adapter else (None, None)
        self.o_down, self.o_up = self._adapter(r_vo, thin, d_model) if variant.adapter else (None, None)
        has = allocation.terms.__contains__
        self.contrast = Contrast(allocation.qk_width, lambda_init) if has("contrast") else None
        self.contrast_gate = nn.Linear(d_model, self.n_head, bias=False) if has("contrast_gate") else None
        norms = (nn.RMSNorm(allocation.qk_width, eps=QK_NORM_EPS) if variant.qk_norm else None for _ in "qk")
        self.q_norm, self.k_norm = norms
        self.head_norm = nn.RMSNorm(allocation.vo_width, eps=HEAD_NORM_EPS) if has("head_norm") else None
        self.is_from_end = position_rows == "from_end" and variant.has_mixing and not self.by_lag
        tables = (allocation.slots, allocation.r, self.is_from_end)
        self.mix1 = SequenceMixing(d_model, self.query_heads, *tables) if variant.mix1 else None
        self.mix2 = SequenceMixing(d_model, self.n_head, *tables) if variant.mix2 else None
        self._draw()

    def reset_parameters(self) -> None:
        """Draws the weights from N(0, 0.02^2), and sets the gains of norms to one.

        p, all biases, and the second factors of adapters are set to zero. With the same seed the values equal those of
        a new mixer.
        """
        redraw_parts(self)
        self._draw()

    def _draw(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith((".bias", ".p", "_up.weight")):
                nn.init.zeros_(parameter)
            elif name.endswith("_norm.weight"):
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02)

    @staticmethod
    def _adapter(inputs: int, rank: int, outputs: int) -> tuple[nn.Linear, nn.Linear]:
        return nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor, projected: Projected | None = None) -> Tensor:
        """Returns the mixed rows of x (B, T, D), of the same shape. Row t of a causal mixer depends on rows 0..t only.

        ``projected`` is the result of :meth:`project` for x, if it is already computed. Raises ``TrainingError`` for
        an x of another shape or of integers, and if T is 0 or too long.
        """
        check_sequences(x, self.variant)
        self.check_length(x.shape[1])
        path = self.resolve_path(x.shape[0], x.shape[1])
        if path == "reference":
            return self.reference(x).to(x.dtype)
        projected = self.for_each_head(self.project(x, 0) if projected is None else projected)
        if path in ("tiled", "fused") and is_transformed() and not self.is_stacked:
            raise TrainingError(f"path {path!r} has no rules for the transforms of torch.func; use 'auto'")
        if path == "sdpa" or (path == "tiled" and self.uses_sdpa):
            is_difference = self.variant.base == "D"
            v = torch.cat((projected.v, projected.v), dim=1) if is_difference else projected.v
            of_rows = (projected.q, projected.k, v, self.sink)
            o = softmax_paths.attend(path, *of_rows, self.window, self.causal, self._by_head)
            if is_difference:
                first, second = o.chunk(2, dim=1)
                o = first - self._contrast(projected) * second
        elif path in ("tiled", "fused"):
            q = projected.q * self.scale if self.variant.has_softmax else projected.q
            operator = tiled.attend if path == "tiled" else fused.attend
            o = self._by_head(operator, q, projected.k, projected.v, projected.s1, projected.s2)
        elif path == "dense":
            o = self.attend(self._ordered(projected), 0)
        else:
            o = self._attend_in_chunks(projected)
        return self.read_out(self.exclude(o, projected), x)

    def reference(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Rows of :meth:`forward`, computed by loops in float64: (B, rows, D). All rows if ``rows`` is None."""
        check_weights(self, "q", "k", "v", "o")
        names = ("rope", "rope_order", "lambda_init", "position_rows", "register_place", "causal", "window", "rotated")
        settings = {name: getattr(self, name) for name in names}
        return reference(dict(self.named_parameters()), self.variant, self.n_head, x, rows=rows, **settings)

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decodes a prompt x (B, T, D) at once. Returns its rows (B, T, D) and the cache for the next token.

        The result equals that of T calls of :meth:`step`, but needs only one :meth:`forward`. With ``slide``, tokens
        beyond ``max_len`` take one step each. With ``position_rows="from_end"`` only the last row and the cache equal
        those of steps, because earlier rows depend on the length of the prompt.
        """
        return decoding.prefill(self, x, slide)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decodes one token x (B, D). Returns the output (B, D) and the cache for the next token.

        The output equals row ``cache.position`` of :meth:`forward`. With ``position_rows="from_end"`` it equals the
        last row of :meth:`forward` on the tokens so far, because a longer input gives another row.

        With mixing, more than ``max_len`` tokens are an error unless ``slide`` is true, which keeps a window of the
        newest ``max_len`` tokens. The output is then the last row of :meth:`forward` on the window alone (paper,
        Theorem 2.3). Exceptions are labels with c, whose convolution reads inputs before the window, and labels whose
        scores depend on absolute positions, because a gate follows RoPE or ``rope`` is ``mispaired``.

        Without gradients (``torch.inference_mode()``) the memory of the cache is extended in place, and the weights of
        gates and mixings are those at the start of the text. With gradients every step copies the memory and reads the
        weights.
        """
        return decoding.step(self, x, cache, slide)

    def maps(self, x: Tensor, position: int = 0) -> Maps:
        """The scores, activations and weights of x (B, T, D), whose first row is at ``position``."""
        check_sequences(x, self.variant)
        self.check_length(x.shape[1])
        p = self.for_each_head(self.project(x, position))
        if self._exceeds_float16(p):
            with without_autocast(p.q):
                return self._maps(p.in_float32())
        return self._maps(p)

    def _maps(self, p: Projected) -> Maps:
        seen = self._seen(0, p)
        p = self._ordered(p)
        z = self._scores(p, 0)
        h, a, w, norm = self._weights(z, p, seen)
        norm = 1 if norm is None else norm
        return Maps(mask_slots(z, seen), mask_slots(h, seen), a / norm, w / norm)

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """Scores, active slots, weights, gates and mixing tables for x (B, T, D).

        The scores of G are those of the gate, whose sign selects (Proposition 2.4). The scores of D are those of the
        first softmax. Slots are returned by lag: slot l of a row is the token l steps before it. Registers have no lag
        and are left out. Raises ``TrainingError`` if rows see later tokens.
        """
        if not self.causal:
            raise TrainingError(
                f"{self.variant}: a mixer of all tokens has no lags to probe; build it with causal=True"
            )
        maps, first = self.maps(x), self.register_slots if self.register_place == "first" else 0
        h, w = (self._split(slots, 0)[0] for slots in (maps.hidden[:, : self.n_head], maps.weights))
        if not self.by_lag:
            h, w = by_lag(h), by_lag(w)
        elif self.window:
            h, w = (F.pad(slots, (0, x.shape[1] - slots.shape[-1])) for slots in (h, w))
        gates = {"QK": self.qk_gate, "VO": self.vo_gate}
        values = {name: torch.sigmoid(gate(x)) for name, gate in gates.items() if gate}
        kernels = {}
        for name, mixing in (("R(1)", self.mix1), ("R(2)", self.mix2)):
            if mixing:
                values[name] = mixing.strengths(x).transpose(1, 2)
                strengths = values[name].mean((0, 1))
                tables = (table[:, first : first + self.max_len] for table in (mixing.A, mixing.B, mixing.p))
                kernels[name] = LagKernel(*tables, strengths, self.variant.layout)
        return Probe(w, h, h > 0 if self.variant.has_selection else None, values, kernels)

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for an input of this shape, on the mixer's device and in its dtype."""
        if self.path != "auto":
            return self.path
        if is_symbolic(batch, length):
            return "sdpa" if self.uses_sdpa else "dense"
        if self.uses_sdpa and (self.is_stacked or not needs_plain_operators()):
            return "tiled" if self._is_faster_in_tiles(batch, length) else "sdpa"
        weight = weight_of(self.q)
        transformed = is_transformed() and not self.is_stacked  # stacked models are computed as more heads of one call
        if self.has_kernel and not transformed and fused.is_fast(weight.device, fused.arithmetic(weight)):
            if self._kernels_are_right(length):
                return "fused"
        scores = batch * self.query_heads * length * length * 4
        traced = is_traced() and not self.is_stacked
        enough = MIXED_TILED_FROM_BYTES if self.variant.has_mixing else TILED_FROM_BYTES
        if self.has_tiles and scores >= enough and weight.device.type == "cpu" and not traced:
            return "tiled"
        skips = self._skips_hidden_keys() and weight.device.type == "cpu" and not traced
        is_small = length <= (self.chunk if skips else DENSE_LIMIT_LENGTH) and scores <= DENSE_LIMIT_BYTES
        return "dense" if is_small or length <= self.chunk else "chunked"

    def _is_faster_in_tiles(self, batch: int, length: int) -> bool:
        """True if tiles train softmax attention without mixing faster than torch's own attention."""
        weight, heads = weight_of(self.q), self.query_heads
        if not (self.has_tiles and weight.device.type == "cpu" and fused.arithmetic(weight) == torch.float32):
            return False
        if is_traced() and not self.is_stacked:
            return False
        if not (torch.is_grad_enabled() or self.window):  # torch's attention also computes what a window hides
            return False
        is_large = batch * heads * length * length * 4 >= SOFTMAX_TILED_FROM_BYTES and length > softmax.BLOCK_ROWS
        return is_large and softmax.keeps_weights(batch, heads, length, self.window)

    def _kernels_are_right(self, length: int) -> bool:
        """True if the kernels compute correct numbers on this device. Checked before their first use."""
        weight = weight_of(self.q)
        if is_traced() or (weight.is_cuda and torch.cuda.is_current_stream_capturing()):
            return True  # no additional computation is possible here
        program = proof.Program.from_allocation(self.allocation, fused.arithmetic(weight), length)
        self.kernel_problem = proof.problem(program, weight.device)
        return not self.kernel_problem

    def check_length(self, length: int) -> None:
        """Raises ``TrainingError`` if the length exceeds the mixing tables."""
        if length > self.allocation.most_tokens:
            limit = f"its mixing tables hold max_len = {self.max_len}; build it with a larger max_len"
            raise TrainingError(f"{self.variant}: {length} tokens, but {limit}")

    def project(
        self,
        x: Tensor,
        position: int,
        ahead: Ahead | None = None,
    ) -> Projected:
        """Projects x (B, T, D) to queries, keys, values and mixing strengths. The first token is at ``position``.

        With m there is one key and value per group of heads (:meth:`for_each_head` repeats them). ``ahead`` are the
        values of x that a decoding step has already computed.
        """
        k_in = v_in = x
        known = ahead.outputs if ahead else {}
        if self.k_conv:
            k_in, v_in = ahead.inputs if ahead else (self.k_conv(x), self.v_conv(x))
        if self.k_conv or x.shape[1] == 1:  # for one row, reading the weights dominates, so they are not concatenated
            q, k, v = known["q"] if known else call(self.q, x), call(self.k, k_in), call(self.v, v_in)
        else:
            q, k, v = project(x, self.q, self.k, self.v)
        if self.v_down:
            v = v + self.v_up(self.v_down(v_in))
        q, k = _split_heads(q, self.query_heads), _split_heads(k, self.allocation.key_heads)
        v = _split_heads(v, self.allocation.value_heads)
        q, k = _normalized(self.q_norm, q), _normalized(self.k_norm, k)
        gate = None
        if self.qk_gate:
            gate = _split_heads(_sigmoid(self.qk_gate, x, known.get("qk_gate")), self.query_heads)
        unturned = q if gate is None else q * gate
        to_registers = None
        if self.registers is not None:
            keys = _split_heads(self.k(self.registers)[None], self.allocation.key_heads)
            keys = _normalized(self.k_norm, keys)
            to_registers = unturned @ self._keys_of_heads(keys).transpose(-1, -2)
        if not self.variant.rope:
            q = unturned
        else:
            angles = ahead.angles if ahead else rotary_angles(k[..., : self.rotated], position)
            where = (position, self.rope, angles)
            is_before_gate = gate is not None and self.rope_order == "before_gate"
            q = rotate(q, *where) * gate if is_before_gate else rotate(unturned, *where)
            k = rotate(k, *where)
        s1 = self.mix1.strengths(x, known.get("mix1.gate")) if self.mix1 else None
        s2 = self.mix2.strengths(x, known.get("mix2.gate")) if self.mix2 else None
        contrast = None
        if self.contrast_gate:
            contrast = _sigmoid(self.contrast_gate, x, known.get("contrast_gate")).transpose(1, 2)[..., None]
        return Projected(q, k, v, s1, s2, to_registers, contrast)

    def for_each_head(self, p: Projected) -> Projected:
        """Repeats shared keys and values for all heads: k (B, H_q, S, K), v (B, H, S, V)."""
        if not self.allocation.shares_heads:
            return p
        return replace(p, k=self._keys_of_heads(p.k), v=_repeat_heads(p.v, self.n_head))

    def _keys_of_heads(self, k: Tensor) -> Tensor:
        """Repeats keys for all query heads, (B, key heads, S, K) -> (B, H_q, S, K). In DIFF V2 both sets share keys."""
        if self.allocation.differential == "v2":
            k = torch.cat((k, k), dim=1)
        return _repeat_heads(k, self.query_heads)

    def _contrast(self, p: Projected) -> Tensor | None:
        """The weight of D's second softmax: one number, or with DIFF V2 one per head and row."""
        return self.contrast() if self.contrast else p.contrast

    def _exceeds_float16(self, p: Projected) -> bool:
        return p.q.dtype == torch.float16 and not self.variant.has_softmax

    def _ordered(self, p: Projected) -> Projected:
        return replace(p, k=newest_first(p.k), v=newest_first(p.v)) if self.by_lag and self.causal else p

    def _last_token(self, first_row: int, p: Projected) -> int:
        """The last token that the first row of a block sees. If the mixer is not causal, this is the last of all."""
        return first_row if self.causal else p.k.shape[2] - 1

    def _seen(self, first_row: int, p: Projected, is_step: bool = False) -> Seen:
        """The slots that the rows of a block see.

        In a step, ``p`` has only the visible keys, except with w and mixing in the position layout, where it has all.
        """
        rows, tokens = p.q.shape[2], p.k.shape[2]
        if not self.window or self.has_slots_of_window:
            return None if is_step else self._last_token(first_row, p) + self.register_slots
        if is_step and tokens <= self.window:
            return None
        visible = in_window(rows, tokens, first_row, self.window, self.causal, p.q.device)
        if not self.register_slots:
            return visible
        registers = visible.new_ones(rows, self.register_slots)
        if self.register_place == "first":
            return torch.cat((registers, visible), dim=-1)
        last = self._last_token(first_row, p)
        return append_slots(visible, registers, last).tril(last + self.register_slots)

    def _scores(self, p: Projected, first_row: int, step: StepWeights | None = None) -> Tensor:
        """Scores (B, H_q, M, W + registers). Undefined in slots that a row cannot see. With w and o, W is at most w."""
        q = p.q * self.scale if self.variant.has_softmax else p.q
        if self.by_lag and self.causal and not step:
            z = lag_scores(q, p.k)
            z = z[..., : self.window] if self.window else z
        else:
            z = self._by_slot(q @ p.k.transpose(-1, -2), first_row, step)
        if p.to_registers is None:
            return z
        to_registers = p.to_registers * self.scale
        if self.register_place == "first":
            return torch.cat((to_registers, z), dim=-1)
        return append_slots(z, to_registers, self._last_token(first_row, p))

    def _by_slot(self, z: Tensor, first_row: int, step: StepWeights | None) -> Tensor:
        """Converts z (B, heads, M, W) between positions and slots, for a step or for rows that see all tokens."""
        if not self.by_lag or (step and step.is_reversed):
            return z
        return z.flip(-1) if step else swap_position_and_lag(z, first_row)

    def _split(self, w: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Splits slots into those of tokens and of registers. ``last`` is the last token that the first row sees."""
        if self.register_place == "first":
            return w[..., self.register_slots :], w[..., : self.register_slots]
        return split_slots(w, self.register_slots, last)

    def _weights(
        self, z: Tensor, p: Projected, seen: Seen, step: StepWeights | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Computes h, a and w of :class:`Maps` from the scores z, and the norm by which a and w must be divided."""
        if step:
            mix1, mix2 = step.mix1, step.mix2
        else:
            mix1, mix2 = self.mix1 and self.mix1.right, self.mix2 and self.mix2.right_transposed
        h = mix1(mask_slots(z, seen), p.s1) if mix1 else z
        a, norm = activate(self.variant.base, h, seen, self._contrast(p), self.sink)
        return h, a, mask_slots(mix2(a, p.s2), seen) if mix2 else a, norm

    def attend(self, p: Projected, first_row: int, step: StepWeights | None = None) -> Tensor:
        """Attends from rows ``first_row, ...`` to all keys up to the last of them: (B, H, M, V).

        For a ``step``, which has one row, the keys are by position in both layouts. In float16, R, G and L are computed
        in float32: their scores and activations are divided by the norm only at the end, and may be too small for
        float16.
        """
        if self._exceeds_float16(p):
            with without_autocast(p.q):
                return self.attend(p.in_float32(), first_row, step).to(p.q.dtype)
        seen = self._seen(first_row, p, step is not None)
        *_, w, norm = self._weights(self._scores(p, first_row, step), p, seen, step)
        last = self._last_token(first_row, p)
        of_tokens, of_registers = self._split(w, last) if self.register_slots else (w, None)
        if self.by_lag and self.causal and not step:
            slots = p.v.shape[2] - 1
            of_tokens = F.pad(of_tokens, (0, slots - of_tokens.shape[-1])) if self.window else of_tokens
            o = lag_readout(of_tokens, p.v)
        else:
            o = self._by_slot(of_tokens, first_row, step) @ p.v
        if of_registers is not None:
            o = o + of_registers @ self._register_values().to(of_registers.dtype)
        return o if norm is None else (o / norm).to(o.dtype)

    def _register_values(self) -> Tensor:
        """The values of the registers, (1, H, registers, V)."""
        v = self.v(self.registers)
        v = v + self.v_up(self.v_down(self.registers)) if self.v_down else v
        return _repeat_heads(_split_heads(v[None], self.allocation.value_heads), self.n_head)

    def _by_head(self, operator: Callable[..., Tensor], *rows: Tensor | None) -> Tensor:
        """Applies ``operator`` to the projected rows of the heads, also under ``vmap`` over models."""
        tables = (mixing and mixing.tables(rows[0].shape[-2]) for mixing in (self.mix1, self.mix2))
        inputs = (self.variant.base, self.by_lag, *rows, *tables)
        return attend_stacked(operator, *inputs) if self.is_stacked else operator(*inputs)

    def _attend_in_chunks(self, p: Projected) -> Tensor:
        whole, length, blocks = self._ordered(p), p.q.shape[2], []
        for start in range(0, length, self.chunk):
            end = min(start + self.chunk, length)
            of_rows = (p.q, p.s1, p.s2, p.to_registers, p.contrast)
            q, s1, s2, *others = (None if t is None else t[:, :, start:end] for t in of_rows)
            seen = self._keys_of_rows(start, end, length)
            first_row = start - seen.start
            if self.by_lag and self.causal:
                seen = slice(length - end, length + 1 - seen.start)  # one more row, as in newest_first
            block = (q, whole.k[:, :, seen], whole.v[:, :, seen], s1, s2, *others)
            blocks.append(recompute(self._attend_block, first_row, *block, module=self))
        return torch.cat(blocks, dim=2)

    def _keys_of_rows(self, start: int, end: int, length: int) -> slice:
        """The range of keys that a block of rows is given. It contains all keys that the rows see."""
        first, last = 0, end if self.causal and not self.is_from_end else length
        if self._skips_hidden_keys():
            first, last = max(0, start - self.window + 1), min(last, end + self.window - 1)
        return slice(first, last)

    def _skips_hidden_keys(self) -> bool:
        """True if blocks of rows get only the keys of their windows. With mixing by position, all keys have slots."""
        return self.window > 0 and (self.has_slots_of_window or not self.variant.has_mixing)

    def _attend_block(self, first_row: int, *block: Tensor | None) -> Tensor:
        return self.attend(Projected(*block), first_row)

    def exclude(self, o: Tensor, p: Projected) -> Tensor:
        """With e, removes the component along each token's own value from the readout of the heads, o (B, H, T, V)."""
        return exclude(o, p.v) if self.variant.exclusive else o

    def read_out(self, o: Tensor, x: Tensor, ahead: Ahead | None = None) -> Tensor:
        """Rows (B, T, D) from the readout of the heads, o (B, H, T, V), gated by the tokens x (B, T, D)."""
        known = ahead.outputs if ahead else {}
        if self.head_norm:
            o = _normalized(self.head_norm, o, 1 - self.lambda_init)
        if self.head_gate:
            o = o * _sigmoid(self.head_gate, x, known.get("head_gate")).transpose(1, 2)[..., None]
        o = o.transpose(1, 2).flatten(-2)
        if self.vo_gate:
            o = o * _sigmoid(self.vo_gate, x, known.get("vo_gate"))
        return call(self.o, o) + self.o_up(self.o_down(o)) if self.o_down else call(self.o, o)


def _sigmoid(gate: nn.Module, x: Tensor, known: Tensor | None) -> Tensor:
    """The value of a gate for x, unless it is ``known``."""
    return torch.sigmoid(call(gate, x)) if known is None else known


def _normalized(norm: nn.Module | None, x: Tensor, scale: float = 1.0) -> Tensor:
    """Applies the norm to x in the dtype of its gain, and multiplies by ``scale``. Returns x if the norm is None."""
    if norm is None:
        return x
    y = norm(x.to(norm.weight.dtype))
    return (y if scale == 1 else scale * y).to(x.dtype)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Splits channels into heads, (B, T, heads * C) -> (B, heads, T, C)."""
    if x.shape[1] == 1:
        return x.view(len(x), heads, 1, -1)
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeats shared heads, (B, shared heads, T, C) -> (B, heads, T, C). Consecutive heads get the same one."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
