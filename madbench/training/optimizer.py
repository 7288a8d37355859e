"""AdamW, the one rule for what decays, and a model's parameters by group."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from madbench.jobs import Fidelity


def decays(name: str, parameter: nn.Parameter, fidelity: Fidelity = "corrected") -> bool:
    """Whether weight decay acts on a model's parameter: on linear maps, not on what shifts or scales elementwise.

    Linear maps are matrices, embeddings, the conv's taps and the factors A, B of R(1), R(2). Biases, norm gains and
    the diagonals p are not. In the published fidelity every parameter decays.
    """
    return fidelity == "published" or (parameter.ndim >= 2 and not name.endswith(".p"))


def make_adamw(model: nn.Module, config: Any, fidelity: Fidelity = "corrected") -> torch.optim.AdamW:
    """AdamW by ``learning_rate``, ``weight_decay`` and ``betas`` of a training configuration.

    Its parameters are first the group of those that decay, then the group of those that do not.
    """
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name, p, fidelity) is kind], "weight_decay": decay}
        for kind, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


_GROUP_OF = (
    ("embedding.", "embedding"),
    ("positions.", "positions"),
    (".mlp.", "mlp"),
    ("norm.", "norms"),
    ("norms.", "norms"),
    (".mixer.mix1.gate.", "mixing gates"),
    (".mixer.mix2.gate.", "mixing gates"),
    (".mixer.mix1.", "mixing tables"),
    (".mixer.mix2.", "mixing tables"),
    ("_gate.", "mixer gates"),
    ("_conv.", "mixer conv"),
    (".mixer.", "mixer projections"),
    ("head.", "readout"),
    ("decoder.", "readout"),
)


def parameter_groups(model: nn.Module, fidelity: Fidelity = "corrected") -> list[dict[str, Any]]:
    """The model's parameters by what they do and whether they decay, each counted once, in the model's order.

    A row is ``{"group", "decays", "tensors", "parameters"}``; the groups are embedding (the output shares it),
    positions, norms, mixer projections, mixer conv, mixer gates, mixing gates, mixing tables, mlp and readout. A
    family's mixer is in mixer projections, unless its names say otherwise.
    """
    rows: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        place = re.sub(r"\blayers\.(\d+)", lambda layer: ".mlp" if int(layer[1]) % 2 else ".mixer", name)  # of Backbone
        group = next((group for part, group in _GROUP_OF if part in place), "other")
        decaying = decays(name, parameter, fidelity)
        row = rows.setdefault((group, decaying), {"group": group, "decays": decaying, "tensors": 0, "parameters": 0})
        row["tensors"] += 1
        row["parameters"] += parameter.numel()
    return list(rows.values())
