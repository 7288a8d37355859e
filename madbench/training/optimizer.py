"""AdamW, the rule for weight decay, and a model's parameters by group."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from madbench.jobs import Fidelity
from madbench.mixers.traits import has_name, mixers_in


def decays(
    name: str, parameter: nn.Parameter, fidelity: Fidelity = "corrected", without_decay: Collection[str] = ()
) -> bool:
    """True if weight decay acts on a parameter: on linear maps, not on elementwise shifts and scales.

    Linear maps are matrices, embeddings, the conv's taps and the factors A, B of R(1), R(2). Biases and norm gains do
    not decay, nor do the parameters that mixer families name in ``without_decay``, such as the diagonals p. In the
    published fidelity every parameter decays.
    """
    return fidelity == "published" or (parameter.ndim >= 2 and not has_name(name, tuple(without_decay)))


def decaying_parameters(model: nn.Module, fidelity: Fidelity = "corrected") -> set[str]:
    """The names of the parameters of a model on which weight decay acts."""
    without = [f"{at}.{name}" for at, _, traits in mixers_in(model) for name in traits.without_decay]
    return {name for name, parameter in model.named_parameters() if decays(name, parameter, fidelity, without)}


def make_adamw(model: nn.Module, config: Any, fidelity: Fidelity = "corrected") -> torch.optim.AdamW:
    """Make AdamW with ``learning_rate``, ``weight_decay`` and ``betas`` of a training configuration.

    Its first parameter group decays, the second does not.
    """
    named, which = list(model.named_parameters()), decaying_parameters(model, fidelity)
    groups = [
        {"params": [p for name, p in named if (name in which) is kind], "weight_decay": decay}
        for kind, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


_GROUP_OF = (
    ("embedding.", "embedding"),
    ("positions.", "positions"),
    (".mlp.", "mlp"),
    ("norm.", "norms"),
    ("norms.", "norms"),
    (".mixer.", "mixer projections"),
    ("head.", "readout"),
    ("decoder.", "readout"),
)


def parameter_groups(model: nn.Module, fidelity: Fidelity = "corrected") -> list[dict[str, Any]]:
    """The model's parameters grouped by their function and by decay, each counted once, in the model's order.

    A row is ``{"group", "decays", "tensors", "parameters"}``. The groups are embedding (the output shares it),
    positions, norms, mixer projections, mlp and readout. Families name further groups: mixer conv, mixer gates, mixing
    gates and mixing tables.
    """
    rows: dict[tuple[str, bool], dict[str, Any]] = {}
    mixers, which = list(mixers_in(model)), decaying_parameters(model, fidelity)
    for name, parameter in model.named_parameters():
        of_mixer = next(((name[len(at) + 1 :], own.groups) for at, _, own in mixers if has_name(name, (at,))), None)
        if of_mixer:
            rest, groups = of_mixer
            group = next((group for part, group in groups.items() if has_name(rest, (part,))), "mixer projections")
        else:
            place = re.sub(r"\blayers\.(\d+)", lambda at: ".mlp" if int(at[1]) % 2 else ".mixer", name)  # of Backbone
            group = next((group for part, group in _GROUP_OF if part in place), "other")
        is_decaying = name in which
        row = rows.setdefault(
            (group, is_decaying), {"group": group, "decays": is_decaying, "tensors": 0, "parameters": 0}
        )
        row["tensors"] += 1
        row["parameters"] += parameter.numel()
    return list(rows.values())
