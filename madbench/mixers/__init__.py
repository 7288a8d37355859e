"""Sequence mixers by family: the protocol of a family, and from a label to its module with a known cost.

S/R/G is the family without a name. Another is a folder here with a ``family.py``, or an installed package with an entry
point of the group ``madbench.families`` (``examples/plugin`` is a complete one). A family is a value, imported without
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, get_args

from madbench.config import from_mapping, plain_values
from madbench.errors import BudgetError, ConfigError, FamilyError, did_you_mean
from madbench.jobs import NOT_AT_DEFAULT, Budget
from madbench.labels import Explanation, as_label, family_of, loaded_families, trust
from madbench.mixers.traits import Traits, attach

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Allocation", "Check", "Explanation", "Family", "ListedFamily", "Size", "Traits", "build", "families_that_see_all",
    "label_traits", "own_settings", "solve",
]  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Where a mixer stands: what every family solves its ranks for. Raises ``BudgetError`` for a size that is none."""

    d_model: int  # width; the budget is 4 d_model^2
    n_head: int
    max_len: int  # longest sequence
    budget: Budget = "strict"  # every parameter counts, and the budget is enforced; or the ranks of the family's paper

    def __post_init__(self) -> None:
        for name in ("d_model", "n_head", "max_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.budget not in get_args(Budget):
            raise BudgetError(f"budget {self.budget!r} is unknown{did_you_mean(str(self.budget), get_args(Budget))}")


class Allocation(Protocol):
    """What a mixer is built from and what it costs. Every count is exact for the built module.

    Optional, for ``madbench explain --cost``: ``formulas`` {term: (formula, tensors)}, ``widths`` {name: width of one
    head}, and ``paper_total``, the parameters that the family's paper counts.
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
        """Bytes by which each token makes the decoding cache of a model in numbers of so many bytes grow."""


@dataclass(frozen=True)
class Check:
    """One statement about a label's mixer that can be measured, or why it says nothing about this label."""

    name: str
    statement: str  # what holds, in a sentence
    source: str  # where it is stated
    run: Callable[[], float] | None  # measures the residual; None where the statement does not apply
    tolerance: float = 0.0  # largest residual at which it holds
    is_difference: bool = False  # it holds where the residual is *above* the tolerance: two things have to differ
    reason: str = ""  # why it does not apply; it is not run then
    contradicts: bool = False  # it holds where its source, as that is printed, does not

    def __post_init__(self) -> None:
        if self.reason:
            object.__setattr__(self, "run", None)

    def holds(self, residual: float) -> bool:
        """Whether a measured residual confirms the statement; one that is not a number never does."""
        return residual > self.tolerance if self.is_difference else residual <= self.tolerance


class Family(Protocol):
    """A family of mixers. A label is frozen and hashable, and its ``str`` is the canonical text.

    What is missing or of another kind is an error when the family is loaded (:mod:`madbench.labels.protocol`).
    Optional, beside what is said below: ``is_bidirectional``, whether its mixers can see all tokens, False by default;
    ``labels()``, all of them where they can be listed; ``levels(label)``, what contrasts call its factors, which are
    otherwise its ``factors``; ``factor_names``, names of factors for people, by factor; ``factor_order`` and
    ``level_order``, in which contrasts are listed; ``names_code``, True if a label is the name of code outside of the
    family, which is imported when it is solved or built (:mod:`madbench.labels.trust`), False by default.
    """

    name: str  # text before the colon of its labels
    version: str  # raised when the same label would give other numbers; part of a job's identity
    Settings: type  # frozen dataclass of what this family alone uses, each field followed by a sentence about it
    # A setting that came after runs were stored has the metadata madbench.jobs.NOT_AT_DEFAULT: then their ids stay.

    def parse(self, text: str) -> Any:
        """The label of the whole text, its name and colon included; a ``LabelError`` points at the fault."""

    def factors(self, label: Any) -> Mapping[str, str]:
        """What the label is, factor by factor, ``""`` for what it lacks; one that has no meaning for it is left out.

        Two labels differ in the factors that both have with different values. ``budget`` is ``matched`` or ``over``.
        Optional: ``factors_of_other(label)`` gives those of another family's label that has a place in this one, or
        None.
        """

    def neighbours(self, label: Any) -> Sequence[Any]:
        """Every label that differs from this one in exactly one factor."""

    def explain(self, label: Any) -> Sequence[Explanation]:
        """A row a letter, in the order of the label."""

    def solve(self, label: Any, size: Size, settings: Any) -> Allocation:
        """The ranks of the label at a size; a ``BudgetError`` where nothing fits."""

    def build(self, allocation: Allocation, settings: Any, path: str = "auto") -> nn.Module:
        """The causal mixer, (B, T, D) -> (B, T, D) for T up to ``max_len``, of exactly ``allocation.total`` parameters.

        It refuses what is no batch of sequences (:func:`madbench.mixers.inputs.check_sequences`).

        A family whose ``is_bidirectional`` is true takes ``causal=False`` too, where every row sees all tokens.
        Optional: ``step(x, cache, slide)`` decodes one token (B, D) to its row (B, D) and the next cache, None being
        the first; ``prefill(x, slide)`` a prompt (B, T, D) to its rows and the cache after it. ``paths`` are those it
        may be built with, ``resolve_path(batch, length)`` names the one that computes an input of this shape,
        ``allocation`` is what it was built from, ``probe(x)`` gives a :class:`madbench.mixers.probe.Probe` of x
        (B, T, D) for ``madbench inspect``. ``reference(x, rows)`` gives some rows (B, rows, D), or all, by loops in
        float64, with which ``madbench verify`` compares every path and its gradients. ``kernel_problem`` is why
        ``resolve_path`` passed over kernels that are wrong on this device, or empty; a run warns of it and records it.
        """

    # Optional: traits(label), what models, optimisers and suites have to know of its mixers; by default Traits().
    # Optional: effective(allocation, settings), those of the settings, a mapping, that change this mixer otherwise than
    # through its ranks; by default all that the label reads. Two settings that train the same are told by it.
    # Optional: preset_spelling(label), a text of it that begins with a preset's name, by which it is shown where
    # nothing else was typed; mixers, the labels of named mixers by name; for madbench ls families syntax, example,
    # and description, a sentence on what its mixers are, by default that of its module; needs, what they need of a
    # machine, such as "a CUDA GPU", for messages that suggest its labels.
    # Optional: text_of(value), the text of a label for a value that is none, such as a class, or None; identity(label),
    # what else decides a label's numbers, such as a hash of one module's source; begins(text), whether a label of its
    # begins with the text, name and colon included, by default one of labels(): else it may be another family's.
    # Optional: missing_package(), the name of a package that its mixers need and that cannot be imported here, or an
    # empty text: stored runs of its labels are then shown without their code.

    def checks(self, label: Any) -> Iterable[Check]:
        """What has to hold of its mixer; :mod:`madbench.mixers.checks` has what any mixer has to hold."""


class ListedFamily:
    """Neighbours in a family whose labels can be listed."""

    factors: Callable[[Any], Mapping[str, str]]
    labels: Callable[[], Iterable[Any]]

    def neighbours(self, label: Any) -> tuple[Any, ...]:
        """Every label that differs from this one in exactly one factor, by factor and then in their order."""
        others = ((other, self.factors(other)) for other in self.labels())
        return one_factor_apart(self.factors(label), others)


def one_factor_apart(mine: Mapping[str, str], others: Iterable[tuple[Any, Mapping[str, str]]]) -> tuple[Any, ...]:
    """The labels of ``others``, pairs of a label and its factors, that differ from ``mine`` in one; by factor."""
    neighbours_by_factor: dict[str, dict[Any, None]] = {name: {} for name in mine}
    for other, theirs in others:
        differing = [name for name in mine if theirs.get(name, mine[name]) != mine[name]]
        if len(differing) == 1:
            neighbours_by_factor[differing[0]][other] = None
    return tuple(other for of_factor in neighbours_by_factor.values() for other in of_factor)


def build(
    label: Any,
    d_model: int,
    max_len: int,
    *,
    n_head: int = 2,
    budget: Budget = "strict",
    path: str = "auto",
    causal: bool = True,
    **settings: Any,
) -> nn.Module:
    """The mixer that ``label`` names, (B, T, d_model) -> (B, T, d_model), T <= ``max_len``.

    Args:
        label: a label such as ``G-cg-q-12o`` or ``family:...`` of an installed family, or what it parses to.
        d_model: width; the budget is 4 d_model^2.
        max_len: longest sequence; the mixing tables of S/R/G have this many rows.
        n_head: heads, 2 in the paper for every label.
        budget: ``strict`` enforces the budget on every parameter, ``paper`` takes the ranks of the family's paper.
        path: how it is computed; of S/R/G see :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`.
        causal: whether a row sees the tokens up to its own, or all of them: of families with ``is_bidirectional`` only.
        settings: of the family alone; of S/R/G see :class:`madbench.mixers.srg.family.Settings`.

    Raises ``LabelError`` for a label that does not parse, ``BudgetError`` where no ranks meet the budget,
    ``ConfigError`` for a setting that the family does not have or take, ``TrainingError`` for a path that cannot
    compute this label.
    """
    if isinstance(label, str):  # what a caller wrote; a label of a stored job is parsed before it gets here
        trust.allow_typed(label)
    label, family, settings = _resolve(label, settings)
    if not (causal or getattr(family, "is_bidirectional", False)):
        raise ConfigError(
            f"{label} is causal: a row sees no later token; labels of {families_that_see_all()} also see all"
        )
    allocation = family.solve(label, _size(d_model, n_head, max_len, budget), settings)
    mixer = family.build(allocation, settings, path, **({} if causal else {"causal": False}))
    return attach(mixer, label_traits(label), label)


def families_that_see_all() -> str:
    """The families whose mixers can see all tokens, by the beginning of their labels."""
    able = (name for name, family in loaded_families().items() if getattr(family, "is_bidirectional", False))
    return ", ".join(f"{name}:" if name else "no prefix" for name in able) or "no family"


def solve(
    label: Any, d_model: int, n_head: int = 2, max_len: int = 1024, budget: Budget = "strict", **settings: Any
) -> Allocation:
    """The ranks of the mixer that :func:`build` would build, and what it costs; raises what ``build`` does."""
    label, family, settings = _resolve(label, settings)
    return family.solve(label, _size(d_model, n_head, max_len, budget), settings)


def label_traits(label: Any, family: Family | None = None) -> Traits:
    """What has to be known of the mixers of a label, as its family says it; by default that of a plain mixer.

    ``family`` is that of the label; the installed one if None.
    """
    family = family or family_of(label)
    traits = getattr(family, "traits", lambda _: Traits())(label)
    where = f"family {family.name!r}: traits of {str(label)!r}"
    if not isinstance(traits, Traits):
        raise FamilyError(f"{where}: expected madbench.mixers.Traits, got {type(traits).__name__}")
    setting_names = [field.name for field in fields(family.Settings)]
    for name in (*(traits.settings or ()), *traits.start_settings):
        if name not in setting_names:
            raise FamilyError(f"{where}: its family has no setting {name!r}{did_you_mean(name, setting_names)}")
    return traits


def own_settings(label: Any, settings: Any) -> dict[str, Any]:
    """The settings that identify this label, of its family's ``Settings``; a label does not read all of them."""
    read, later = used_settings(label), {field.name for field in fields(settings) if field.metadata == NOT_AT_DEFAULT}
    return {name: value for name, value in asdict(settings).items() if name in read or name not in later}


def used_settings(label: Any, family: Family | None = None) -> list[str]:
    """The settings of its family that decide something of the label's mixer, be it through its ranks.

    ``family`` is that of the label; the installed one if None.
    """
    label = as_label(label)
    family = family or family_of(label)
    names = [field.name for field in fields(family.Settings)]
    if not names:  # the traits of a user's module are those of its code, which is then not needed
        return []
    read = label_traits(label, family).settings
    return [name for name in names if read is None or name in read]


def effective_settings(
    allocation: Allocation, settings: Mapping[str, Any], family: Family | None = None
) -> dict[str, Any]:
    """The settings that change the mixer of an allocation otherwise than through its ranks.

    ``family`` is that of the allocation's label; the installed one if None.
    """
    family = family or family_of(allocation.label)
    read = {name: settings[name] for name in used_settings(allocation.label, family) if name in settings}
    effective = getattr(family, "effective", lambda _, read: read)
    return dict(effective(allocation, read))


def _size(*sizes: Any) -> Size:
    """The :class:`Size` of a caller's arguments, which may be NumPy's numbers."""
    return Size(*plain_values(sizes))


def _resolve(label: Any, values: dict[str, Any]) -> tuple[Any, Any, Any]:
    label, values = as_label(label), plain_values(values)
    family = family_of(label)
    settings = from_mapping(family.Settings, values, f"settings of {label}")
    own = own_settings(label, settings)
    usual = family.Settings()
    if unused := [name for name in values if name not in own and values[name] != getattr(usual, name)]:
        raise ConfigError(f"{unused[0]} has no effect on {str(label)!r}; settings of its mixer: {', '.join(own)}")
    return label, family, settings
