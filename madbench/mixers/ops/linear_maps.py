"""Calls of the linear maps of a mixer.

Several maps share one matrix product, unless one of them was wrapped or replaced, as libraries for adapters or
quantization do.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.modules import module as all_modules
from torch.nn.utils import parametrize

from madbench.errors import TrainingError
from madbench.mixers.ops import products


def has_only_weights(layer: nn.Module, bias: bool = False) -> bool:
    """True if the layer is an unchanged ``nn.Linear``: not wrapped, replaced or quantized.

    A layer with a bias counts only if ``bias`` is true. A parametrization of ``torch.nn.utils`` on the weight is
    allowed.
    """
    if parametrize.type_before_parametrizations(layer) is not nn.Linear or "forward" in layer.__dict__:
        return False
    if layer.bias is not None and not bias:
        return False
    if parametrize.is_parametrized(layer):
        return True
    tensors = filter(lambda tensor: tensor is not None, (layer.weight, layer.bias))
    kinds = (nn.Parameter, Tensor, FakeTensor)  # Tensor: a parameter under torch.func; FakeTensor: without data
    return all(type(tensor) in kinds for tensor in tensors)


def is_plain(layer: nn.Module, bias: bool = False) -> TypeGuard[nn.Linear]:
    """True if a call of the layer only multiplies by its weight and adds its bias, so that code may use both directly.

    False for a layer with hooks, such as those of programs that count operations, and for every layer that
    :func:`has_only_weights` excludes: adapters, quantized layers and, if ``bias`` is false, layers with a bias.
    """
    hooks = (
        *(layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks),
        *(all_modules._global_forward_hooks, all_modules._global_forward_pre_hooks),
        *(all_modules._global_backward_hooks, all_modules._global_backward_pre_hooks),
    )
    return has_only_weights(layer, bias) and not any(hooks)


def project(x: Tensor, *layers: nn.Module) -> list[Tensor]:
    """Return ``[layer(x) for layer in layers]``.

    One matrix product computes all layers if every layer is plain (:func:`is_plain`) and their weights have the same
    dtype and device.
    """
    weights = [layer.weight for layer in layers if is_plain(layer)]
    if len(weights) < len(layers):
        return [layer(x) for layer in layers]
    if any(weight.dtype != weights[0].dtype or weight.device != weights[0].device for weight in weights):
        return [layer(x) for layer in layers]
    return list(products.linear(x, torch.cat(weights)).split([len(weight) for weight in weights], dim=-1))


def call(layer: nn.Module, x: Tensor) -> Tensor:
    """Return ``layer(x)``.

    If x is large and the layer is plain (:func:`is_plain`), :func:`madbench.mixers.ops.products.linear` computes the
    result, because this may be faster.
    """
    if products.is_large(x) and is_plain(layer, bias=True):
        return products.linear(x, layer.weight, layer.bias)
    y: Tensor = layer(x)
    return y


def call_in_dtype_of_input(layer: nn.Module, x: Tensor) -> Tensor:
    """Return ``layer(x)`` in the dtype of x, whatever the dtype of the layer's weight.

    If the layer is plain (:func:`is_plain`), the product is computed in the dtype of x. Otherwise x is converted to the
    dtype of the weight, and the result is converted back.
    """
    if is_plain(layer, bias=True):
        return F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
    y: Tensor = layer(x.to(weight_of(layer).dtype))
    return y.to(x.dtype)


def weight_of(layer: nn.Module) -> Tensor:
    """A tensor that has the dtype and the device in which a linear layer computes.

    It is the layer's weight. If the layer has no tensor ``weight``, it is its first parameter. If this tensor is not in
    floating point, as in quantized layers, it is an empty tensor in torch's default dtype on the same device.
    """
    weight: Any = getattr(layer, "weight", None)
    if callable(weight):  # quantized layers have a method
        weight = weight()
    if not isinstance(weight, Tensor):
        weight = next(layer.parameters(), torch.empty(0))
    return weight if weight.is_floating_point() else torch.empty(0, device=weight.device)


def check_weights(mixer: nn.Module, *names: str) -> None:
    """Raise ``TrainingError`` unless the layers of ``mixer`` with these names are unchanged ``nn.Linear`` without bias.

    Unchanged means not wrapped, replaced, quantized or parametrized. The path ``reference``, which reads the weights
    instead of calling the layers, uses this check.
    """
    for name in names:
        layer = getattr(mixer, name)
        if parametrize.is_parametrized(layer) or not has_only_weights(layer):
            kind = type(layer).__name__
            raise TrainingError(
                f"path 'reference' reads the weights of nn.Linear layers without a bias, and {name!r} is a {kind} that "
                "was changed; use another path"
            )
