"""The base class of families of mixers, and the types of the arguments and results of its methods.

Packages that define a family import these classes from :mod:`madbench.mixers`. Each family is validated when it is
loaded (:mod:`madbench.labels.family_checks`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from madbench.config import short_repr
from madbench.errors import BudgetError, did_you_mean
from madbench.jobs import Budget
from madbench.labels.budgets import BUDGETS, BudgetRule
from madbench.labels.traits import Traits

if TYPE_CHECKING:
    from torch import nn

_NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class Label(Protocol):
    """A parsed label. Labels are immutable and hashable, and ``str`` of a label is its canonical text."""

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Explanation:
    """One row of the explanation of a label: the meaning of a letter.

    If ``letter`` is empty, the row says what follows from a letter that the label does not have.
    """

    letter: str
    name: str
    what: str
    """Effect of the letter."""
    equation: str
    """Equation that the letter affects. t is the current token and i a token of its prefix."""
    source: str
    """Name of the effect in the literature, and the place where it is described, such as a section of a paper."""


@dataclass(frozen=True)
class Layer:
    """The position of a mixer among the blocks of a model."""

    index: int = 0
    """Index of the mixer's block, counted from 0."""
    count: int = 1
    """Number of blocks of the model."""
    earlier: int = 0
    """Number of earlier blocks with the same label."""


@dataclass(frozen=True)
class Size:
    """The width, number of heads, length and budget for which a family chooses the ranks of a mixer.

    Raises ``BudgetError`` for a size that is no positive integer, and for an unknown budget.
    """

    d_model: int
    """Width of the model. Softmax attention of this width has 4 d_model^2 parameters."""
    n_head: int
    max_len: int
    """Length of the longest sequence in tokens."""
    budget: Budget = "strict"
    """The name of the budget, such as ``strict``. :attr:`rule` is the rule of this name."""
    layer: Layer = Layer()
    """Position of the mixer in a model. The default is for families whose ``takes_layer`` is false."""

    def __post_init__(self) -> None:
        for name in ("d_model", "n_head", "max_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{name} must be a whole number of at least 1, got {short_repr(value)}")
        if self.budget not in BUDGETS:
            raise BudgetError(f"budget {short_repr(self.budget)} is unknown{did_you_mean(str(self.budget), BUDGETS)}")

    @property
    def rule(self) -> BudgetRule:
        """The rule of the budget: the limited quantity, its limit, and the way it is counted."""
        return BUDGETS[self.budget]


class Allocation(Protocol):
    """The ranks and the cost of a mixer, before it is built. Counts of parameters equal those of the built module.

    Optional members:

    - ``state(seq_len)``: how many numbers decoding carries from token to token after ``seq_len`` tokens. It counts
      recurrent matrices, windows of convolutions, shifted tokens, last keys and values, and caches. Integers such as a
      position do not count. Without this method the state is unknown (:func:`madbench.mixers.state_size`).
    - ``formulas`` {term: (formula, tensors)}, ``widths`` {name: width of one head}, and ``paper_total``, the number of
      parameters that the family's paper counts. ``madbench explain --cost`` prints them.
    """

    @property
    def label(self) -> Label:
        """The label of the mixer."""

    @property
    def size(self) -> Size:
        """The size for which the ranks were chosen."""

    @property
    def terms(self) -> Mapping[str, int]:
        """The number of parameters of each part of the mixer, by name of the part. They sum to ``total``."""

    @property
    def total(self) -> int:
        """The number of parameters of the mixer."""

    @property
    def target(self) -> int:
        """The number of parameters that the budget allows."""

    @property
    def ratio(self) -> float:
        """The number of parameters divided by the budget: ``total / target``."""

    @property
    def ranks(self) -> Mapping[str, int]:
        """The ranks of the mixer that the budget determines, by name, such as ``qk``. Empty if there are none."""

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a causal sequence of ``seq_len`` tokens. A multiply-add counts as two."""

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes by which each token enlarges the decoding cache, if one number takes ``bytes_per_element`` bytes."""


@dataclass(frozen=True)
class Check:
    """A statement about a label's mixer that a measured number, the residual, can confirm.

    If the statement does not apply to the label, ``reason`` says why, and ``run`` is None.
    """

    name: str
    statement: str
    """The statement, as a sentence."""
    source: str
    """Place where the statement is made, such as an equation of a paper."""
    run: Callable[[], float] | None
    """Function that measures the residual. None if the statement does not apply."""
    tolerance: float = 0.0
    """Largest residual that confirms the statement. If :attr:`is_difference` is true, only larger residuals confirm
    it."""
    is_difference: bool = False
    """True if two things must differ: the residual must be *above* the tolerance."""
    reason: str = ""
    """Reason why the statement does not apply to the label. Empty if it applies."""
    contradicts: bool = False
    """True if the statement shows that its source, as printed, is wrong."""

    def __post_init__(self) -> None:
        if self.reason:
            object.__setattr__(self, "run", None)

    def holds(self, residual: float) -> bool:
        """True if a measured residual confirms the statement. False for NaN."""
        return residual > self.tolerance if self.is_difference else residual <= self.tolerance


L = TypeVar("L", bound=Label)
A = TypeVar("A", bound=Allocation)


class Family(Generic[L, A]):
    """The base class of families of mixers. ``L`` is the type of its labels, and ``A`` is the type of its allocations.

    Each family is an instance of its own subclass. Required members are abstract, and all other members have defaults.
    A family with missing or invalid members cannot be loaded (:mod:`madbench.labels.family_checks`). The module of a
    family must import without torch.
    """

    # The class has no metaclass ABCMeta. The error for a missing member then names the package and a similar member.

    def __init_subclass__(cls, **settings: Any) -> None:
        """Give a subclass that defines ``neighbors`` or ``neighbours`` the method under both names.

        ``neighbours`` was the name in version 0.1. Packages may still define it, and callers may still call it.
        """
        super().__init_subclass__(**settings)
        for name, other in (("neighbours", "neighbors"), ("neighbors", "neighbours")):
            if name in vars(cls):
                setattr(cls, other, vars(cls)[name])

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the family, which stands before the colon of its labels."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The family's version, a part of a job's identity. Increase it if a label's scores change."""

    @property
    @abstractmethod
    def Settings(self) -> type[Any]:
        """The frozen dataclass of the family's own settings. A string below each field describes the setting.

        A setting that is added after runs were stored needs the field metadata ``madbench.jobs.NOT_AT_DEFAULT``. It
        keeps the ids of these runs unchanged.
        """

    description: ClassVar[str] = ""
    """A sentence on the mixers for ``madbench ls families``. If empty, the first paragraph of the docstring of the
    family's module is shown."""
    syntax: ClassVar[str] = ""
    """The syntax of a label for ``madbench ls families``, without the family's name."""
    example: ClassVar[str] = ""
    """A label for ``madbench ls families`` and for completion."""
    needs: ClassVar[str] = ""
    """The required hardware, such as ``a CUDA GPU``, for messages that suggest labels of the family. Empty if the
    mixers run anywhere."""
    is_bidirectional: ClassVar[bool] = False
    """True if mixers of the family can also see later tokens. Then the mixers from ``build`` and the
    ``flops_per_token`` of allocations accept ``causal=False``."""
    names_code: ClassVar[bool] = False
    """True if a label names code outside the family. The code is imported when the label is solved or built
    (:mod:`madbench.labels.trust`)."""
    matches: ClassVar[Sequence[str]] = ()
    """The quantities besides parameters that ``solve`` matches (:mod:`madbench.labels.budgets`), such as
    ``("flops",)``. A label is refused under other budgets."""
    mixers: ClassVar[Mapping[str, str]] = _NO_TEXTS
    """The labels of mixers that are known by a name, such as ``HyperGLU``, by this name."""
    titles: ClassVar[Mapping[str, str]] = _NO_TEXTS
    """The labels of published layers for ``madbench ls operators``, by the layer's title."""
    factor_names: ClassVar[Mapping[str, str]] = _NO_TEXTS
    """Display names of factors, by factor."""
    factor_order: ClassVar[Sequence[str]] = ()
    """The factors in the order in which contrasts are listed."""
    level_order: ClassVar[Sequence[str]] = ()
    """The levels of factors in the order in which contrasts are listed."""

    @abstractmethod
    def parse(self, text: str) -> L:
        """Parse the text of a label, including the family's name and the colon.

        Raises ``LabelError``, whose message points at the wrong character, if the text is no label.
        """

    @abstractmethod
    def factors(self, label: L) -> Mapping[str, str]:
        """The factors of a label: the level of each property in which labels can differ, by name of the property.

        The level of an absent property is ``""``. A factor without meaning for the label is left out. Two labels are
        compared in the factors that both have. The factor ``budget`` is ``matched`` or ``over``.
        """

    @abstractmethod
    def neighbors(self, label: L) -> Sequence[L]:
        """All labels of the family that differ from ``label`` in exactly one factor."""

    @abstractmethod
    def explain(self, label: L) -> Sequence[Explanation]:
        """The explanation of a label: one row per letter, in the order of the letters."""

    @abstractmethod
    def solve(self, label: L, size: Size, settings: Any) -> A:
        """Choose the ranks of a label's mixer for a size. Raises ``BudgetError`` if no ranks meet the budget.

        ``settings`` is an instance of :attr:`Settings`.
        """

    @abstractmethod
    def build(self, allocation: A, settings: Any, path: str = "auto") -> nn.Module:
        """Build the causal mixer (B, T, D) -> (B, T, D) of an allocation, with ``allocation.total`` parameters.

        T is at most ``allocation.size.max_len``. ``settings`` is an instance of :attr:`Settings`. The mixer rejects
        input that is no batch of sequences of its width (:func:`madbench.mixers.inputs.check_sequences`). If the
        family's ``is_bidirectional`` is true, ``forward`` also accepts ``causal=False``: then every output depends on
        all tokens.

        Optional members of the mixer:

        - ``step(x, cache, slide)`` decodes one token (B, D). It returns the output (B, D) and the next cache. The first
          cache is None. If ``slide`` is true, a mixer whose cache grows decodes tokens beyond ``max_len`` with a window
          of the newest tokens. If it is false, the mixer may raise an error for these tokens.
        - ``prefill(x, slide)`` decodes a prompt (B, T, D). It returns the outputs (B, T, D) and the cache after the
          prompt.
        - ``paths`` are the accepted values of ``path``. ``resolve_path(batch, length)`` names the path that computes an
          input of this shape.
        - ``shared`` is an argument of ``forward``, ``step`` and ``prefill``, if the mixer has the trait
          ``shares_values`` (:mod:`madbench.mixers.sharing`).
        - ``allocation`` is the allocation from which the mixer was built.
        - ``probe(x)`` returns a :class:`madbench.mixers.probe.Probe` of x (B, T, D) for ``madbench inspect``.
        - ``reference(x, rows)`` computes the outputs (B, R, D) at the R positions ``rows``, or at all if it is
          None, with loops in float64. ``madbench verify`` compares every path and its gradients with it.
        - ``kernel_problem`` is the reason why ``resolve_path`` skipped kernels that compute wrong results on this
          device. Empty if it skipped none. A run warns of this problem and records it.
        """

    @abstractmethod
    def checks(self, label: L) -> Iterable[Check]:
        """The checks of one label's mixer.

        :func:`madbench.mixers.checks.general_checks` has checks that fit any mixer.
        """

    def labels(self) -> Sequence[L | str]:
        """All labels of the family, parsed or as text. Empty if they cannot be listed."""
        return ()

    def begins(self, text: str) -> bool:
        """True if some label of the family begins with ``text``, which includes the family's name and the colon.

        If False, an error message may suggest a label of another family. The default compares ``text`` with
        :meth:`labels`.
        """
        return any(str(label).startswith(text) for label in self.labels())

    def text_of(self, value: Any) -> str | None:
        """The text of the label for a Python object such as a class. None if the object has no label in this family."""
        return None

    def preset_spelling(self, label: L) -> str:
        """A spelling of the label that begins with a preset, a name for several letters such as ``cd:gla``.

        By default, and if no preset fits, the label's canonical text.
        """
        return str(label)

    def levels(self, label: L) -> Mapping[str, str]:
        """The levels of the label's factors as contrasts print them, by factor. By default those of :meth:`factors`."""
        return self.factors(label)

    def factors_of_other(self, label: Label) -> Mapping[str, str] | None:
        """The factors of another family's label as factors of this family. None if this is impossible."""
        return None

    def traits(self, label: L) -> Traits:
        """The properties of the label's mixer for models, optimizers and suites."""
        return Traits()

    def effective(self, allocation: A, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of ``settings`` that still changes the mixer when its ranks are given. By default all settings.

        ``settings`` are the settings that the label uses, by name. Two jobs train the same model if their ranks and
        this part are equal.
        """
        return settings

    def blocks(self, label: L, count: int) -> Sequence[Label]:
        """The labels of the mixers in the ``count`` blocks of a model. By default ``label`` for every block.

        Only a family whose labels combine labels of other families returns other labels
        (:mod:`madbench.mixers.sequence`).
        """
        return (label,) * count

    def block_period(self, label: L) -> int:
        """The number of blocks after which the sequence of labels from :meth:`blocks` starts again."""
        return 1

    def takes_layer(self, label: L) -> bool:
        """True if the mixer depends on its position in the model.

        ``solve`` and ``build`` then read the position from ``size.layer``. Otherwise ``size.layer`` has its default:
        the only layer of a model.
        """
        return False

    def missing_package(self) -> str:
        """The name of a package that the family requires but that cannot be imported. Empty if none is missing.

        While a package is missing, stored runs of the family's labels are shown without importing their code.
        """
        return ""

    def identity(self, label: L) -> str | None:
        """A text for everything besides ``version`` that affects the label's scores. It enters the ids of runs.

        An example is a hash of a module's source. None if ``version`` covers everything.
        """
        return None

    def code(self, label: L) -> dict[str, Any] | None:
        """The code listing (:mod:`madbench.identity.listing`) of the user's code that a label names.

        None if the label names no code.
        """
        return None

    def may_import(self, label: L) -> bool:
        """True if the user's code that a label names may be imported (:mod:`madbench.labels.trust`).

        Only called if ``names_code`` is true.
        """
        return False

    def own_modules(self, label: L) -> Sequence[str]:
        """The modules that compute this label but that the module of the family does not import.

        The digest of the label's code covers both kinds of modules (:mod:`madbench.suites.code`). Only families of
        madbench itself need this method.
        """
        return ()


LoadedFamily: TypeAlias = Family[Label, Allocation]
"""The type of a family that the registry returns. Its own types of labels and allocations are unknown."""


class ListedFamily(Family[L, A]):
    """The base class of families that can list all their labels. ``neighbors`` searches this list."""

    @abstractmethod
    def labels(self) -> Sequence[L]:
        """All labels of the family, parsed."""

    def neighbors(self, label: L) -> tuple[L, ...]:
        """All labels that differ from ``label`` in exactly one factor, by factor and then as in :meth:`labels`."""
        others = ((other, self.factors(other)) for other in self.labels())
        return one_factor_apart(self.factors(label), others)


def one_factor_apart(mine: Mapping[str, str], others: Iterable[tuple[L, Mapping[str, str]]]) -> tuple[L, ...]:
    """Return the labels of ``others`` whose factors differ from ``mine`` in exactly one factor, ordered by that factor.

    ``mine`` has the factors of one label. ``others`` are pairs of another label and its factors. Factors that only one
    of the two labels has are ignored.
    """
    neighbors_by_factor: dict[str, dict[L, None]] = {name: {} for name in mine}
    for other, theirs in others:
        differing = [name for name in mine if theirs.get(name, mine[name]) != mine[name]]
        if len(differing) == 1:
            neighbors_by_factor[differing[0]][other] = None
    return tuple(other for of_factor in neighbors_by_factor.values() for other in of_factor)
