"""The ``nn.Module`` of all S/R/G labels, from projections to output. Its paths are in other files of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError
from madbench.mixers.inputs import check_sequences
from madbench.mixers.ops.heads import split_heads
from madbench.mixers.ops.linear_maps import call, check_weights, project
from madbench.mixers.ops.rope import rotary_angles, rotate
from madbench.mixers.ops.short_conv import ShortConv
from madbench.mixers.ops.tracing import is_transformed
from madbench.mixers.probe import Probe
from madbench.mixers.redrawing import redraw_parts
from madbench.mixers.srg import block_attention, decoding, path_choice, softmax_paths, tiled
from madbench.mixers.srg.allocation import ADAPTER_OUTPUTS, SrgAllocation
from madbench.mixers.srg.decoding import Cache
from madbench.mixers.srg.kernels import fused
from madbench.mixers.srg.maps import Maps, maps, probe
from madbench.mixers.srg.parts import Contrast, Projected, SequenceMixing, exclude
from madbench.mixers.srg.path_choice import PATHS
from madbench.mixers.srg.reference import reference
from madbench.mixers.srg.stacked import attend_stacked
from madbench.mixers.srg.step_weights import has_short_steps

HEAD_NORM_EPS = 1e-5
QK_NORM_EPS = 1e-6  # as in Qwen3


class DynamicMLP(nn.Module):
    """The mixer of an S/R/G label. Each head is a two-layer MLP whose weights come from the prefix.

    The paper calls such a head a dynamic MLP.

    The equations are those of the HyperMLP paper (eq. 7-11, appendices G, J and L). For row t, with ``l`` running over
    the slots of its prefix::

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
      authors' models (Qiu et al. 2025). Models of the Marin project use 2 sigmoid and start w_h at zero, so that a gate
      starts at one.
    - e: the component along the token's own value is removed from the readout of a head (see
      :func:`madbench.mixers.srg.parts.exclude`). This happens before the norm of D and before all gates.

    Args:
        allocation: label, width, heads, maximum length and ranks, from :func:`madbench.mixers.srg.budget.solve`.
        rope: ``rotation`` or ``mispaired`` (see :func:`madbench.mixers.ops.rope.rotate`).
        rope_order: ``before_gate`` as in the paper, or ``after_gate``, with which scores depend on offsets alone even
            if the label has g.
        lambda_init: initial factor of the second softmax of D. DIFF V2 (``allocation.differential``) has none: its
            factor is sigmoid(x_t w_lambda) per head, without a bias. w_lambda starts as the weights of gates do, so
            that the factor starts near 1/2. Both softmaxes of a head share its key and value.
        position_rows: for mixing without ``o``: ``from_start``, or ``from_end`` as in the paper's public code, with
            which the table row of a position depends on the length of the whole input.
        register_place: for k with mixing: ``first``, or ``last``, behind a row's last token.
        causal: True if a row sees the tokens up to its own, False if it sees all tokens. If False, slot l of row t of T
            is, in the lag layout, the token (t - l) mod T, so that the last row equals that of the causal mixer. A
            convolution still reads earlier tokens only. With w, a row sees the tokens at a distance below w.
        path: ``auto``, or one of these paths. All compute the same function.

            - ``reference``: loops in float64
            - ``dense``: all rows at once
            - ``chunked``: blocks of ``chunk`` rows, recomputed in the backward pass; peak memory B H chunk T instead of
              B H T T
            - ``tiled``: blocks that fit in a CPU's cache, with gradients by hand; causal mixers whose scores have no
              other letters than S, R, G, 1, 2 and o, or S, D, w and s
            - ``sdpa``: torch's scaled dot product attention; mixers whose scores have no other letters than S, D, w
              and s
            - ``fused``: Triton kernels on a GPU; causal mixers whose scores have no other letters than S, R, G, 1, 2
              and o; S must have mixing
        chunk: rows per block.

    Parameters: exactly ``allocation.total``.
    """

    paths = PATHS
    settings = ("rope", "rope_order", "lambda_init", "position_rows", "register_place")
    """The settings of the family that this class and its reference take as arguments.

    Other settings reach the mixer as fields of its allocation, or through its ranks.
    """

    def __init__(
        self,
        allocation: SrgAllocation,
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
        path_choice.check(path, allocation, causal)
        self.allocation = allocation
        self.label = allocation.label
        self.max_len = allocation.size.max_len
        self.rotated = allocation.rotated
        self.n_head = allocation.size.n_head
        self.query_heads = allocation.query_heads
        self.rope = rope
        self.chunk = chunk
        self.by_lag = allocation.label.layout == "lag"
        self.position_rows = position_rows
        self.register_place = register_place
        self.causal = causal
        self.rope_order = rope_order
        self.lambda_init = lambda_init
        self.register_slots = allocation.registers
        label, d_model, r_qk, r_vo = allocation.label, allocation.size.d_model, allocation.r_qk, allocation.r_vo
        self.scale = allocation.qk_width**-0.5 if label.has_softmax else 1.0
        self.uses_sdpa = not path_choice.refusal("sdpa", allocation, causal)
        self.has_tiles = not path_choice.refusal("tiled", allocation, causal)
        self.has_kernel = not path_choice.refusal("fused", allocation, causal)
        self.window = allocation.window
        self.has_slots_of_window = allocation.has_slots_of_window
        if self.has_slots_of_window and not causal:
            why = "its mixing tables have rows for a token and those before it, and none for later tokens"
            raise TrainingError(f"{label}: {why}; build it with causal=True, or use a label without w or without o")
        self.has_short_steps = has_short_steps(label)
        self.has_sdpa_steps = decoding.has_sdpa_steps(label)
        self.path = path
        self.kernel_problem = ""  # reason why path auto does not use the kernels, once it is known
        self.is_stacked = False
        """True if the mixer is called under ``vmap``. Operators that work head by head then treat models as heads."""

        self.q = nn.Linear(d_model, r_qk, bias=False)
        self.k = nn.Linear(d_model, allocation.r_k, bias=False)
        self.v = nn.Linear(d_model, allocation.r_v, bias=False)
        self.o = nn.Linear(r_vo, d_model, bias=False)
        self.k_conv = ShortConv(d_model) if label.conv else None
        self.v_conv = ShortConv(d_model) if label.conv else None
        self.qk_gate = nn.Linear(d_model, r_qk) if "qk_gate" in allocation.terms else None
        self.vo_gate = nn.Linear(d_model, r_vo) if "vo_gate" in allocation.terms else None
        self.head_gate = nn.Linear(d_model, self.n_head, bias=False) if label.head_gate else None
        self.sink = nn.Parameter(torch.empty(self.query_heads)) if label.sink else None
        self.registers = nn.Parameter(torch.empty(allocation.registers, d_model)) if label.registers else None
        thin = allocation.adapter_rank
        self.v_down: nn.Linear | None
        self.v_up: nn.Linear | None
        self.o_down: nn.Linear | None
        self.o_up: nn.Linear | None
        self.v_down, self.v_up = self._adapter(d_model, thin, allocation.r_v) if label.adapter else (None, None)
        self.o_down, self.o_up = self._adapter(r_vo, thin, d_model) if label.adapter else (None, None)
        self.starts_at_zero = [f"{name}.weight" for name in ADAPTER_OUTPUTS] if label.adapter else []
        has = allocation.terms.__contains__
        self.contrast = Contrast(allocation.qk_width, lambda_init) if has("contrast") else None
        self.contrast_gate = nn.Linear(d_model, self.n_head, bias=False) if has("contrast_gate") else None
        norms = (nn.RMSNorm(allocation.qk_width, eps=QK_NORM_EPS) if label.qk_norm else None for _ in "qk")
        self.q_norm, self.k_norm = norms
        self.head_norm = nn.RMSNorm(allocation.vo_width, eps=HEAD_NORM_EPS) if has("head_norm") else None
        self.is_from_end = position_rows == "from_end" and label.has_mixing and not self.by_lag
        tables = (allocation.slots, allocation.r, self.is_from_end)
        self.mix1 = SequenceMixing(d_model, self.query_heads, *tables) if label.mix1 else None
        self.mix2 = SequenceMixing(d_model, self.n_head, *tables) if label.mix2 else None
        self._draw()

    def reset_parameters(self) -> None:
        """Initialize all parameters again. With the same seed the values equal those of a new mixer.

        Weights are drawn from N(0, 0.02^2), in the order of the parameters. Gains of norms start at one. Biases start
        at zero, and so do the parameters that a module names in ``starts_at_zero``: the diagonals p of the mixing
        matrices R(1) and R(2), and the second factors of adapters.
        """
        redraw_parts(self)
        self._draw()

    def _draw(self) -> None:
        zeros: set[Tensor | None] = {getattr(module, "bias", None) for module in self.modules()}
        for module in self.modules():
            zeros.update(module.get_parameter(name) for name in getattr(module, "starts_at_zero", ()))
        for module in self.modules():
            for parameter in module.parameters(recurse=False):
                if isinstance(module, nn.RMSNorm):
                    nn.init.ones_(parameter)
                elif parameter in zeros:
                    nn.init.zeros_(parameter)
                else:
                    nn.init.normal_(parameter, std=0.02)

    @staticmethod
    def _adapter(inputs: int, rank: int, outputs: int) -> tuple[nn.Linear, nn.Linear]:
        return nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor, projected: Projected | None = None) -> Tensor:
        """Return the mixed rows of x (B, T, D), of the same shape. Row t of a causal mixer depends on rows 0..t only.

        ``projected`` is the result of :meth:`project` for x, if it is already computed. Raises ``TrainingError`` for
        an x of another shape or of integers, and if T is 0 or too long.
        """
        check_sequences(x, self.label, self.allocation.size.d_model)
        self.check_length(x.shape[1])
        path = self.resolve_path(x.shape[0], x.shape[1])
        if path == "reference":
            return self.reference(x).to(x.dtype)
        projected = self.for_each_head(self.project(x, 0) if projected is None else projected)
        if path in ("tiled", "fused") and is_transformed() and not self.is_stacked:
            raise TrainingError(f"path {path!r} has no rules for the transforms of torch.func; use 'auto'")
        if path == "sdpa" or (path == "tiled" and self.uses_sdpa):
            is_difference = self.label.base == "D"
            v = torch.cat((projected.v, projected.v), dim=1) if is_difference else projected.v
            of_rows = (projected.q, projected.k, v, self.sink)
            o = softmax_paths.attend(path, *of_rows, self.window, self.causal, self._by_head)
            if is_difference and (contrast := block_attention.contrast(self, projected)) is not None:
                first, second = o.chunk(2, dim=1)
                o = first - contrast * second
        elif path in ("tiled", "fused"):
            q = projected.q * self.scale if self.label.has_softmax else projected.q
            operator = tiled.attend if path == "tiled" else fused.attend
            o = self._by_head(operator, q, projected.k, projected.v, projected.s1, projected.s2)
        elif path == "dense":
            o = self.attend(block_attention.ordered(self, projected), 0)
        else:
            o = block_attention.attend_in_chunks(self, projected)
        return self.read_out(self.exclude(o, projected), x)

    def reference(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Rows of the output for x (B, T, D), computed by simple loops in float64, independent of :meth:`forward`.

        Return (B, number of rows, D) for the given row indices, or all T rows if ``rows`` is None.
        """
        check_weights(self, "q", "k", "v", "o")
        settings = {name: getattr(self, name) for name in (*self.settings, "causal", "window", "rotated")}
        return reference(dict(self.named_parameters()), self.label, self.n_head, x, rows=rows, **settings)

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decode a prompt x (B, T, D) at once. Return its rows (B, T, D) and the cache for the next token.

        The result equals that of T calls of :meth:`step`, but needs only one :meth:`forward`. If ``slide`` is true,
        tokens beyond ``max_len`` take one step each; see :meth:`step`. With ``position_rows="from_end"`` only the last
        row and the cache equal those of steps, because earlier rows depend on the length of the prompt.
        """
        return decoding.prefill(self, x, slide)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decode one token x (B, D) per sequence. Return the output (B, D) and the cache for the next token.

        ``cache`` is that of the step before or of :meth:`prefill`; None starts new sequences. The output equals row
        ``cache.position`` of :meth:`forward`. With ``position_rows="from_end"`` it equals the last row of
        :meth:`forward` on the tokens so far, because a longer input gives another row.

        With mixing, more than ``max_len`` tokens are an error unless ``slide`` is true, which keeps a window of the
        newest ``max_len`` tokens. The output is then the last row of :meth:`forward` on the window alone (paper,
        Theorem 2.3). Exceptions are labels with c, whose convolution reads inputs before the window, and labels whose
        scores depend on absolute positions, because a gate follows RoPE or ``rope`` is ``mispaired``.

        Without gradients (``torch.inference_mode()``) the memory of the cache is extended in place. Weights are
        prepared once, and again after they were changed in place. Such a change is not noticed if the weights were
        created in ``torch.inference_mode()``. With gradients every step copies the memory and reads the weights.
        """
        return decoding.step(self, x, cache, slide)

    def attend(self, p: Projected, first_row: int, is_step: bool = False) -> Tensor:
        """The readout of values (B, H, M, V) for the M rows of ``p``, the first of which is at position ``first_row``.

        See :func:`madbench.mixers.srg.block_attention.attend`.
        """
        return block_attention.attend(self, p, first_row, is_step)

    def maps(self, x: Tensor, position: int = 0) -> Maps:
        """The scores, activations and weights in every slot, for x (B, T, D), whose first row is at ``position``."""
        return maps(self, x, position)

    def probe(self, x: Tensor) -> Probe:
        """Scores, active slots, weights, gates and mixing tables for x (B, T, D).

        The scores of G are those of the gate, whose sign selects (Proposition 2.4). The scores of D are those of the
        first softmax. Slots are returned by lag: slot l of a row is the token l steps before it. Registers have no lag
        and are left out. Raises ``TrainingError`` if rows see later tokens.
        """
        return probe(self, x)

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for ``batch`` sequences of ``length`` tokens, on the mixer's device.

        It is one of :attr:`paths` other than ``auto``, and also depends on the dtype of the weights.
        """
        return path_choice.choose(self, batch, length)

    def check_length(self, length: int) -> None:
        """Raise ``TrainingError`` if an input of ``length`` tokens has more slots than the mixing tables have rows."""
        if length > self.allocation.most_tokens:
            limit = f"its mixing tables hold max_len = {self.max_len}; build it with a larger max_len"
            raise TrainingError(f"{self.label}: {length} tokens, but {limit}")

    def project(
        self,
        x: Tensor,
        position: int,
        before: Tensor | None = None,
        angles: tuple[Tensor, Tensor] | None = None,
    ) -> Projected:
        """Project x (B, T, D) to queries, keys, values and mixing strengths. The first token is at ``position``.

        With the letter m there is one key and value per group of heads (:meth:`for_each_head` repeats them). ``before``
        are the three inputs before x (B, 3, D), read by a convolution; None means zeros. ``angles`` are those of RoPE,
        if already computed.
        """
        k_in = v_in = x
        if (k_conv := self.k_conv) and (v_conv := self.v_conv):
            k_in, v_in = k_conv(x, before), v_conv(x, before)
        if k_conv or x.shape[1] == 1:  # for one row, reading the weights dominates, so they are not concatenated
            q, k, v = call(self.q, x), call(self.k, k_in), call(self.v, v_in)
        else:
            q, k, v = project(x, self.q, self.k, self.v)
        if (v_down := self.v_down) and (v_up := self.v_up):
            v = v + v_up(v_down(v_in))
        q, k = split_heads(q, self.query_heads), split_heads(k, self.allocation.key_heads)
        v = split_heads(v, self.allocation.value_heads)
        q, k = _normalized(self.q_norm, q), _normalized(self.k_norm, k)
        gate = None
        if self.qk_gate:
            gate = split_heads(torch.sigmoid(call(self.qk_gate, x)), self.query_heads)
        unturned = q if gate is None else q * gate
        to_registers = None
        if self.registers is not None:
            keys = split_heads(self.k(self.registers)[None], self.allocation.key_heads)
            keys = _normalized(self.k_norm, keys)
            to_registers = unturned @ self._keys_of_heads(keys).transpose(-1, -2)
        if not self.label.rope:
            q = unturned
        else:
            angles = angles or rotary_angles(k[..., : self.rotated], position)
            where = (position, self.rope, angles)
            if gate is not None and self.rope_order == "before_gate":
                q = rotate(q, *where) * gate
            else:
                q = rotate(unturned, *where)
            k = rotate(k, *where)
        s1 = self.mix1.strengths(x) if self.mix1 else None
        s2 = self.mix2.strengths(x) if self.mix2 else None
        contrast = None
        if self.contrast_gate:
            contrast = torch.sigmoid(call(self.contrast_gate, x)).transpose(1, 2)[..., None]
        return Projected(q, k, v, s1, s2, to_registers, contrast)

    def for_each_head(self, p: Projected) -> Projected:
        """Repeat shared keys and values for all heads: k (B, H_q, S, K), v (B, H, S, V)."""
        if not self.allocation.shares_heads:
            return p
        return replace(p, k=self._keys_of_heads(p.k), v=_repeat_heads(p.v, self.n_head))

    def _keys_of_heads(self, k: Tensor) -> Tensor:
        """Repeat keys for all query heads, (B, key heads, S, K) -> (B, H_q, S, K).

        In DIFF V2 both sets of query heads get the same keys.
        """
        if self.allocation.differential == "v2":
            k = torch.cat((k, k), dim=1)
        return _repeat_heads(k, self.query_heads)

    def register_values(self) -> Tensor:
        """The values of the registers, (1, H, registers, V)."""
        v = self.v(self.registers)
        if (v_down := self.v_down) and (v_up := self.v_up):
            v = v + v_up(v_down(self.registers))
        return _repeat_heads(split_heads(v[None], self.allocation.value_heads), self.n_head)

    def _by_head(self, operator: Callable[..., Tensor], q: Tensor, *rows: Tensor | None) -> Tensor:
        """Call an operator, such as ``tiled.attend``, with the label's base and layout, projections and mixing tables.

        ``rows`` are the further projections of tokens, such as k and v. Also works under ``vmap`` over models, if
        ``is_stacked`` is true.
        """
        tables = (mixing and mixing.tables(q.shape[-2]) for mixing in (self.mix1, self.mix2))
        inputs: Any = (self.label.base, self.by_lag, q, *rows, *tables)
        return attend_stacked(operator, *inputs) if self.is_stacked else operator(*inputs)

    def exclude(self, o: Tensor, p: Projected) -> Tensor:
        """Remove from o (B, H, T, V) the component along each token's own value. ``p`` are the tokens' projections.

        Return o unchanged if the label does not have the letter e.
        """
        return exclude(o, p.v) if self.label.exclusive else o

    def read_out(self, o: Tensor, x: Tensor) -> Tensor:
        """Compute the output (B, T, D) from the readout o (B, H, T, V): the norm and gates of the heads, then W_o.

        The gates depend on the tokens x (B, T, D).
        """
        if self.head_norm:
            o = _normalized(self.head_norm, o, 1 - self.lambda_init)
        if self.head_gate:
            o = o * torch.sigmoid(call(self.head_gate, x)).transpose(1, 2)[..., None]
        o = o.transpose(1, 2).flatten(-2)
        if self.vo_gate:
            o = o * torch.sigmoid(call(self.vo_gate, x))
        if (o_down := self.o_down) and (o_up := self.o_up):
            y: Tensor = call(self.o, o) + o_up(o_down(o))
            return y
        return call(self.o, o)


def _normalized(norm: nn.RMSNorm | None, x: Tensor, scale: float = 1.0) -> Tensor:
    """Apply the norm to x in the dtype of its gain, and multiply by ``scale``. Return x if the norm is None."""
    if norm is None:
        return x
    y: Tensor = norm(x.to(norm.weight.dtype))
    return (y if scale == 1 else scale * y).to(x.dtype)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat shared heads, (B, shared heads, T, C) -> (B, heads, T, C). Consecutive heads get the same shared head."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
