"""The rows of the paper's Table 1, coded independently from the recurrences and sums of the papers that they cite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.cd.grammar import PREFIX, PRESETS, CdLabel, read


def row_of(label: CdLabel) -> str | None:
    """The name of the preset, such as ``gla``, that equals the label apart from its budget. None if there is none.

    Presets are the rows of the paper's Table 1.
    """
    same = replace(label, rank="", over=False)
    parsed = ((name, read(PREFIX + name)) for name in PRESETS)
    return next((name for name, letters in parsed if letters is not None and CdLabel(**letters) == same), None)


def closed_form(preset: str, p: Mapping[str, Tensor], n_head: int, x: Tensor) -> Tensor:
    """The output (T, D) of a row of Table 1 for one sequence x (T, D), computed by the formulas of the row's own paper.

    ``preset`` is the name of the row, such as ``gla``, and ``p`` the state dict of a mixer of this preset.
    """
    q, k, v = (_heads(x @ p[f"{side}.weight"].T, n_head) for side in "qkv")  # (H, T, n or V)
    scale = q.shape[-1] ** -0.5
    if preset == "softmax":
        hidden = torch.full(2 * x.shape[:1], float("-inf"), dtype=x.dtype).triu(1)
        y = (q @ k.mT * scale + hidden).softmax(-1) @ v
    elif preset == "linear":
        q, k = F.elu(q) + 1, F.elu(k * scale) + 1
        y = (q[..., None, :] @ _states(k, v)).squeeze(-2) / (q * k.cumsum(-2)).sum(-1, keepdim=True)
    elif preset == "normalized":
        y = (q @ k.mT * scale).tril() @ v / (x @ p["eta.weight"].T).T.exp()[..., None]
    elif preset == "mlstm":
        forget = (x @ p["decay.weight"].T + p["decay.bias"]).T.exp()[..., None]
        k = (x @ p["scale.weight"].T + p["scale.bias"]).T.exp()[..., None] * k * scale
        normalizer = (q[..., None, :] @ _states(k, torch.ones_like(v[..., :1]), forget)).squeeze(-2)
        y = (q[..., None, :] @ _states(k, v, forget)).squeeze(-2) / normalizer.abs().clamp(min=1)
    else:
        write, decay, beta = torch.full_like(q[..., :1], scale), None, None
        if preset == "gla":
            logits = x @ p["decay_down.weight"].T @ p["decay_up.weight"].T + p["decay_up.bias"]
            decay = _heads(logits, n_head).sigmoid() ** (1 / 16)
        if preset in ("mamba2", "gateddeltanet"):
            delta = torch.log1p((x @ p["decay.weight"].T + p["decay.bias"]).exp()).T[..., None]
            decay = torch.exp(-delta * p["a_log"].exp()[:, None, None])
        if preset == "mamba2":
            write = delta
        if preset in ("deltanet", "gateddeltanet"):
            q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
            beta = (x @ p["strength.weight"].T).sigmoid().T[..., None]
            write = beta * scale
        y = (q[..., None, :] @ _states(write * k, v, decay, k, beta)).squeeze(-2)
    y = y.transpose(0, 1).flatten(1)
    if preset == "mlstm":
        y = y * (x @ p["out_sigmoid.weight"].T + p["out_sigmoid.bias"]).sigmoid()
    return y @ p["o.weight"].T


def _states(
    k: Tensor, v: Tensor, decay: Tensor | None = None, erased: Tensor | None = None, beta: Tensor | None = None
) -> Tensor:
    """The states S_t = decay_t S_(t-1) + k_t v_t^T after each token t, (H, T, n, V), for keys k (H, T, n).

    With ``beta`` (the delta rule), S_t = (I - beta_t e_t e_t^T) decay_t S_(t-1) + k_t v_t^T, where e is ``erased``: the
    key whose value is erased from the state.
    """
    state, states = torch.zeros(*k.shape[::2], v.shape[-1], dtype=k.dtype), []
    for t in range(k.shape[1]):
        if decay is not None:
            state = decay[:, t, :, None] * state
        if beta is not None:
            assert erased is not None
            key = erased[:, t, :, None]
            state = state - beta[:, t, :, None] * key @ (key.mT @ state)
        state = state + k[:, t, :, None] @ v[:, t, None, :]
        states.append(state)
    return torch.stack(states, dim=1)


def _heads(x: Tensor, n_head: int) -> Tensor:
    """Split channels into heads, (T, H C) -> (H, T, C), where H is ``n_head``."""
    return torch.unflatten(x, -1, (n_head, -1)).transpose(0, 1)
