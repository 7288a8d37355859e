"""The protocol of a family of mixers: from a label's text to a module with a known cost.

S/R/G is the family without a name; an installed package adds one as an entry point of the group ``madbench.families``
(``examples/plugin`` is a complete one). A family is a value, imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from madbench.errors import BudgetError, LabelError, did_you_mean
from madbench.labels.grammar import Explanation as Explanation

if TYPE_CHECKING:
    from torch import Tensor, nn

Budget = Literal["strict", "paper"]


@dataclass(frozen=True)
class Size:
    """Where a mixer stands: what every family solves its ranks for. Raises ``BudgetError`` for a size that is none."""

    d_model: int  # width; the budget is 4 d_model^2
    n_head: int
    max_len: int  # longest sequence
    budget: Budget = "strict"  # every parameter counts, and the budget is enforced; or the ranks of the family's paper

    def __post_init__(self):
        for name in ("d_model", "n_head", "max_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.budget not in get_args(Budget):
            raise BudgetError(f"budget {self.budget!r} is unknown{did_you_mean(str(self.budget), get_args(Budget))}")


class Allocation(Protocol):
    """What a mixer is built from and what it costs. Every count is exact for the built module.

    Optional, for ``madbench budget``: ``formulas`` {term: (formula, tensors)}, ``widths`` {name: width of one head}, and
    ``paper_total``, the parameters that the family's paper counts.
    """

    label: Any
    size: Size
    terms: Mapping[str, int]  # parameters by term
    total: int  # every parameter of the mixer
    target: int  # the budget
    ratio: float  # total / target
    ranks: Mapping[str, int]  # what the budget decided

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a causal sequence of ``seq_len`` tokens, two for each multiply-add."""

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes by which each token makes the decoding cache grow."""


@dataclass(frozen=True)
class Check:
    """One statement about a label's mixer that ``verify`` runs."""

    name: str
    statement: str  # what holds, in a sentence
    source: str  # where it is stated
    run: Callable[[], float]  # measures the residual
    tolerance: float = 0.0  # largest residual at which it holds


class Family(Protocol):
    """A family of mixers. A label is frozen and hashable, and its ``str`` is the canonical text."""

    name: str  # text before the colon of its labels
    version: str  # raised when the same label would give other numbers; part of a job's identity
    Settings: type  # frozen dataclass of what this family alone uses, each field followed by a sentence about it

    def parse(self, text: str) -> Any:
        """The label of the whole text, its name and colon included; a ``LabelError`` points at the fault."""

    def factors(self, label: Any) -> Mapping[str, str]:
        """What the label is, factor by factor, ``""`` for what it lacks; one that has no meaning for it is left out.

        Two labels differ in the factors that both have with different values. ``budget`` is ``matched`` or ``over``.
        """

    def replace(self, label: Any, **factors: str) -> Any:
        """The label with other values of some factors; a ``LabelError`` where there is none."""

    def neighbours(self, label: Any) -> Sequence[Any]:
        """Every label that differs from this one in exactly one factor."""

    def explain(self, label: Any) -> Sequence[Explanation]:
        """A row a letter, in the order of the label."""

    def solve(self, label: Any, size: Size, settings: Any) -> Allocation:
        """The ranks of the label at a size; a ``BudgetError`` where nothing fits."""

    def build(self, allocation: Allocation, settings: Any, path: str = "auto") -> nn.Module:
        """The causal mixer, (B, T, D) -> (B, T, D) for T up to ``max_len``, with exactly ``allocation.total`` parameters.

        Optional: ``step(x, cache, slide)`` decodes one token (B, D), ``resolve_path(batch, length)`` names the path that
        computes an input of this shape, ``allocation`` is what it was built from.
        """

    def checks(self, label: Any) -> Iterable[Check]:
        """What ``verify`` runs; :func:`general_checks` has those that any mixer passes."""


class ListedFamily:
    """Neighbours and replacements of a family whose labels can be listed; it has ``factors``, and ``labels``."""

    def neighbours(self, label: Any) -> tuple[Any, ...]:
        """Every label that differs from this one in exactly one factor, by factor and then in their order."""
        mine = self.factors(label)
        found: dict[str, list[Any]] = {name: [] for name in mine}
        for other in self.labels():
            theirs = self.factors(other)
            differing = [name for name in mine if theirs.get(name, mine[name]) != mine[name]]
            if len(differing) == 1:
                found[differing[0]].append(other)
        return tuple(other for of_factor in found.values() for other in of_factor)

    def replace(self, label: Any, **factors: str) -> Any:
        """The label with these factors that is otherwise the same; a ``LabelError`` where there is not exactly one."""
        wanted, found = {**self.factors(label), **factors}, []
        for other in self.labels():
            theirs = self.factors(other)
            if factors.items() <= theirs.items() and all(wanted.get(name, own) == own for name, own in theirs.items()):
                found.append(other)
        if len(found) != 1:
            change = ", ".join(f"{name} {value!r}" for name, value in factors.items())
            raise LabelError(f"{len(found) or 'no'} labels are {label} with {change}: {', '.join(map(str, found))}")
        return found[0]


SMALL = Size(d_model=16, n_head=2, max_len=8, budget="paper")  # paper: every label fits
ROUNDING = 1e-9


def sample(family: Family, label: Any, path: str = "auto") -> tuple[nn.Module, Tensor]:
    """A small mixer of the label, always the same, with weights that show, and an input."""
    import torch

    settings = family.Settings()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer = family.build(family.solve(label, SMALL, settings), settings, path).double()
        for parameter in mixer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return mixer.eval().requires_grad_(False), torch.randn(2, SMALL.max_len, SMALL.d_model).double()


def difference(given: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative to ``expected``."""
    return float((given - expected).norm() / expected.norm().clamp(min=1e-30))


def general_checks(family: Family, label: Any) -> Iterable[Check]:
    """Exact parameter count, causality, and decoding step by step where the mixer has a ``step``."""

    def parameters() -> float:
        mixer, _ = sample(family, label)
        allocation = family.solve(label, SMALL, family.Settings())
        return abs(sum(parameter.numel() for parameter in mixer.parameters()) - allocation.total)

    def causality() -> float:
        mixer, x = sample(family, label)
        changed = x.clone()
        changed[:, 5:] += 1
        return difference(mixer(changed)[:, :5], mixer(x)[:, :5])

    def steps() -> float:
        import torch

        mixer, x = sample(family, label)
        cache, rows = None, []
        for token in x.unbind(1):
            row, cache = mixer.step(token, cache)
            rows.append(row)
        return difference(torch.stack(rows, dim=1), mixer(x))

    yield Check("parameters", "The module has exactly the parameters of its allocation.", "the budget", parameters)
    yield Check("causality", "Later tokens do not change earlier outputs.", "causal mixing", causality, ROUNDING)
    if hasattr(sample(family, label)[0], "step"):
        yield Check("steps", "Decoding token by token gives the parallel outputs.", "decoding", steps, ROUNDING)
