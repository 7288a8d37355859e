"""The traits of built mixers, and the weights of a mixer that write to the residual stream."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, cast

from madbench.errors import ConfigError, TrainingError, did_you_mean
from madbench.labels.traits import Traits

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madbench.labels.family import Label
    from madbench.mixers.mixer import Mixer


REQUIRED_MEMBERS = {"may_grow": "coefficients", "stacked_path": "path", "is_stackable": "resolve_path"}
"""By trait: the name of the attribute or method that a mixer with this trait must have."""


def has_name(parameter: str, names: tuple[str, ...]) -> bool:
    """True if ``names`` contains the name of the parameter, or the name of a module that contains the parameter."""
    return any(parameter == name or parameter.startswith(f"{name}.") for name in names)


def attach(mixer: nn.Module, traits: Traits, label: str | Label) -> Mixer:
    """Set the attribute ``traits`` of a mixer and return the mixer.

    Raises ``ConfigError`` if the mixer lacks a parameter that the traits name, or an attribute or method that a trait
    requires.
    """
    parameters = dict(mixer.named_parameters())
    for kind in ("outputs", "without_decay", "keeps_init"):
        if kind == "keeps_init" and traits.shares_values:
            continue  # the first layer of a label may lack maps that later ones have
        for name in getattr(traits, kind) or ():
            if not any(has_name(parameter, (name,)) for parameter in parameters):
                hint = did_you_mean(name, parameters)
                raise ConfigError(f"traits of {str(label)!r}: {kind}: its mixer has no parameter {name!r}{hint}")
    for trait, name in REQUIRED_MEMBERS.items():
        if getattr(traits, trait) and not hasattr(mixer, name):
            raise ConfigError(f"traits of {str(label)!r}: {trait}: its mixer has no {name!r}, which the trait requires")
    cast("Mixer", mixer).traits = traits
    return cast("Mixer", mixer)


def traits_of(mixer: nn.Module) -> Traits:
    """The traits of a mixer. Default traits if no family built the mixer."""
    traits = getattr(mixer, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


def mixers_in(model: nn.Module) -> Iterator[tuple[str, Mixer, Traits]]:
    """Yield the mixers of a model, each as its name in ``named_modules()``, the mixer and its traits."""
    for name, module in model.named_modules():
        if isinstance(traits := getattr(module, "traits", None), Traits):
            yield name, module, traits


def kind_of(mixer: nn.Module) -> Hashable:
    """A hashable key of a mixer: its type, label and parameter shapes.

    Mixers of a model with equal keys differ at most in the values of their parameters.
    """
    label = str(getattr(getattr(mixer, "allocation", None), "label", ""))
    return type(mixer), label, tuple((name, weight.shape) for name, weight in mixer.named_parameters())


def output_names(mixer: nn.Module, d_model: int) -> list[str]:
    """The names of a mixer's weights that write to the residual stream of a model of width ``d_model``.

    Raises ``TrainingError`` if neither the family's traits nor a measurement identifies them.
    """
    outputs = traits_of(mixer).outputs
    if outputs is not None:
        return [name for name, _ in mixer.named_parameters() if has_name(name, outputs)]
    from madbench.mixers.ops.tracing import has_data

    named = ((name, weight) for name, weight in mixer.named_parameters() if has_data(weight) and not weight.is_meta)
    candidates = [name for name, weight in named if weight.ndim >= 2]
    why = "does not show"
    try:
        names = [name for name in candidates if _decides_one_channel(mixer, name, d_model)]
    except Exception as error:  # code of another package may raise anything, for example if it needs float32
        names = []
        why = f"cannot be measured: on two tokens in float64 its forward fails ({type(error).__name__}: {error})"
    if candidates and not names:
        problem = f"which of its weights end in the residual stream {why}"
        raise TrainingError(f"{type(mixer).__name__}: {problem}; its family must state it in traits(label).outputs")
    return names


def _decides_one_channel(mixer: nn.Module, name: str, d_model: int) -> bool:
    """True if the first row or column of a parameter affects only the first output channel, and affects it linearly."""
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
        y: Tensor = copied(x)
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
