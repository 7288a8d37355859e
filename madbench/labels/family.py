"""The interface of a family of mixers, and the types that its methods exchange with madbench.

:mod:`madbench.mixers` exports them for packages. :mod:`madbench.labels.family_checks` checks a family as it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from madbench.errors import BudgetError, did_you_mean
from madbench.jobs import Budget
from madbench.labels.budgets import BUDGETS, BudgetRule
from madbench.labels.family_checks import Explanation

if TYPE_CHECKING:
    from torch import nn


class Label(Protocol):
    """A parsed label. It is frozen and hashable, and its ``str`` is the canonical text."""

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Layer:
    """The place of a mixer among the blocks of a model."""

    index: int = 0  # index of the mixer's block, counted from 0
    count: int = 1  # number of blocks of the model
    earlier: int = 0  # number of earlier blocks with the same label


@dataclass(frozen=True)
class Size:
    """The width, number of heads, length and budget for which a family chooses the ranks of a mixer.

    Raises ``BudgetError`` for invalid values.
    """

    d_model: int  # width; the budget is 4 d_model^2
    n_head: int
    max_len: int  # length of the longest sequence in tokens
    budget: Budget = "strict"  # the name of its :attr:`rule`
    layer: Layer = Layer()  # the default for labels whose family does not take the layer

    def __post_init__(self) -> None:
        for name in ("d_model", "n_head", "max_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.budget not in BUDGETS:
            raise BudgetError(f"budget {self.budget!r} is unknown{did_you_mean(str(self.budget), BUDGETS)}")

    @property
    def rule(self) -> BudgetRule:
        """The rule of the budget: the limited quantity, its limit, and the way it is counted."""
        return BUDGETS[self.budget]


class Allocation(Protocol):
    """The ranks and the cost of a mixer. Every count is exact for the built module.

    Optional members:

    - ``state(seq_len)``: the numbers that decoding carries from token to token after ``seq_len`` tokens. It counts
      recurrent matrices, windows of convolutions, shifted tokens, last keys and values, and caches. Integers such as a
      position do not count. Without it the state is unknown (:func:`madbench.mixers.state_size`).
    - for ``madbench explain --cost``: ``formulas`` {term: (formula, tensors)}, ``widths`` {name: width of one head},
      and ``paper_total``, the number of parameters that the family's paper counts.
    """

    @property
    def label(self) -> Label:
        """The label of the mixer."""

    @property
    def size(self) -> Size:
        """The size for which the ranks were chosen."""

    @property
    def terms(self) -> Mapping[str, int]:
        """The number of parameters of each term, by name of the term."""

    @property
    def total(self) -> int:
        """The number of parameters of the mixer."""

    @property
    def target(self) -> int:
        """The budget: the largest number of parameters."""

    @property
    def ratio(self) -> float:
        """The number of parameters divided by the budget: ``total / target``."""

    @property
    def ranks(self) -> Mapping[str, int]:
        """The ranks of the mixer that the budget determines, by name of the rank."""

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a causal sequence of ``seq_len`` tokens. A multiply-add counts as two."""

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to a model's decoding cache, for numbers of ``bytes_per_element`` bytes."""


@dataclass(frozen=True)
class Check:
    """A measurable statement about a label's mixer. If it does not apply to the label, ``reason`` says why."""

    name: str
    statement: str  # the claim, as a sentence
    source: str  # place where the claim is stated
    run: Callable[[], float] | None  # measures the residual; None if the statement does not apply
    tolerance: float = 0.0  # largest residual that confirms the statement
    is_difference: bool = False  # True if two things must differ: the residual must be *above* the tolerance
    reason: str = ""  # reason why the statement does not apply; it is not run then
    contradicts: bool = False  # True if the statement shows that its source, as printed, is wrong

    def __post_init__(self) -> None:
        if self.reason:
            object.__setattr__(self, "run", None)

    def holds(self, residual: float) -> bool:
        """True if a measured residual confirms the statement. NaN never does."""
        return residual > self.tolerance if self.is_difference else residual <= self.tolerance


L = TypeVar("L", bound=Label)
A = TypeVar("A", bound=Allocation)


class Family(Protocol[L, A]):
    """A family of mixers. ``L`` is the type of its labels, and ``A`` is the type of its allocations.

    Loading a family with missing or invalid members is an error (:mod:`madbench.labels.family_checks`). Optional
    members, besides those described below:

    - ``is_bidirectional``: True if its mixers can also see all tokens. Default: False.
    - ``labels()``: all labels, parsed or as text, if they can be listed.
    - ``levels(label)``: names of the label's factor levels in contrasts. Default: its ``factors``.
    - ``factor_names``: display names of factors, by factor.
    - ``factor_order`` and ``level_order``: the order in which contrasts are listed.
    - ``matches``: the quantities besides parameters that ``solve`` matches (:mod:`madbench.labels.budgets`), such as
      ``("flops",)``. A label is refused under other budgets. Default: none.
    - ``names_code``: True if a label names code outside the family. The code is imported when the label is solved or
      built (:mod:`madbench.labels.trust`). Default: False.
    """

    @property
    def name(self) -> str:
        """The text before the colon of its labels."""

    @property
    def version(self) -> str:
        """The family's version, a part of a job's identity. Increase it when a label would give other numbers."""

    @property
    def Settings(self) -> type[Any]:
        """The frozen dataclass of the family's own settings, each field followed by a sentence about it.

        A setting that is added after runs were stored has the metadata ``madbench.jobs.NOT_AT_DEFAULT``, so that the
        ids of these runs do not change.
        """

    def parse(self, text: str) -> L:
        """Parses the text of a label, including the family's name and the colon.

        Raises ``LabelError``, whose message points at the wrong character.
        """

    def factors(self, label: L) -> Mapping[str, str]:
        """The levels of the label's factors, by name of the factor.

        The level of an absent property is ``""``. A factor without meaning for the label is left out. Two labels are
        compared by the factors that both have. The factor ``budget`` is ``matched`` or ``over``.

        Optional method of a family: ``factors_of_other(label)`` returns the factors of another family's label as
        factors of this family, or None if this is impossible.
        """

    def neighbours(self, label: L) -> Sequence[L]:
        """All labels that differ from this one in exactly one factor."""

    def explain(self, label: L) -> Sequence[Explanation]:
        """The explanation of a label: one row per letter, in the order of the letters."""

    def solve(self, label: L, size: Size, settings: Any) -> A:
        """Chooses the label's ranks for a size. Raises ``BudgetError`` if no ranks meet the budget."""

    def build(self, allocation: A, settings: Any, path: str = "auto") -> nn.Module:
        """Builds the causal mixer (B, T, D) -> (B, T, D), T <= ``max_len``, with ``allocation.total`` parameters.

        It rejects input that is no batch of sequences (:func:`madbench.mixers.inputs.check_sequences`). If the family's
        ``is_bidirectional`` is true, it also accepts ``causal=False``: then every row sees all tokens.

        Optional members of the mixer:

        - ``step(x, cache, slide)`` decodes one token (B, D). It returns the row (B, D) and the next cache. The first
          cache is None.
        - ``prefill(x, slide)`` decodes a prompt (B, T, D). It returns the rows and the cache after the prompt.
        - ``paths`` are the accepted values of ``path``. ``resolve_path(batch, length)`` names the path that computes an
          input of this shape.
        - ``shared`` is an argument of ``forward``, ``step`` and ``prefill``, if the mixer has the trait
          ``shares_values`` (:mod:`madbench.mixers.sharing`).
        - ``allocation`` is the allocation from which the mixer was built.
        - ``probe(x)`` returns a :class:`madbench.mixers.probe.Probe` of x (B, T, D) for ``madbench inspect``.
        - ``reference(x, rows)`` computes some rows (B, rows, D), or all rows, with loops in float64. The verb
          ``madbench verify`` compares every path and its gradients with it.
        - ``kernel_problem`` is the reason why ``resolve_path`` skipped kernels that compute wrong results on this
          device, or empty. A run warns of this problem and records it.
        """

    # Optional members:
    # - traits(label): the properties of the label's mixer for models, optimizers and suites. Default: Traits().
    # - effective(allocation, settings): the part of the mapping ``settings`` that changes this mixer other than through
    #   its ranks. It shows which settings train the same model. Default: all settings that the label reads.
    # - preset_spelling(label): a spelling of the label that begins with the name of a preset.
    # - mixers: the labels of named mixers, by name.
    # - syntax, example, description: texts for madbench ls families. ``description`` is a sentence on the mixers,
    #   by default the first paragraph of the docstring of the family's module.
    # - needs: the required hardware, such as "a CUDA GPU", for messages that suggest labels of the family.
    # - text_of(value): the label text for a value such as a class, or None.
    # - identity(label): anything else that affects the label's numbers, such as a hash of one module's source.
    # - begins(text): True if some label of the family begins with the text, which includes name and colon. If False,
    #   the text may be a label of another family. Default: compares the text with labels().
    # - blocks(label, count): the labels of the mixers of a model's ``count`` blocks, for a family whose labels combine
    #   labels of others (:mod:`madbench.mixers.sequence`). Default: the label itself for every block.
    # - block_period(label): the number of blocks after which the result of ``blocks`` repeats.
    # - takes_layer(label): True if the mixer depends on its place in the model. ``solve`` and ``build`` then find the
    #   place in ``size.layer``. Default: False, and ``size.layer`` is the only layer of a model with one layer.
    # - own_modules(label): for a family of madbench, further modules that compute this label. The digest of the label's
    #   code includes them besides the modules that the family's module imports (:mod:`madbench.suites.code`). Default:
    #   none.
    # - missing_package(): the name of a required package that cannot be imported here, or an empty text. If a package
    #   is missing, the stored runs of the family's labels are shown without their code.

    def checks(self, label: L) -> Iterable[Check]:
        """The checks of the label's mixer. :func:`madbench.mixers.checks.general_checks` has checks for any mixer."""


LoadedFamily: TypeAlias = Family[Label, Allocation]
"""A family whose own types of labels and allocations are unknown, as the registry returns it."""


class ListedFamily(Generic[L]):
    """A mixin for families whose labels can be listed. It finds the neighbors of a label in this list."""

    factors: Callable[[L], Mapping[str, str]]
    labels: Callable[[], Iterable[L]]

    def neighbours(self, label: L) -> tuple[L, ...]:
        """All labels that differ from this one in exactly one factor, ordered by factor and then as listed."""
        others = ((other, self.factors(other)) for other in self.labels())
        return one_factor_apart(self.factors(label), others)


def one_factor_apart(mine: Mapping[str, str], others: Iterable[tuple[L, Mapping[str, str]]]) -> tuple[L, ...]:
    """Returns the labels whose factors differ from ``mine`` in one factor, ordered by that factor.

    ``others`` are pairs of a label and its factors.
    """
    neighbours_by_factor: dict[str, dict[L, None]] = {name: {} for name in mine}
    for other, theirs in others:
        differing = [name for name in mine if theirs.get(name, mine[name]) != mine[name]]
        if len(differing) == 1:
            neighbours_by_factor[differing[0]][other] = None
    return tuple(other for of_factor in neighbours_by_factor.values() for other in of_factor)
