"""The interface of all named operators: names and sources, parameters, costs, and loops over the definition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Part, Taps
from madbench.mixers.named.widths import Dims, equal_or_wider
from madbench.mixers.ranks import CONV_TAPS

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.labels.family import Layer
    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class Operator(ABC):
    """A named operator of any kind: its name and source, its parameters, its costs and its definition.

    Its dataclass fields are the arguments that a label may have in parentheses. A field is a flag that is False by
    default, or an :func:`~madbench.mixers.named.arguments.integer`.

    Each operator has a file of its own, whose docstring has the equation in the symbols of the paper. Torch is not
    imported before a layer is built.
    """

    name: ClassVar[str]
    """The name as people write it, such as ``Mamba-2``. A label may have it in any case."""
    title: ClassVar[str]
    equation: ClassVar[str]
    """The definition in one line. S is (key, value), and q, k are columns."""
    source: ClassVar[str]
    library: ClassVar[str]
    """The name of the class in :attr:`origin` that has the same parameters."""
    origin: ClassVar[str] = "flash-linear-attention 0.6"
    """The library that has the class :attr:`library`, and its version."""
    differs: ClassVar[str] = ""
    """Sentences about differences from the library or from the authors' code. Empty if there are none."""
    counterpart: ClassVar[str] = ""
    """The ``cd:`` label (coefficient dynamics) whose recurrence has the same form. Empty if there is none."""
    meanings: ClassVar[Mapping[str, str]] = {}
    """The effect of each argument, by name."""
    parameters: ClassVar[str]
    """The number of parameters, as an expression in the symbols of :meth:`symbols`."""
    state: ClassVar[str]
    """The count of numbers that decoding carries from token to token, in the symbols of :meth:`symbols`."""
    output: ClassVar[str] = "o_proj"
    """The name of the linear map that writes to the residual stream."""
    paths: ClassVar[tuple[str, ...]]
    """The paths (implementations) that compute the layer, besides ``auto`` and ``reference``. The layer's class
    explains them."""
    gates: ClassVar[tuple[str, ...]] = ("g_proj", "f_proj", "a_proj", "b_proj", "w_proj", "gk_proj")
    """Names of parts that compute gates. A layer may lack some of them. By default the library's usual names."""
    keeps_init: ClassVar[tuple[str, ...]] = ()
    """Names of linear maps that keep the operator's initial values under every fidelity. The fidelity ``published``
    initializes all other linear maps by torch's default."""
    takes_layer: ClassVar[bool] = False
    """True if the layer depends on its place in a model, which is ``allocation.size.layer``."""
    without_decay: ClassVar[tuple[str, ...]] = ()
    """Names of parameters with two or more dimensions that get no weight decay."""
    stacked_path: ClassVar[str] = "dense"
    """The path that computes the layer while several models train in one step (``--group``)."""
    shares_values: ClassVar[bool] = False
    """True if later layers of a model read values of the first layer with the same label
    (:mod:`madbench.mixers.sharing`)."""
    has_heads: ClassVar[bool] = True
    """True if the number of heads changes the layer."""

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses, in ascending order of parameters.

        d is the width of the model. Widths are multiples of ``step``, unless d and the number of heads determine them.
        ``step`` is an element of :func:`madbench.mixers.named.widths.width_steps`. By default values are as wide as
        keys, or one step wider.
        """
        return equal_or_wider(d, heads, step, 2 * d // heads)

    def library_dims(self, d: int, heads: int) -> Dims:
        """The widths of the layer in its library (:attr:`origin`), for a model of width d.

        By default keys and values have d / heads channels per head.
        """
        return Dims(d, heads, max(1, d // heads), max(1, d // heads))

    @abstractmethod
    def parts(self, dims: Dims) -> Mapping[str, Part]:
        """The declarations of the layer's parameters, by their names in the library's layer (:attr:`library`)."""

    @abstractmethod
    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        """Compute the outputs (T, D) of one sequence x (T, D) by loops over the definition, in the precision of x.

        ``p`` has the parameters by name. The loops share no code with the layer. If the operator shares values, the
        loops take the shared values as a fourth argument ``shared``.
        """

    @abstractmethod
    def flops(self, dims: Dims, length: int) -> float:
        """Approximate forward FLOPs per token, not counting the 2 FLOPs per parameter.

        ``length`` is the number of tokens of the sequence. A multiply-add counts as two.
        """

    def placed(self, dims: Dims, place: Layer) -> Dims:
        """The widths of the layer at ``place``, its place in a model. By default ``dims``, unchanged.

        Keys and values always keep their widths.
        """
        return dims

    def initialize(self, layer: NamedLayer) -> None:
        """Set the initial values of all parameters. By default those that the operator's parts declare.

        ``layer`` is a :class:`madbench.mixers.named.layer.NamedLayer`. The caller turns off the recording of gradients.
        """
        layer.draw_declared()

    def symbols(self, dims: Dims, tokens: int = 0) -> dict[str, int]:
        """The values of the symbols in the expressions :attr:`parameters` and :attr:`state`, by symbol.

        The symbols are d (width of the model), H (heads), K and V (key and value channels per head), W (taps), T
        (tokens of the sequence), and the names of the arguments.
        """
        taps = next((part.taps for part in self.parts(dims).values() if isinstance(part, Taps)), CONV_TAPS)
        sizes = {"d": dims.d, "H": dims.heads, "K": dims.key, "V": dims.value, "W": taps, "T": tokens}
        return sizes | {each.name: getattr(self, each.name) for each in fields(self)}

    def further_ranks(self, dims: Dims) -> Mapping[str, int]:
        """The widths that the budget determines besides those of keys and values, by name. By default empty."""
        return {}

    def cached(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers that each token adds to the cache, by name of the tensor.

        Empty if the state has a fixed size.
        """
        return {}

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers in each tensor that decoding carries besides the recurrent state, by name of the tensor.

        Only tensors of fixed size are listed. ``windows`` are the last inputs of all convolutions. A position is
        carried as a tensor of integers (B,), and is not counted.
        """
        window = sum(part.window for part in self.parts(dims).values() if isinstance(part, Taps))
        return {"windows": window} if window else {}

    def state_size(self, dims: Dims, tokens: int = 0) -> int:
        """The count of all numbers that decoding carries for one sequence after ``tokens`` tokens."""
        return sum(self.carried(dims).values()) + tokens * sum(self.cached(dims).values())
