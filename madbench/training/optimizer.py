"""The optimizers AdamW and Muon, the choice of parameters with weight decay, and tables of a model's parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from madbench.details import Details
from madbench.errors import TrainingError
from madbench.jobs import Fidelity, TrainingSettings
from madbench.mixers.traits import has_name, mixers_in


def decays(
    name: str, parameter: nn.Parameter, fidelity: Fidelity = "corrected", without_decay: Collection[str] = ()
) -> bool:
    """True if weight decay acts on a parameter: it has two dimensions or more, and is not in ``without_decay``.

    So decay acts on linear maps: matrices, embeddings, the conv's taps and the factors A, B of R(1), R(2). It does not
    act on biases and norm gains, nor on parameters that mixer families name in ``without_decay``, such as the diagonals
    p of I + Diag(p). In the fidelity ``published`` it acts on every parameter.
    """
    return fidelity == "published" or (parameter.ndim >= 2 and not has_name(name, tuple(without_decay)))


def decaying_parameters(model: nn.Module, fidelity: Fidelity = "corrected") -> set[str]:
    """The names of a model's parameters on which weight decay acts."""
    without = [f"{at}.{name}" for at, _, traits in mixers_in(model) for name in traits.without_decay]
    return {name for name, parameter in model.named_parameters() if decays(name, parameter, fidelity, without)}


class AdamW(torch.optim.AdamW):
    """The AdamW of torch, without the import of torch's compiler, which takes a second of each process.

    torch wraps some methods so that its compiler does not compile them. They are unwrapped here, because madbench
    compiles a model and never its optimizer.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def _make_adamw(
    model: nn.Module, named: list[tuple[str, nn.Parameter]], config: TrainingSettings, fidelity: Fidelity
) -> AdamW:
    """Make AdamW for the parameters ``named`` of a model.

    It has two parameter groups: the parameters with weight decay, and the parameters without.
    """
    which = decaying_parameters(model, fidelity)
    groups = [
        {"params": [p for name, p in named if (name in which) is kind], "weight_decay": decay}
        for kind, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    return AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


def make_optimizer(
    model: nn.Module, config: TrainingSettings, fidelity: Fidelity = "corrected"
) -> torch.optim.Optimizer:
    """Make the optimizer that ``config``, a job's training settings, names: ``adamw``, or ``muon`` together with AdamW.

    It has the ``learning_rate``, ``weight_decay`` and ``betas`` of ``config``. Parameters with weight decay and
    parameters without it are in separate parameter groups.

    For Muon, raises ``TrainingError`` if this version of torch lacks it, or if no block of the model has a matrix.
    """
    named = list(model.named_parameters())
    if config.optimizer == "adamw":
        return _make_adamw(model, named, config, fidelity)
    if not hasattr(torch.optim, "Muon"):
        raise TrainingError(
            f"training.optimizer=muon needs torch 2.9 or later, this is {torch.__version__}: upgrade torch, or train "
            "with training.optimizer=adamw"
        )
    matrices = muon_parameters(model)
    if not matrices:
        raise TrainingError("training.optimizer=muon has no effect: no block of the model has a matrix; use adamw")
    muon = torch.optim.Muon(
        [parameter for name, parameter in named if name in matrices],
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return MuonAndAdamW(muon, _make_adamw(model, [pair for pair in named if pair[0] not in matrices], config, fidelity))


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for the matrices in the first parameter group, and AdamW for the parameters in the other two groups.

    Muon (Jordan et al. 2024) averages the gradients of a matrix (A, B) with Nesterov momentum 0.95. It replaces the
    average M by a nearly orthogonal matrix with the singular vectors of M, computed by five Newton-Schulz steps in
    bfloat16. The update is scaled by 0.2 sqrt(max(A, B)), so that its root mean square is about that of AdamW's updates
    (Liu et al. 2025, arXiv 2502.16982). Muon and AdamW use the same learning rate and weight decay.
    """

    def __init__(self, muon: torch.optim.Optimizer, adamw: torch.optim.AdamW):
        self.parts = muon, adamw
        super().__init__([*muon.param_groups, *adamw.param_groups], {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # returns no loss, as torch without closure
        """Take one step of Muon and one of AdamW. Both use the parameter groups and the state of this object."""
        for part, groups in zip(self.parts, (self.param_groups[:1], self.param_groups[1:])):
            part.state, part.param_groups = self.state, groups
            part.step()


NOT_FOR_MUON = ("embedding", "positions", "norms", "readout", "other")
"""Parameter groups (:func:`parameter_groups`) that Muon leaves to AdamW: those outside the blocks, and norms."""


def muon_parameters(model: nn.Module) -> set[str]:
    """The names of the parameters that Muon trains: weight matrices of linear layers in the blocks.

    They have at least two rows and two columns. Embeddings, positions, the output layer, convolution taps, mixing
    tables, biases and gains are not among them.
    """
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    named = (pair for pair in model.named_parameters() if pair[0] in linear and min(pair[1].shape) > 1)
    groups = _groups(model)
    return {name for name, _ in named if groups[name] not in NOT_FOR_MUON}


def state_shapes(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[str, torch.Size]:
    """The shapes of the tensors that the optimizer keeps for one parameter, by name of the tensor, such as ``exp_avg``.

    ``optimizer`` is AdamW or a :class:`MuonAndAdamW`.
    """
    shape = parameter.shape
    if isinstance(optimizer, MuonAndAdamW) and any(parameter is each for each in optimizer.param_groups[0]["params"]):
        return {"momentum_buffer": shape}
    return {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}


def optimizer_details(model: nn.Module, config: TrainingSettings) -> Details:
    """The detail ``optimizer`` of a run's record: which parameters Muon trains, and which AdamW trains, by name.

    Empty if AdamW trains all parameters.
    """
    if config.optimizer == "adamw":
        return {}
    matrices = muon_parameters(model)
    names = [name for name, _ in model.named_parameters()]
    return {
        "optimizer": {
            "muon": [name for name in names if name in matrices],
            "adamw": [name for name in names if name not in matrices],
        }
    }


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
    """A table that counts a model's parameters by group and by weight decay, in the model's order.

    Each row is ``{"group", "decays", "tensors", "parameters"}``, with the numbers of tensors and of parameters. A
    shared parameter counts once. The groups are embedding (with an output layer that shares its weights), positions,
    norms, mixer projections, mlp, readout and other. Families name further groups: mixer conv, mixer gates, mixing
    gates and mixing tables.
    """
    rows: dict[tuple[str, bool], dict[str, Any]] = {}
    groups, which = _groups(model), decaying_parameters(model, fidelity)
    for name, parameter in model.named_parameters():
        group, is_decaying = groups[name], name in which
        row = rows.setdefault(
            (group, is_decaying), {"group": group, "decays": is_decaying, "tensors": 0, "parameters": 0}
        )
        row["tensors"] += 1
        row["parameters"] += parameter.numel()
    return list(rows.values())


def _groups(model: nn.Module) -> dict[str, str]:
    """The group (:func:`parameter_groups`) to which each parameter belongs, by the parameter's name."""
    mixers, found = list(mixers_in(model)), {}
    for name, _ in model.named_parameters():
        of_mixer = next(((name[len(at) + 1 :], own.groups) for at, _, own in mixers if has_name(name, (at,))), None)
        if of_mixer:
            rest, groups = of_mixer
            group = next((group for part, group in groups.items() if has_name(rest, (part,))), "mixer projections")
        else:
            # names of parameters in a Backbone
            place = re.sub(r"\blayers\.(\d+)", lambda at: ".mlp" if int(at[1]) % 2 else ".mixer", name)
            group = next((group for part, group in _GROUP_OF if part in place), "other")
        found[name] = group
    return found
