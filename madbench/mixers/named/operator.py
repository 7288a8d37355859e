"""The interface of named operators: names and sources, parameters, costs, and loops over the definition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import CONV_TAPS, Part, Taps
from madbench.mixers.ranks import WIDE_MODEL, WIDE_VO_STEP

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madbench.labels.family import Layer


@dataclass(frozen=True)
class Dims:
    """The widths of a layer."""

    d: int  # width of the model
    heads: int
    key: int  # key channels per head
    value: int  # value channels per head

    key_dim = property(lambda self: self.heads * self.key, doc="Key channels of all heads.")
    value_dim = property(lambda self: self.heads * self.value, doc="Value channels of all heads.")


@dataclass(frozen=True)
class Operator(ABC):
    """A named operator of any kind. Its fields are the arguments that a label may have in parentheses.

    A field is a flag that is False by default, or an :func:`~madbench.mixers.named.arguments.integer`.

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
    """The class of :attr:`origin` with the same parameters."""
    origin: ClassVar[str] = "flash-linear-attention 0.6"
    """The library that has this class."""
    differs: ClassVar[str] = ""
    """Differences from the library or from the authors' code. Empty if there are none."""
    counterpart: ClassVar[str] = ""
    """The label of coefficient dynamics whose recurrence has the same form. Empty if there is none."""
    meanings: ClassVar[Mapping[str, str]] = {}
    """The effect of each argument, by name."""
    parameters: ClassVar[str]
    """The number of parameters as an expression in the :meth:`symbols`."""
    state: ClassVar[str]
    """The count of numbers carried from token to token, as an expression in the same symbols."""
    output: ClassVar[str] = "o_proj"
    """The linear map that writes to the residual stream."""
    paths: ClassVar[tuple[str, ...]]
    """The ways of computing the layer, besides ``auto`` and ``reference``. See the layer of each kind."""
    gates: ClassVar[tuple[str, ...]] = ("g_proj", "f_proj", "a_proj", "b_proj", "w_proj", "gk_proj")
    """Parts that compute gates, if the layer has them. By default the library's usual names."""
    keeps_init: ClassVar[tuple[str, ...]] = ()
    """Linear maps whose initial values belong to the operator: see :class:`madbench.mixers.traits.Traits`."""
    takes_layer: ClassVar[bool] = False
    """True if the layer depends on its place in a model, which is ``allocation.size.layer``."""
    without_decay: ClassVar[tuple[str, ...]] = ()
    """Parameters with two or more dimensions that get no weight decay."""
    stacked_path: ClassVar[str] = "dense"
    """The path while several models train as one."""
    shares_values: ClassVar[bool] = False
    """True if later layers of a model read values of its first layer (:mod:`madbench.mixers.sharing`)."""
    has_heads: ClassVar[bool] = True
    """True if the number of heads changes the layer."""

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths that the budget chooses from, in ascending order of parameters.

        They are multiples of ``step``, one of :func:`width_steps`, except widths that d and the heads determine.
        By default keys and values have equal width, or values are one step wider.
        """
        pairs = ((width, width + wider) for width in widths(step, 2 * d // heads) for wider in (0, step))
        return [Dims(d, heads, key, value) for key, value in pairs]

    def library_dims(self, d: int, heads: int) -> Dims:
        """The widths of the library's layer by default. For many operators keys and values have d / H channels."""
        return Dims(d, heads, max(1, d // heads), max(1, d // heads))

    @abstractmethod
    def parts(self, dims: Dims) -> Mapping[str, Part]:
        """The parts of the layer, by the library's names."""

    @abstractmethod
    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        """The outputs (T, D) of one sequence x (T, D), by loops over the definition, in the precision of x.

        ``p`` has the parameters by name. It shares no code with the layer. If the operator shares values, they are a
        fourth argument ``shared``.
        """

    @abstractmethod
    def flops(self, dims: Dims, length: int) -> float:
        """Approximate forward FLOPs per token of a sequence, besides two per parameter."""

    def placed(self, dims: Dims, place: Layer) -> Dims:
        """The widths ``dims``, changed for a layer at this place in a model. Keys and values keep their widths."""
        return dims

    def initialize(self, layer: nn.Module) -> bool:
        """Sets all parameters and returns True, if the operator has its own initial values. Otherwise returns False."""
        return False

    def symbols(self, dims: Dims, tokens: int = 0) -> dict[str, int]:
        """The values of the symbols in :attr:`parameters` and :attr:`state`.

        The symbols are d, H (heads), K, V (key and value channels per head), W (taps), T (tokens of the sequence), and
        the arguments by name.
        """
        taps = next((part.taps for part in self.parts(dims).values() if isinstance(part, Taps)), CONV_TAPS)
        sizes = {"d": dims.d, "H": dims.heads, "K": dims.key, "V": dims.value, "W": taps, "T": tokens}
        return sizes | {each.name: getattr(self, each.name) for each in fields(self)}

    def further_ranks(self, dims: Dims) -> Mapping[str, int]:
        """Widths that the budget determines besides those of keys and values, by name."""
        return {}

    def cached(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers that each token adds to the cache, by name. Empty if the state has a fixed size."""
        return {}

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers in the fixed-size tensors that decoding carries besides a recurrent state, by name.

        ``windows`` are the last inputs of all convolutions. A position is carried as a tensor of integers (B,), and is
        not counted.
        """
        window = sum(part.window for part in self.parts(dims).values() if isinstance(part, Taps))
        return {"windows": window} if window else {}

    def state_size(self, dims: Dims, tokens: int = 0) -> int:
        """The count of all numbers that decoding carries after ``tokens`` tokens."""
        return sum(self.carried(dims).values()) + tokens * sum(self.cached(dims).values())


def width_steps(d: int) -> tuple[int, ...]:
    """The steps in which a head's widths are chosen, in order of preference.

    From d 256 up, the first step is 8, which GPUs need for full speed. Finer steps follow for narrow heads, for which
    multiples of 8 would leave much of the budget unused.
    """
    return (WIDE_VO_STEP, 4, 2, 1) if d >= WIDE_MODEL else (1,)


def widths(step: int, most: int) -> range:
    """The multiples of ``step`` up to ``most``, but at least ``step`` itself."""
    return range(step, max(most, step) + 1, step)


def wider_values(d: int, heads: int, step: int, key_step: int) -> list[tuple[int, int]]:
    """Pairs of key and value channels per head, with up to twice as many values as keys.

    Values change in steps of ``step``, keys in steps of ``step`` or ``key_step``, whichever is larger.
    """
    key_step = max(key_step, step)
    keys = widths(key_step, d // heads)
    return [(key, value) for key in keys for value in range(2 * key, max(key, 2 * key - 6 * step) - 1, -step)]


def widths_near_double(d: int, heads: int, step: int, key_cost: int, value_cost: int) -> list[Dims]:
    """Widths in ascending order of parameters. ``key_cost`` and ``value_cost`` count linear maps of keys and of values.

    Values are 1 to 3 times as wide as keys. Among equal costs, values nearest to twice the keys come last, because the
    last that fits is taken. Keys change in half steps.
    """
    key_step = max(1, step // 2)
    keys = range(key_step, max(step, d // heads) + 1, key_step)
    pairs = [(key, value) for key in keys for value in range(step, 3 * key + 1, step) if value >= key]
    pairs.sort(key=lambda pair: (key_cost * pair[0] + value_cost * pair[1], -abs(pair[1] - 2 * pair[0])))
    return [Dims(d, heads, key, value) for key, value in pairs]
