"""The base class of all named layers: the library's parameters, their initial values, and the reference path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers import sharing
from madbench.mixers.inputs import check_sequences
from madbench.mixers.named.operator import Operator
from madbench.mixers.named.parts import Gain, Init, Linear, LinearInit, LowRank, Taps, Vector
from madbench.mixers.redrawing import redraw_parts
from madbench.mixers.sharing import Shared

if TYPE_CHECKING:
    from madbench.mixers.named.budget import NamedAllocation

INIT_STD = 0.02
"""Initial standard deviation of linear maps and taps, as in the language models of flash-linear-attention."""


class ConvTaps(nn.Module):
    """The parameters of a depthwise convolution: ``weight`` (channels, 1, taps), and ``bias`` (channels,) or None."""

    def __init__(self, part: Taps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(part.channels, 1, part.taps))
        self.bias = nn.Parameter(torch.empty(part.channels)) if part.bias else None


class NormGain(nn.Module):
    """The parameters of a norm: the gain ``weight`` (width,), and ``bias`` (width,) or None."""

    def __init__(self, part: Gain):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(part.width))
        self.bias = nn.Parameter(torch.empty(part.width)) if part.bias else None


class LowRankMap(nn.Module):
    """A linear map of low rank as two maps, ``lora.0`` and then ``lora.2``.

    An operator may apply a function between them.
    """

    def __init__(self, part: LowRank):
        super().__init__()
        down = nn.Linear(part.inputs, part.rank, bias=False)
        self.lora = nn.Sequential(down, nn.Identity(), nn.Linear(part.rank, part.outputs, bias=part.bias))


class NamedLayer(nn.Module):
    """The base class of causal layers of named operators, (B, T, D) -> (B, T, D).

    Subclasses implement the paths and the decoding.

    Args:
        allocation: label, size and widths, from :func:`madbench.mixers.named.budget.solve`.
        path: one of :attr:`paths`, the ways to compute the same function. ``auto`` chooses one for each input.
            ``reference`` computes with loops in float64. Raises ``TrainingError`` for any other path.

    The layer has exactly ``allocation.total`` parameters. They have the names that they have in the library's layer, of
    flash-linear-attention or transformers.
    """

    def __init__(self, allocation: NamedAllocation, path: str = "auto"):
        super().__init__()
        self.allocation, self.path = allocation, path
        self.operator: Operator = allocation.operator
        self.dims = allocation.dims
        if path not in self.paths:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, self.paths)}")
        self._inits: dict[str, Init | LinearInit | tuple[float, float]] = {}
        for name, part in self.operator.parts(self.dims).items():
            if isinstance(part, Vector):
                self.register_parameter(name, nn.Parameter(torch.empty(part.shape)))
                self._inits[name] = part.init
            else:
                self.add_module(name, _module(part))
            if isinstance(part, Linear):
                self._inits[f"{name}.weight"] = part.init
                if isinstance(part.bias, tuple):
                    self._inits[f"{name}.bias"] = part.bias
            if isinstance(part, Gain) and part.is_offset:
                self._inits[f"{name}.weight"] = "zeros"
        self._draw()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Tell type checkers that a layer has the parts of its operator, such as ``q_proj``. Absent at run time."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The valid values of the argument ``path``: ``auto``, ``reference`` and the names of the operator's paths."""
        return ("auto", "reference", *self.operator.paths)

    def reset_parameters(self) -> None:
        """Initialize the parameters as the language models of flash-linear-attention do.

        With the same seed, the values equal those of a new layer.

        Linear maps and taps are drawn from N(0, 0.02^2). Biases are 0. Gains are 1; if the parameter is a gain minus 1,
        it is 0. Operators may declare other values, see :func:`draw`.
        """
        redraw_parts(self)
        self._draw()

    @torch.no_grad()
    def _draw(self) -> None:
        self.operator.initialize(self)

    def draw_declared(self) -> None:
        """Set all parameters to the initial values that the operator's parts declare.

        Without a declaration, biases are 0, other vectors are 1, and all other parameters are normal with mean 0 and
        standard deviation ``INIT_STD``.
        """
        for name, parameter in self.named_parameters():
            if name in self._inits:
                draw(parameter, self._inits[name], self.allocation.size.layer.count)
            elif name.endswith(".bias"):
                parameter.zero_()
            elif parameter.ndim == 1:
                parameter.fill_(1)
            else:
                parameter.normal_(std=INIT_STD)

    def forward(self, x: Tensor, shared: Shared | None = None) -> Tensor:
        """Mix the tokens of x: (B, T, D) -> (B, T, D). Row t depends on rows 0..t only.

        ``shared`` has the values that the layers of a model share. It is None for a layer outside of a model.

        Raises ``TrainingError`` if x has another shape, is not in floating point, or has no tokens.
        """
        check_sequences(x, self.allocation.label, self.dims.d)
        path = self.resolve_path(*x.shape[:2])
        if path == "reference":
            return self.reference(x, shared=shared).to(x.dtype)
        return self.compute(x, path, *self.handed(shared))

    def handed(self, shared: Shared | None) -> tuple[Shared, ...]:
        """Return the values that layers of a model share, as further positional arguments for the operator's functions.

        If layers with this operator share values, the result is ``(shared,)``, with an empty mapping in place of None.
        Otherwise it is ``()``, because the operator's functions then have no parameter for shared values.
        """
        return ({} if shared is None else shared,) if self.operator.shares_values else ()

    def compute(self, x: Tensor, path: str, *shared: Shared) -> Tensor:
        """Compute the output of :meth:`forward` with the implementation ``path``: not ``auto``, not ``reference``."""
        raise NotImplementedError

    def resolve_path(self, batch: int, length: int) -> str:
        """The name of the path (implementation) that :meth:`forward` takes for an input (``batch``, ``length``, D)."""
        raise NotImplementedError

    def reference(self, x: Tensor, rows: Sequence[int] | None = None, shared: Shared | None = None) -> Tensor:
        """Compute the rows ``rows`` of :meth:`forward`, with loops in float64: x (B, T, D) -> (B, len(rows), D).

        If ``rows`` is None, all rows are computed. ``shared`` is that of :meth:`forward`. Raises ``TrainingError`` if
        the layer has other parts than the operator declares, for example because some were replaced.
        """
        parameters = {name: parameter.double() for name, parameter in self.named_parameters()}
        if list(self.operator.parts(self.dims)) != [*dict.fromkeys(name.split(".")[0] for name in parameters)]:
            raise TrainingError("path 'reference' reads parameters by name, and some were replaced; use another path")
        shared = {} if shared is None else shared
        of_each = sharing.split(shared, len(x), dim=0)
        outputs = [
            self.operator.loops(parameters, self.dims, sequence.double(), *self.handed(of_sequence))
            for sequence, of_sequence in zip(x, of_each)
        ]
        sharing.join(shared, of_each, dim=0)
        y = torch.stack(outputs) if outputs else x.double()
        return y if rows is None else y[:, list(rows)]


def _module(part: Linear | Taps | LowRank | Gain | tuple[Linear, ...]) -> nn.Module:
    if isinstance(part, tuple):
        return nn.Sequential(*map(_module, part))
    if isinstance(part, Linear):
        return nn.Linear(part.inputs, part.outputs, bias=bool(part.bias))
    if isinstance(part, LowRank):
        return LowRankMap(part)
    return ConvTaps(part) if isinstance(part, Taps) else NormGain(part)


@torch.no_grad()
def draw(parameter: Tensor, init: Init | LinearInit | tuple[float, float], blocks: int = 1) -> None:
    """Set ``parameter`` to the initial values that ``init`` names, for a layer of a model with ``blocks`` blocks.

    - ``rates``: log of U(1, 16). ``rates from zero``: log of U(0, 16)
    - ``steps``: the inverse softplus of numbers that are log-uniform in [0.001, 0.1]
    - ``ones``, ``zeros``: the constants 1 and 0
    - two numbers: evenly spaced from the first to the last

    The weights (outputs, inputs) of a linear map may also be normal with mean 0. The standard deviation is 0.02 for
    ``normal``, sqrt(2 / (5 inputs)) for ``small``, and 2 / (blocks sqrt(outputs)) for ``by depth``.
    """
    if isinstance(init, tuple):
        parameter.copy_(torch.linspace(*init, len(parameter)))
    elif init in ("normal", "small", "by depth"):
        outputs, inputs = parameter.shape
        deviations = {"normal": INIT_STD, "small": math.sqrt(2 / (5 * inputs))}
        parameter.normal_(std=deviations.get(init, 2 / (blocks * math.sqrt(outputs))))
    elif init in ("ones", "zeros"):
        parameter.fill_(init == "ones")
    elif init == "steps":
        step = parameter.uniform_(math.log(0.001), math.log(0.1)).exp()
        parameter.copy_(step + (-(-step).expm1()).log())
    else:
        least = 1.0 if init == "rates" else torch.finfo(parameter.dtype).tiny
        parameter.uniform_(least, 16).log_()
