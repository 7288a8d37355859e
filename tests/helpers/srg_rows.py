"""S/R/G rows computed slot by slot in numpy, and by steps of decoding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from madbench.mixers.srg.grammar import SrgLabel

Floats = NDArray[np.float64]


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def rotate_pairs(row: Floats, position: int) -> Floats:
    """Rotate ``row`` (D,) by RoPE for the given position, with one complex number per pair (i, i + D / 2)."""
    half = len(row) // 2
    angle = position * 10000.0 ** (-np.arange(half) / half)
    pairs = (row[:half] + 1j * row[half:]) * np.exp(1j * angle)
    return np.concatenate((pairs.real, pairs.imag))


def one_row(
    w: dict[str, Floats],
    label: SrgLabel,
    n_head: int,
    x: Floats,
    lambda_init: float = 0.8,
    rope_order: str = "before_gate",
    place: str = "first",
    last: int | None = None,
    window: int = 0,
) -> Floats:
    """The output (D,) of an S/R/G mixer for one row of the input, computed by loops over slots in numpy.

    The row sees all T tokens, earlier and later ones. The mixings R(1) and R(2) are explicit matrices.

    Args:
        w: the parameters of the mixer by name.
        label: the parsed label.
        n_head: the number of heads.
        x: the input, (T, D).
        lambda_init: the initial lambda of differential attention (base D).
        rope_order: ``before_gate`` if queries are rotated before they are gated, ``after_gate`` if after.
        place: ``first`` if the slots of registers come before those of tokens, otherwise they come after them.
        last: the index of the row, by default the last one.
        window: if above 0, the row sees only tokens whose distance from it is smaller.
    """
    last = len(x) - 1 if last is None else last
    now = x[last]
    maps = n_head * (2 if label.base in "GD" else 1)
    d_qk, d_vo = len(w["q.weight"]) // maps, w["o.weight"].shape[1] // n_head
    w_v, w_o = w["v.weight"], w["o.weight"]
    if label.adapter:
        w_v, w_o = (w[f"{n}.weight"] + w[f"{n}_up.weight"] @ w[f"{n}_down.weight"] for n in "vo")

    group = n_head * d_vo // len(w["v.weight"])  # heads that share keys and values

    def seen(name: str, i: int) -> Floats:
        """The input of the K or V projection at token i: the token itself, or the convolution ``name`` of tokens."""
        token: Floats = x[i]
        if label.conv:
            token = sum(w[name][:, 3 - lag] * x[i - lag] for lag in range(min(i, 3) + 1))
        return token

    def mixed(row: Floats, name: str, head: int) -> Floats:
        """The product of ``row`` and the mixing matrix R ``name`` of one head."""
        a, b, p = (w[f"{name}.{table}"][head, places] for table in "ABp")
        part = slice(head * a.shape[1], (head + 1) * a.shape[1])
        s = sigmoid(w[f"{name}.gate.weight"][part] @ now + w[f"{name}.gate.bias"][part])
        return row * (1 + p) + ((row @ a) * s) @ b.T

    tokens = [*range(last, -1, -1), *range(len(x) - 1, last, -1)] if label.layout == "lag" else range(len(x))
    k, count = len(w.get("registers", ())), len(tokens)
    tokens = {slot: i for slot, i in enumerate(tokens) if not window or abs(last - i) < window}
    if place == "first":
        places = [*range(k), *(slot + k for slot in tokens)]
    else:
        places = [*tokens, *range(count, count + k)]
    tokens = tokens.values()
    gate = np.ones(len(w["q.weight"]))
    if "qk_gate.weight" in w:
        gate = sigmoid(w["qk_gate.weight"] @ now + w["qk_gate.bias"])

    def normed(row: Floats, side: str) -> Floats:
        """A query or a key of one head after the norm of the feature n, if the label has it. ``side`` is q or k."""
        if not label.qk_norm:
            return row
        return w[f"{side}_norm.weight"] * row / math.sqrt((row**2).mean() + 1e-6)

    hidden = []
    for m in range(maps):
        part = slice(m * d_qk, (m + 1) * d_qk)
        q, z = normed(w["q.weight"][part] @ now, "q"), []
        w_k = w["k.weight"][m // group * d_qk :][:d_qk]
        of_registers = [(q * gate[part]) @ normed(w_k @ register, "k") for register in w.get("registers", ())]
        for i in tokens:
            k = normed(w_k @ seen("k_conv.weight", i), "k")
            if not label.rope:
                z.append((q * gate[part]) @ k)
            elif rope_order == "before_gate":
                z.append((rotate_pairs(q, last) * gate[part]) @ rotate_pairs(k, i))
            else:
                z.append(rotate_pairs(q * gate[part], last) @ rotate_pairs(k, i))
        z = of_registers + z if place == "first" else z + of_registers
        z = np.array(z) / (math.sqrt(d_qk) if label.base in "SD" else 1)
        hidden.append(mixed(z, "mix1", m) if label.mix1 else z)
    if label.base == "D":
        first, second = (math.exp(w[f"contrast.q{j}"] @ w[f"contrast.k{j}"]) for j in (1, 2))
    sinks = np.exp(w["sink"]) if label.sink else np.zeros(maps)
    read = []
    for head in range(n_head):
        h = hidden[head]
        if label.base in "SD":
            a = np.exp(h) / (np.exp(h).sum() + sinks[head])
        else:
            a = h / math.sqrt((h**2).sum() + 1e-12)
            a = a if label.base == "L" else np.maximum(a, 0)
        if label.base == "D":
            other = np.exp(hidden[n_head + head])
            a = a - (first - second + lambda_init) * other / (other.sum() + sinks[n_head + head])
        if label.base == "G":
            a = a * np.log1p(np.exp(hidden[n_head + head]))
        if label.mix2:
            swapped = {f"mix2.{new}": w[f"mix2.{old}"] for new, old in zip("ABp", "BAp")}
            w, kept = w | swapped, w
            a, w = mixed(a, "mix2", head), kept
        part = slice(head // group * d_vo, (head // group + 1) * d_vo)
        of_registers = [w_v[part] @ register for register in w.get("registers", ())]
        values = [w_v[part] @ seen("v_conv.weight", i) for i in tokens]
        values = of_registers + values if place == "first" else values + of_registers
        o = sum(weight * value for weight, value in zip(a, values, strict=True))
        if label.exclusive:
            own = w_v[part] @ seen("v_conv.weight", last)
            o = o - (o @ own) / (own @ own) * own
        if label.base == "D":
            o = (1 - lambda_init) * w["head_norm.weight"] * o / math.sqrt((o**2).mean() + 1e-5)
        if label.head_gate:
            o = o * sigmoid(w["head_gate.weight"][head] @ now)
        read.append(o)
    o = np.concatenate(read)
    if "vo_gate.weight" in w:
        o = o * sigmoid(w["vo_gate.weight"] @ now + w["vo_gate.bias"])
    return w_o @ o


def rows_by_loops(mixer: Any, x: Tensor, **settings: Any) -> Tensor:
    w = {name: tensor.detach().numpy() for name, tensor in mixer.named_parameters()}
    rows = [one_row(w, mixer.label, mixer.n_head, x[0, : t + 1].numpy(), **settings) for t in range(x.shape[1])]
    return torch.tensor(np.stack(rows))[None]


def decode(mixer: Any, x: Tensor, slide: bool = False) -> Tensor:
    cache, rows = None, []
    for token in x.unbind(1):
        row, cache = mixer.step(token, cache, slide)
        rows.append(row)
    return torch.stack(rows, dim=1)


def fast_paths(mixer: Any) -> tuple[str, ...]:
    return ("dense", "chunked", *["tiled"] * mixer.has_tiles, *["sdpa"] * mixer.uses_sdpa)
