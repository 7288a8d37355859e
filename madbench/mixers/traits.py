"""What models, optimisers and suites ask of a mixer: its family says it, never a name that a mixer happens to use."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from madbench.errors import ConfigError, TrainingError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Traits:
    """What has to be known of the mixers of a label beside their function; every default is that of a plain mixer.

    Parameters are named as in ``named_parameters()``; a name stands for all that begin with it and a dot, too.
    """

    outputs: tuple[str, ...] | None = None
    """Weights of the linear maps that end in the residual stream, which a deep model scales down at the start. None:
    those of which it is measured that one row, or column, decides one channel of the output alone, and linearly."""
    without_decay: tuple[str, ...] = ()
    """Parameters of two dimensions or more that weight decay leaves alone all the same; those of fewer always."""
    own_start: tuple[str, ...] = ()
    """Linear maps whose initial weights belong to the operator: the published fidelity draws them no second time."""
    settings: tuple[str, ...] | None = None
    """Settings of the family that decide something of the mixer, be it through its ranks; None: all of them."""
    has_heads: bool = True
    """Whether the number of heads decides something of the mixer."""
    start_settings: tuple[str, ...] = ()
    """Those of them that decide nothing but the initial weights of linear maps without a start of their own."""
    shorter_settings: tuple[str, ...] = ()
    """Those of them that decide nothing where every input is ``max_len`` tokens long."""
    may_grow: bool = False
    """Whether coefficients grow with the distance; ``coefficients(x)`` of the mixer then has them as ``a``, and curves
    the largest."""
    stacked_path: str = ""
    """What the mixer's ``path`` is set to where several models train as one (``torch.func.vmap``); empty: nothing."""
    is_stackable: bool = False
    """Whether, once its ``is_stacked`` is set, every path but ``dense`` and ``chunked`` takes several models."""
    trains_alone: bool = False
    """Whether several models of it never share a step, as where nothing is known of it under ``torch.func.vmap``."""
    is_replayable: bool = False
    """True if a forward pass calls the same operators for all inputs of one shape, and depends on nothing but its
    inputs and parameters. Such a pass may be recorded once and replayed (:mod:`madbench.training.replay`)."""
    has_tables: bool = False
    """Whether it has parameters for every position up to ``max_len``, of which a shorter input uses the first alone."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group of parameters, such as ``mixer gates``, by name, the first that fits; others are ``mixer projections``."""

    def __post_init__(self):
        for name in ("outputs", "without_decay", "own_start", "settings", "start_settings"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, str) or not all(isinstance(each, str) for each in value)):
                raise ConfigError(f"traits: {name}: expected names, such as ('o.weight',), got {value!r}")


ASKED_OF_MIXERS = {"may_grow": "coefficients", "stacked_path": "path", "is_stackable": "resolve_path"}
"""By trait, what is then asked of a mixer."""


def has_name(parameter: str, names: tuple[str, ...]) -> bool:
    """Whether one of ``names`` stands for the parameter."""
    return any(parameter == name or parameter.startswith(f"{name}.") for name in names)


def attach(mixer: nn.Module, traits: Traits, label: Any) -> nn.Module:
    """The mixer, which has the traits of its label from now on; ``ConfigError`` for what it lacks of them."""
    parameters = dict(mixer.named_parameters())
    for kind in ("outputs", "without_decay", "own_start"):
        for name in getattr(traits, kind) or ():
            if not any(has_name(parameter, (name,)) for parameter in parameters):
                hint = did_you_mean(name, parameters)
                raise ConfigError(f"traits of {str(label)!r}: {kind}: its mixer has no parameter {name!r}{hint}")
    for trait, name in ASKED_OF_MIXERS.items():
        if getattr(traits, trait) and not hasattr(mixer, name):
            raise ConfigError(
                f"traits of {str(label)!r}: {trait}: its mixer has no {name!r}, which is asked of it then"
            )
    mixer.traits = traits
    return mixer


def traits_of(mixer: nn.Module) -> Traits:
    """The traits of a mixer, the defaults of one that no family has built."""
    traits = getattr(mixer, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


def mixers_in(model: nn.Module) -> Iterator[tuple[str, nn.Module, Traits]]:
    """The mixers of a model, each with its name in it and its traits."""
    for name, module in model.named_modules():
        if isinstance(traits := getattr(module, "traits", None), Traits):
            yield name, module, traits


def output_names(mixer: nn.Module, d_model: int) -> list[str]:
    """The weights of a mixer that end in the residual stream of a model ``d_model`` wide, as it names its parameters.

    Raises ``TrainingError`` where the family does not say and the mixer does not show which they are.
    """
    outputs = traits_of(mixer).outputs
    if outputs is not None:
        return [name for name, _ in mixer.named_parameters() if has_name(name, outputs)]
    from madbench.mixers.tracing import has_data

    named = ((name, weight) for name, weight in mixer.named_parameters() if has_data(weight) and not weight.is_meta)
    candidates = [name for name, weight in named if weight.ndim >= 2]
    why = "does not show"
    try:
        names = [name for name in candidates if _decides_one_channel(mixer, name, d_model)]
    except Exception as error:  # whatever another package's code raises, as where it computes in float32 alone
        names = []
        why = f"cannot be measured: on two tokens in float64 its forward fails ({type(error).__name__}: {error})"
    if candidates and not names:
        problem = f"which of its weights end in the residual stream {why}"
        raise TrainingError(f"{type(mixer).__name__}: {problem}; its family has to say it, traits(label).outputs")
    return names


def _decides_one_channel(mixer: nn.Module, name: str, d_model: int) -> bool:
    """Whether the first row or column of a parameter decides the first channel of the output alone, and linearly."""
    import torch

    generator = torch.Generator().manual_seed(0)
    copied = copy.deepcopy(mixer).double().cpu().eval().requires_grad_(False)
    for parameter in copied.parameters():
        parameter.normal_(std=0.3, generator=generator)
    weight = copied.get_parameter(name)
    x = torch.randn(1, 2, d_model, generator=generator, dtype=torch.float64)

    def output(part: Tensor, scale: float) -> Tensor:
        before = part.clone()
        part.mul_(scale)
        y = copied(x)
        part.copy_(before)
        return y

    for axis in {axis for axis in (0, weight.ndim - 1) if weight.shape[axis] == d_model}:
        none, once, twice = (output(weight.select(axis, 0), scale) for scale in (0.0, 1.0, 2.0))
        first_change, second_change = once - none, twice - once
        size = once.abs().max()
        decides = first_change[..., 0].abs().max() > 1e-6 * size and first_change[..., 1:].abs().max() <= 1e-9 * size
        if decides and (first_change - second_change).abs().max() <= 1e-9 * size:
            return True
    return False
