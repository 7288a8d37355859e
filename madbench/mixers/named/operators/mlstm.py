"""mLSTM, the matrix memory of xLSTM (Beck et al. 2024, arXiv 2405.04517), as in xLSTM 7B (arXiv 2503.13427).

    S_t = f_t S_(t-1) + i_t k_t v_t^T,    n_t = f_t n_(t-1) + i_t k_t,    h_t = S_t^T q_t / max(|n_t^T q_t|, 1)

S is (K, V) and n is (K,) per head, and q is scaled by 1 / sqrt(K). i_t = exp(c(w_i x_t + b_i)) and
f_t = sigmoid(c(w_f x_t + b_f)), each per head, with c(a) = 15 tanh(a / 15). There is no convolution. The output is
W_o (sigmoid(W_g x_t) * LayerNorm(h_t)), with a norm per head and a gain per channel.

S and n are stored divided by e^m_t, so that nothing overflows. m_t = max(log f_t + m_(t-1), log i_t) is the running
maximum, with m_0 = 0. As in the library, 1e-6 is added to the denominator after this division. In the equation above,
this is an addition of 1e-6 e^m_t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from madbench.mixers.named.parts import Gain, Linear, Part
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths_near_double

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

CAP = 15  # largest absolute logit of i and f
EPS = 1e-6  # epsilon of the denominator and of the norm


@dataclass(frozen=True)
class MLSTM(Recurrent):
    """The named operator mLSTM: the matrix memory of xLSTM, with an input gate and a forget gate per head.

    The equations are in the docstring of this module. The last column of the state is n, the gated sum of keys.
    """

    name: ClassVar = "mLSTM"
    title: ClassVar = "mLSTM of xLSTM"
    equation: ClassVar = (
        "S_t = f_t S_(t-1) + i_t k_t v_t^T, n_t = f_t n_(t-1) + i_t k_t, h_t = S_t^T q_t / max(abs(n_t^T q_t), 1)"
    )
    source: ClassVar = "Beck et al. 2024, arXiv 2405.04517"
    library: ClassVar = "xLSTMLayer"
    origin: ClassVar = "transformers 5"
    differs: ClassVar = (
        "The layer of xLSTM 7B, without the convolution and the projections up and down of the first paper."
    )
    counterpart: ClassVar = "cd:mlstm"
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + 2*d*H + 2*H + H*V"
    state: ClassVar = "H*K*V + H*K + H"
    output: ClassVar = "out_proj"
    gates: ClassVar = ("ogate_preact", "igate_preact", "fgate_preact")
    keeps_init: ClassVar = ("q", "k", "v", "ogate_preact", "igate_preact", "fgate_preact", "out_proj")
    takes_layer: ClassVar = True
    has_mirror: ClassVar = False

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return widths_near_double(d, heads, step, 2, 3)

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, max(1, d // (2 * heads)), max(1, d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, keys, values = dims.d, dims.heads, dims.key_dim, dims.value_dim
        return {
            "q": Linear(d, keys, init="small"),
            "k": Linear(d, keys, init="small"),
            "v": Linear(d, values, init="small"),
            "ogate_preact": Linear(d, values, init="zeros"),
            "igate_preact": Linear(d, heads, bias=(-10, -10), init="zeros"),
            "fgate_preact": Linear(d, heads, bias=(3, 6), init="zeros"),
            "multihead_norm": Gain(values),
            "out_proj": Linear(values, d, init="by depth"),
        }

    def recurrent(self, dims: Dims) -> int:
        return dims.key_dim * (dims.value + 1)

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers in ``maximum``, the running maximum m: one per head."""
        return {"maximum": dims.heads}

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from torch.nn.functional import logsigmoid, pad

        from madbench.mixers.named import ops
        from madbench.mixers.recurrence.forms import Dynamics
        from madbench.mixers.recurrence.gates import running_maximum

        heads = layer.dims.heads
        sides = ops.project(x, layer.q, layer.k, layer.v)
        with ops.without_autocast(x):
            q, k, v = (ops.wide_heads(side, heads) for side in sides)
            gates = (ops.linear_in_float32(gate, x).mT for gate in (layer.igate_preact, layer.fgate_preact))
            log_i, log_f = (CAP * (gate / CAP).tanh() for gate in gates)
            log_f = logsigmoid(log_f)
            before = carried["maximum"] if carried else log_i.new_zeros(log_i.shape[:2])
            m, m_before = running_maximum(log_f[..., None], log_i, before)
            # m changes the outputs only through the library's epsilon, whose gradient is in read_out
            shift, of_row = (m_before - m).detach().to(log_f.dtype), m.detach().to(log_i.dtype)
            written = k * (log_i - of_row).exp()[..., None]
            q, v, log_gate = q * layer.dims.key**-0.5, pad(v, (0, 1), value=1.0), (log_f + shift)[..., None]
            return RecurrenceInputs(Dynamics(q, written, v, log_gate, row_log=m), {"maximum": m[..., -1]})

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from torch.nn.functional import layer_norm

        from madbench.mixers.named import ops

        with ops.without_autocast(x):
            m = cast("Tensor", rows.dynamics.row_log)
            least, epsilon = (-m.detach()).exp().to(y.dtype), EPS * (m - m.detach()).exp().to(y.dtype)
            y = y[..., :-1] / (y[..., -1].abs().maximum(least) + epsilon)[..., None]
            normed = ops.merge_heads(layer_norm(y, y.shape[-1:], eps=EPS))
            normed = normed * layer.multihead_norm.weight.to(y.dtype)
        return ops.write(layer.out_proj, normed, layer.ogate_preact(x).sigmoid())

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        memory, total = ([x.new_zeros(key, *width) for _ in range(heads)] for width in ((value,), ()))
        maximum, rows = [x.new_zeros(()) for _ in range(heads)], []
        for x_t in x:
            q, k, v = ((p[f"{name}.weight"] @ x_t).view(heads, -1) for name in "qkv")
            outputs = []
            for h in range(heads):
                i, f = (p[f"{s}gate_preact.weight"][h] @ x_t + p[f"{s}gate_preact.bias"][h] for s in "if")
                log_i, log_f = 15 * torch.tanh(i / 15), -loops.softplus(-15 * torch.tanh(f / 15))
                before, maximum[h] = maximum[h], torch.maximum(log_f + maximum[h], log_i)
                keep, write = torch.exp(log_f + before - maximum[h]), torch.exp(log_i - maximum[h])
                memory[h] = keep * memory[h] + write * torch.outer(k[h], v[h])
                total[h] = keep * total[h] + write * k[h]
                query = q[h] / key**0.5
                read = query @ memory[h] / (torch.maximum(abs(query @ total[h]), torch.exp(-maximum[h])) + 1e-6)
                centered = read - read.mean()
                outputs.append(centered / torch.sqrt((centered * centered).mean() + 1e-6))
            gates = torch.sigmoid(p["ogate_preact.weight"] @ x_t)
            rows.append(p["out_proj.weight"] @ (gates * torch.cat(outputs) * p["multihead_norm.weight"]))
        return torch.stack(rows)
