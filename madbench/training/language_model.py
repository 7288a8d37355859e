"""From a language-model job to its model with initial weights, its optimiser, and its parameters by group."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from madbench.language_jobs import LanguageJob, LanguageTraining
from madbench.mixers.build import build
from madbench.models.gpt import GPT
from madbench.training.optimizer import decays, make_adamw


def build_gpt(job: LanguageJob, path: str = "auto") -> GPT:
    """The model of a job with its initial weights, on the CPU or under ``torch.device``; random state is left alone.

    ``path`` is how S/R/G mixers are computed (see :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`).
    """
    config = job.model

    def make_mixer() -> nn.Module:
        return build(
            job.label,
            config.d_model,
            config.seq_len,
            n_head=config.n_head,
            counting=job.counting,
            mix_rank=config.mix_rank,
            rank_multiple=config.rank_multiple,
            rope=config.rope,
            path=path,
        )

    with torch.random.fork_rng():
        torch.manual_seed(job.derived_seed("init"))
        return GPT(job.vocab_size, config, make_mixer)


def make_optimizer(model: nn.Module, config: LanguageTraining) -> torch.optim.AdamW:
    """AdamW of the nanoGPT recipe; what decays is :func:`madbench.training.optimizer.decays`'s to say."""
    return make_adamw(model, config.learning_rate, config.weight_decay, (config.beta1, config.beta2))


_GROUP_OF = (
    ("embedding.", "embedding"),
    ("positions.", "positions"),
    (".mlp.", "mlp"),
    ("norm.", "norms"),
    (".mixer.mix1.gate.", "mixing gates"),
    (".mixer.mix2.gate.", "mixing gates"),
    (".mixer.mix1.", "mixing tables"),
    (".mixer.mix2.", "mixing tables"),
    ("_gate.", "mixer gates"),
    ("_conv.", "mixer conv"),
    (".mixer.", "mixer projections"),
)


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """The model's parameters by what they do and whether they decay, each counted once, in the model's order.

    A row is ``{"group", "decays", "tensors", "parameters"}``; the groups are embedding (the output shares it),
    positions, norms, mixer projections, mixer conv, mixer gates, mixing gates, mixing tables and mlp. A family's mixer
    is in mixer projections, unless its names say otherwise.
    """
    rows: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        group = next(group for part, group in _GROUP_OF if part in name)
        decaying = decays(name, parameter)
        row = rows.setdefault((group, decaying), {"group": group, "decays": decaying, "tensors": 0, "parameters": 0})
        row["tensors"] += 1
        row["parameters"] += parameter.numel()
    return list(rows.values())
