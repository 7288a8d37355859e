"""RWKV-7: a generalized delta rule that reads before the decay, with token shift (Peng et al. 2025, arXiv 2503.14456).

    S_t = Diag(w_t) S_(t-1) - (a_t * kappa_t) (kappa_t^T S_(t-1)) + k_t v_t^T,    o_t = S_t^T r_t

S is (K, V) per head, and * is a product per channel. Each input is mixed with the input before it: x + m * (x' - x),
with a vector m for each of r, w, k, v, a and g. Linear maps give r, k' and v'. Maps of low rank give
w_t = exp(-e^(-1/2) sigmoid(.)) with a tanh between its maps, a_t = sigmoid(.), and the gate g_t with a sigmoid between
its maps. kappa_t is k' * xi scaled to length 1, and k_t = k' * (1 + (a_t - 1) * alpha), with vectors xi and alpha.
v_t is v' in the first layer. Later layers have v_t = v' + sigmoid(.) * (v_1 - v'), where v_1 is v' of the first layer.
The output is W_o (g_t * (norm(o_t) + ((r_t * k_t)^T rho) v_t)), with a norm per head and a vector rho per head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from madbench.mixers.named.parts import Gain, Linear, LowRank, Part, Vector
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.labels.family import Layer
    from madbench.mixers.named.layer import NamedLayer
    from madbench.mixers.sharing import Shared

DECAY_SCALE = 0.6065306597126334  # e^(-1/2)
NORM_EPS = 1e-5  # epsilon of the norm of the read-out, per key channel
MIXED = "rwkvag"  # names of the mixed inputs


@dataclass(frozen=True)
class RwkvDims(Dims):
    """The widths of a layer of RWKV-7, and the ranks of its maps of low rank to w, a, v and g."""

    w: int
    a: int
    v: int
    g: int
    is_first: bool = False
    """True for the first layer of a model with its label. This layer has no part ``v_lora``."""

    @classmethod
    def with_ranks(cls, d: int, heads: int, key: int, value: int, most: int | None = None) -> RwkvDims:
        """The given widths, with the ranks of low-rank maps that the library's layer has in a model of width d.

        If ``most`` is given, it is the largest allowed rank, and 2 ``most`` is the largest allowed rank of the gate's
        map.
        """

        def rank(factor: float, width: int = 64, times: int = 1) -> int:
            usual: int = max(32, round(factor * d**0.5 * width / 64 / 32) * 32)
            return usual if most is None else max(1, min(usual, times * most))

        return cls(d, heads, key, value, rank(2.5, key), rank(2.5, key), rank(1.7, key), rank(5, times=2))


@dataclass(frozen=True)
class RWKV7(Recurrent):
    """The named operator RWKV-7: a generalized delta rule that reads before the decay, with token shift.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "RWKV-7"
    title: ClassVar = "RWKV-7 (time mixing)"
    equation: ClassVar = "S_t = Diag(w_t) S_(t-1) - (a_t * kappa_t) (kappa_t^T S_(t-1)) + k_t v_t^T"
    source: ClassVar = "Peng et al. 2025, arXiv 2503.14456"
    library: ClassVar = "RWKV7Attention"
    differs: ClassVar = (
        "At the budget, values are narrower and ranks are at most d / 16, or d / 8 of the gate. The first layer has no "
        "map that adds values of the first layer, and there its rank is added to that of the gate."
    )
    parameters: ClassVar = (
        "2*d*H*K + 2*d*H*V + 6*d + 3*H*K + 2*H*V + (rw+ra)*(d+H*K) + 2*H*K + rg*(d+H*V) + later*(rv*(d+H*V) + H*V)"
    )
    state: ClassVar = "H*K*V + d"
    gates: ClassVar = ("w_lora", "a_lora", "v_lora", "g_lora")
    shares_values: ClassVar = True
    takes_layer: ClassVar = True
    has_channel_decay: ClassVar = True
    keeps_init: ClassVar = tuple(f"{name}_proj" for name in "rkvo") + tuple(f"{name}_lora" for name in "wavg")
    without_decay: ClassVar = (*(f"x_{name}" for name in MIXED), "r_k")

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        key = max(1, d // heads)
        return [RwkvDims.with_ranks(d, heads, key, value, most=d // 16) for value in widths(step, key)]

    def library_dims(self, d: int, heads: int) -> Dims:
        width = max(1, d // heads)
        return RwkvDims.with_ranks(d, heads, width, width)

    def placed(self, dims: Dims, place: Layer) -> Dims:
        if TYPE_CHECKING:
            assert isinstance(dims, RwkvDims)
        if place.earlier:
            return dims
        is_narrow = dims.value < dims.key  # the library's own widths stay as they are
        return replace(dims, is_first=True, g=dims.g + dims.v if is_narrow else dims.g)

    def symbols(self, dims: Dims, tokens: int = 0) -> dict[str, int]:
        """The values of the symbols in the expressions :attr:`parameters` and :attr:`state`, by symbol.

        RWKV-7 has more symbols than other operators: the ranks rw, ra, rv and rg of the low-rank maps to w, a, v and g,
        and ``later``, which is 0 in the first layer of a label and 1 in later ones.
        """
        if TYPE_CHECKING:
            assert isinstance(dims, RwkvDims)
        ranks = {f"r{name}": getattr(dims, name) for name in "wavg"}
        return super().symbols(dims, tokens) | ranks | {"later": int(not dims.is_first)}

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        if TYPE_CHECKING:
            assert isinstance(dims, RwkvDims)
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        return {
            **{f"x_{name}": Vector((1, 1, d), "ones") for name in MIXED},
            "k_k": Vector(keys, "ones"),
            "k_a": Vector(keys, "ones"),
            "r_k": Vector((dims.heads, dims.key), "ones"),
            "r_proj": Linear(d, keys),
            "k_proj": Linear(d, keys),
            "v_proj": Linear(d, values),
            "o_proj": Linear(values, d),
            "w_lora": LowRank(d, dims.w, keys),
            **({} if dims.is_first else {"v_lora": LowRank(d, dims.v, values)}),
            "a_lora": LowRank(d, dims.a, keys),
            "g_lora": LowRank(d, dims.g, values, bias=False),
            "g_norm": Gain(values, bias=True),
        }

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers in ``input``, the last input x, which is mixed with the next input."""
        return {"input": dims.d}

    def shared_name(self, dims: Dims) -> str:
        """The name under which the first layer puts its values into the mapping ``shared``, for later layers.

        It contains the width of the values, so layers of another width do not read them.
        """
        return f"{self.name}, {dims.value_dim} values"

    def initialize(self, layer: NamedLayer) -> None:
        from madbench.mixers.named.operators.rwkv7_init import initialize

        initialize(layer)

    def rows(
        self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None, shared: Shared | None = None
    ) -> RecurrenceInputs:
        import torch
        from torch.nn.functional import normalize

        from madbench.mixers.named import ops
        from madbench.mixers.recurrence.forms import Dynamics, Mirrors

        dims = cast(RwkvDims, layer.dims)
        before = carried["input"][:, None] if carried else torch.zeros_like(x[:, :1])
        change = torch.cat((before, x[:, :-1]), dim=1) - x
        mixed = {name: x + change * getattr(layer, f"x_{name}") for name in MIXED}
        r, k, v = (getattr(layer, f"{name}_proj")(mixed[name]) for name in "rkv")
        gate = layer.g_lora.lora[2](layer.g_lora.lora[0](mixed["g"]).sigmoid())
        with ops.without_autocast(x):
            log_decay = -DECAY_SCALE * ops.low_rank(layer.w_lora.lora, mixed["w"], torch.tanh).sigmoid()
            a = ops.low_rank(layer.a_lora.lora, mixed["a"]).sigmoid()
            k, v = ops.wide(k), ops.wide(v)
            first = ({} if shared is None else shared).setdefault(self.shared_name(dims), v)
            if not dims.is_first:
                v = v + ops.low_rank(layer.v_lora.lora, mixed["v"]).sigmoid() * (first.to(v.dtype) - v)
            along = k * layer.k_k.to(k.dtype)
            k = k * (1 + (a - 1) * layer.k_a.to(k.dtype))
            r, k, v, a, along, log_decay = (ops.wide_heads(each, dims.heads) for each in (r, k, v, a, along, log_decay))
            along = normalize(along, dim=-1)
            mirrors = Mirrors(a * along, k.new_ones(k.shape[:-1]), read=along, reads_before_decay=True)
            d = Dynamics(r, k, v, log_decay, mirrors, least_log_gate=-DECAY_SCALE)
        return RecurrenceInputs(d, {"input": x[:, -1]}, gate)

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from torch.nn.functional import layer_norm

        from madbench.mixers.named import ops

        d, weight, bias = rows.dynamics, layer.g_norm.weight, layer.g_norm.bias
        with ops.without_autocast(x):
            normed = ops.merge_heads(layer_norm(y, y.shape[-1:], eps=layer.dims.key * NORM_EPS))
            own = (d.q * d.k * layer.r_k.to(y.dtype)[:, None]).sum(-1, keepdim=True) * d.v
            y = normed * weight.to(y.dtype) + bias.to(y.dtype) + ops.merge_heads(own)
        return ops.write(layer.o_proj, y, rows.gate)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor, shared: Shared | None = None) -> Tensor:
        """Compute the outputs (T, D) of one sequence x (T, D) by loops over the definition.

        Each head has a state (K, V). The first layer puts its values into ``shared``, and later layers mix them with
        their own values.
        """
        import torch

        heads, key, value = dims.heads, dims.key, dims.value

        def low_rank(name: str, row: Tensor, between: Callable[[Tensor], Tensor] = lambda z: z) -> Tensor:
            y = p[f"{name}_lora.lora.2.weight"] @ between(p[f"{name}_lora.lora.0.weight"] @ row)
            return y + p[f"{name}_lora.lora.2.bias"] if f"{name}_lora.lora.2.bias" in p else y

        def shifted(name: str, t: int) -> Tensor:
            before = x[t - 1] if t else torch.zeros_like(x[t])
            m = p[f"x_{name}"].flatten()
            return (1 - m) * x[t] + m * before

        own_values = torch.stack([p["v_proj.weight"] @ shifted("v", t) for t in range(len(x))])
        first = ({} if shared is None else shared).setdefault(self.shared_name(dims), own_values[None])[0]
        gain, bias = (p[f"g_norm.{name}"].view(heads, value) for name in ("weight", "bias"))
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t in range(len(x)):
            r, k = p["r_proj.weight"] @ shifted("r", t), p["k_proj.weight"] @ shifted("k", t)
            decay = torch.exp(-torch.sigmoid(low_rank("w", shifted("w", t), torch.tanh)) * torch.e**-0.5)
            a, v = torch.sigmoid(low_rank("a", shifted("a", t))), own_values[t]
            if "v_lora.lora.0.weight" in p:
                share = torch.sigmoid(low_rank("v", shifted("v", t)))
                v = (1 - share) * v + share * first[t]
            gates = low_rank("g", shifted("g", t), torch.sigmoid)
            k, along = k + k * (a - 1) * p["k_a"], k * p["k_k"]
            r, k, v, a, along, decay = (each.view(heads, -1) for each in (r, k, v, a, along, decay))
            outputs = []
            for h in range(heads):
                kappa = along[h] / torch.clamp(along[h].norm(), min=1e-12)
                removed = torch.outer(kappa * a[h], kappa @ state[h])
                state[h] = decay[h, :, None] * state[h] - removed + torch.outer(k[h], v[h])
                o = r[h] @ state[h]
                centered = o - o.mean()
                o = centered / torch.sqrt((centered**2).mean() + key * 1e-5)
                o = o * gain[h] + bias[h]
                outputs.append(o + (r[h] * k[h] * p["r_k"][h]).sum() * v[h])
            rows.append(p["o_proj.weight"] @ (torch.cat(outputs) * gates))
        return torch.stack(rows)
