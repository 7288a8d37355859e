"""The first two mixers of a label in a model, as one module whose paths are compared with loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from madbench.labels.family import Layer
from madbench.mixers import Family, Size, label_traits
from madbench.mixers.checks.path_checks import Loops, LoopsCheck, Make, path_checks
from madbench.mixers.checks.residuals import filled_mixer
from madbench.mixers.sharing import Shared, handed_to, mix
from madbench.mixers.traits import attach

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

FIRST, LATER = Layer(0, 2), Layer(1, 2, earlier=1)


class LaterLayer(nn.Module):
    """The first two mixers of a label in a model, as one module with the output of the second.

    Both mixers read x (B, T, D). The first affects the output only through the values that it shares with the second,
    so gradients reach the parameters of the first only through these values.
    """

    def __init__(self, first: Mixer, later: Mixer):
        super().__init__()
        self.first, self.later = first, later
        self.allocation: Any = later.allocation

    @property
    def chunk(self) -> int | None:
        """The block size of both mixers, in rows. Raises ``AttributeError`` if the mixers have no ``chunk``."""
        chunk: int | None = self.later.chunk
        return chunk

    @chunk.setter
    def chunk(self, rows: int | None) -> None:
        self.first.chunk = self.later.chunk = rows

    def forward(self, x: Tensor) -> Tensor:
        shared: Shared = {}
        mix(self.first, x, shared)
        return mix(self.later, x, shared)

    def reference(self, x: Tensor, rows: Sequence[int]) -> Tensor:
        """Compute some rows of the output with the methods ``reference`` of both mixers, which are loops in float64.

        x (B, T, D) -> (B, len(rows), D), where ``rows`` are indices of tokens.
        """
        shared: Shared = {}
        self.first.reference(x, rows, **handed_to(self.first, shared))
        output: Tensor = self.later.reference(x, rows, **handed_to(self.later, shared))
        return output

    def step(self, token: Tensor, caches: tuple[Any, Any] | None = None) -> tuple[Tensor, tuple[Any, Any]]:
        """Decode one token (B, D). Return the output (B, D) and the next caches of both mixers.

        ``caches`` is None for the first token.
        """
        shared: Shared = {}
        of_first, of_later = caches or (None, None)
        _, of_first = self.first.step(token, of_first, **handed_to(self.first, shared))
        row, of_later = self.later.step(token, of_later, **handed_to(self.later, shared))
        return row, (of_first, of_later)


def later_layer_checks(family: Family[Any, Any], label: Any, size: Size, paths: Sequence[str]) -> Iterator[LoopsCheck]:
    """Yield checks that compare the second mixer of a label in a model with loops in float64.

    There is one check per path, and one for decoding. There are none if the mixers of the label have no method
    ``reference``, or if all of them compute the same.
    """
    shares = label_traits(label, family).shares_values
    if not (shares or family.takes_layer(label)):
        return
    make = _maker(family, label, size)
    mixer, _ = make("auto", 1)
    if not hasattr(mixer.later, "reference"):
        return
    what = f"in a later layer{', from the values of the first layer,' if shares else ''} the results of float64 loops"
    steps = ["step"] if hasattr(mixer.later, "step") else []
    name = "later layer {}"
    yield from path_checks(Loops(make), [*paths, *steps], "the definition", name=name, what=what)


def _maker(family: Family[Any, Any], label: Any, size: Size) -> Make:
    settings = family.Settings()
    traits = label_traits(label, family)
    solved = [family.solve(label, replace(size, layer=layer), settings) for layer in (FIRST, LATER)]

    def build(path: str) -> LaterLayer:
        return LaterLayer(*(attach(family.build(each, settings, path), traits, str(label)) for each in solved))

    def make(path: str, length: int) -> tuple[Mixer, Tensor]:
        mixer, x = filled_mixer(lambda: build(path))
        return mixer, x[:1, :length]

    return make
