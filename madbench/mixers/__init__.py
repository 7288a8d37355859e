"""Sequence mixers by family: the protocol of a family, and the functions that turn a label into a module.

The S/R/G family has an empty name. Another family is a folder here with a ``family.py``, or an installed package with
an entry point of the group ``madbench.families``; ``examples/plugin`` is a complete example. A family can be imported
without torch.
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
    """The size for which every family solves its ranks. Raises ``BudgetError`` for invalid values."""

    d_model: int  # width; the budget is 4 d_model^2
    n_head: int
    max_len: int  # longest sequence
    budget: Budget = "strict"  # strict: all parameters count and the budget is enforced; paper: ranks of the paper

    def __post_init__(self) -> None:
        for name in ("d_model", "n_head", "max_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.budget not in get_args(Budget):
            raise BudgetError(f"budget {self.budget!r} is unknown{did_you_mean(str(self.budget), get_args(Budget))}")


class Allocation(Protocol):
    """The ranks and the cost of a mixer. Every count is exact for the built module.

    Optional members for ``madbench explain --cost``: ``formulas`` {term: (formula, tensors)}, ``widths`` {name: width
    of one head}, and ``paper_total``, the number of parameters that the family's paper counts.
    """

    label: Any
    size: Size
    terms: Mapping[str, int]  # parameters by term
    total: int  # parameters of the mixer, all of them
    target: int  # budget in parameters
    ratio: float  # total / target
    ranks: Mapping[str, int]  # ranks chosen by the budget

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a causal sequence of ``seq_len`` tokens. A multiply-add counts as two."""

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to a model's decoding cache, for numbers of ``bytes_per_element`` bytes."""


@dataclass(frozen=True)
class Check:
    """A measurable statement about a label's mixer. ``reason`` is set if it does not apply to this label."""

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


class Family(Protocol):
    """A family of mixers. A label is frozen and hashable, and its ``str`` is the canonical text.

    Loading a family with missing or invalid members is an error (:mod:`madbench.labels.protocol`). Optional members,
    besides those described below:

    - ``is_bidirectional``: True if its mixers can also see all tokens. Default: False.
    - ``labels()``: all labels, if they can be listed.
    - ``levels(label)``: names of the label's factor levels in contrasts. Default: its ``factors``.
    - ``factor_names``: display names of factors, by factor.
    - ``factor_order`` and ``level_order``: the order in which contrasts are listed.
    - ``names_code``: True if a label names code outside the family. The code is imported when the label is solved or
      built (:mod:`madbench.labels.trust`). Default: False.
    """

    name: str  # text before the colon of its labels
    version: str  # increased when the same label would give other numbers; part of a job's identity
    Settings: type  # frozen dataclass of the family's own settings, each field followed by a sentence about it
    # A setting that is added after runs were stored has the metadata madbench.jobs.NOT_AT_DEFAULT, which keeps ids.

    def parse(self, text: str) -> Any:
        """Parses the whole text, including name and colon. Raises ``LabelError`` that points at the error."""

    def factors(self, label: Any) -> Mapping[str, str]:
        """The label's factors by name. ``""`` means absent; a factor without meaning for the label is left out.

        Two labels differ in the factors that both have, with different values. ``budget`` is ``matched`` or ``over``.
        Optional: ``factors_of_other(label)`` returns the factors of another family's label in this family's terms, or
        None.
        """

    def neighbours(self, label: Any) -> Sequence[Any]:
        """All labels that differ from this one in exactly one factor."""

    def explain(self, label: Any) -> Sequence[Explanation]:
        """One row per letter, in the order of the label."""

    def solve(self, label: Any, size: Size, settings: Any) -> Allocation:
        """Solves the label's ranks for a size. Raises ``BudgetError`` if nothing fits."""

    def build(self, allocation: Allocation, settings: Any, path: str = "auto") -> nn.Module:
        """Builds the causal mixer (B, T, D) -> (B, T, D), T <= ``max_len``, with ``allocation.total`` parameters.

        It rejects input that is no batch of sequences (:func:`madbench.mixers.inputs.check_sequences`). If the family's
        ``is_bidirectional`` is true, it also accepts ``causal=False``: then every row sees all tokens.

        Optional members of the mixer:

        - ``step(x, cache, slide)`` decodes one token (B, D). It returns the row (B, D) and the next cache. The first
          cache is None.
        - ``prefill(x, slide)`` decodes a prompt (B, T, D). It returns the rows and the cache after the prompt.
        - ``paths`` are the accepted values of ``path``. ``resolve_path(batch, length)`` names the path that computes an
          input of this shape.
        - ``allocation`` is the allocation that it was built from.
        - ``probe(x)`` returns a :class:`madbench.mixers.probe.Probe` of x (B, T, D) for ``madbench inspect``.
        - ``reference(x, rows)`` computes some rows (B, rows, D), or all rows, with loops in float64. The verb
          ``madbench verify`` compares every path and its gradients with it.
        - ``kernel_problem`` is the reason why ``resolve_path`` skipped kernels that are wrong on this device, or empty.
          A run warns of it and records it.
        """

    # Optional: traits(label), the properties of its mixer for models, optimizers and suites. Default: Traits().
    # Optional: effective(allocation, settings), the part of the mapping ``settings`` that changes this mixer other than
    # through its ranks. Default: all settings that the label reads. It shows which settings train the same model.
    # Optional: preset_spelling(label), a spelling of the label that begins with a preset's name, if none was typed
    # no other; mixers, the labels of named mixers, by name. For madbench ls families: syntax, example, and description,
    # a sentence on its mixers (default: from its module). needs, the required hardware, such as "a CUDA GPU", for
    # messages that suggest its labels.
    # Optional: text_of(value), the label text for a value such as a class, or None; identity(label), anything else that
    # affects the label's numbers, such as a hash of one module's source; begins(text), True if some label of the family
    # begins with the text, including name and colon (default: looks at labels()). If not, the text may be a label of
    # another family.
    # Optional: missing_package(), the name of a required package that cannot be imported here, or an empty text. The
    # stored runs of its labels are then shown without their code.

    def checks(self, label: Any) -> Iterable[Check]:
        """The checks of the label's mixer. :mod:`madbench.mixers.checks` has the checks that apply to every mixer."""


class ListedFamily:
    """A mixin that finds neighbours in a family whose labels can be listed."""

    factors: Callable[[Any], Mapping[str, str]]
    labels: Callable[[], Iterable[Any]]

    def neighbours(self, label: Any) -> tuple[Any, ...]:
        """All labels that differ from this one in exactly one factor, ordered by factor and then as listed."""
        others = ((other, self.factors(other)) for other in self.labels())
        return one_factor_apart(self.factors(label), others)


def one_factor_apart(mine: Mapping[str, str], others: Iterable[tuple[Any, Mapping[str, str]]]) -> tuple[Any, ...]:
    """Returns those of ``others``, pairs of label and factors, that differ from ``mine`` in one factor; by factor."""
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
    """Builds the mixer of ``label``, (B, T, d_model) -> (B, T, d_model) with T <= ``max_len``.

    Args:
        label: a label such as ``G-cg-q-12o`` or ``family:...`` of an installed family, as text or parsed.
        d_model: width; the budget is 4 d_model^2.
        max_len: longest sequence; the mixing tables of S/R/G have this many rows.
        n_head: number of heads, 2 in the paper for every label.
        budget: ``strict`` enforces the budget on every parameter, ``paper`` uses the ranks of the family's paper.
        path: computation path; for S/R/G see :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`.
        causal: True if a row sees the tokens up to its own, False if it sees all tokens. False requires a family with
            ``is_bidirectional``.
        settings: the family's own settings; for S/R/G see :class:`madbench.mixers.srg.family.Settings`.

    Raises ``LabelError`` for an invalid label, ``BudgetError`` if no ranks meet the budget, ``ConfigError`` for a
    setting that the family or label does not have, and ``TrainingError`` for a path that cannot compute this label.
    """
    if isinstance(label, str):  # typed by the caller; labels of stored jobs arrive parsed
        trust.allow_typed(label)
    label, family, settings = _resolve(label, settings)
    if not (causal or getattr(family, "is_bidirectional", False)):
        raise ConfigError(
            f"{label} is causal: a row sees no later token; labels that can see all tokens: {families_that_see_all()}"
        )
    allocation = family.solve(label, _size(d_model, n_head, max_len, budget), settings)
    mixer = family.build(allocation, settings, path, **({} if causal else {"causal": False}))
    return attach(mixer, label_traits(label), label)


def families_that_see_all() -> str:
    """The families whose mixers can see all tokens, as a list of label prefixes."""
    able = (name for name, family in loaded_families().items() if getattr(family, "is_bidirectional", False))
    return ", ".join(f"{name}:" if name else "no prefix" for name in able) or "no family"


def solve(
    label: Any, d_model: int, n_head: int = 2, max_len: int = 1024, budget: Budget = "strict", **settings: Any
) -> Allocation:
    """Returns the ranks and the cost of the mixer that :func:`build` would build. Raises the same errors."""
    label, family, settings = _resolve(label, settings)
    return family.solve(label, _size(d_model, n_head, max_len, budget), settings)


def label_traits(label: Any, family: Family | None = None) -> Traits:
    """The traits of a label's mixers, from its family. Default: those of a plain mixer.

    ``family`` is the label's family. If None, it is looked up.
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
    """The settings that identify a label. A newer setting counts only if the label uses it."""
    read, later = used_settings(label), {field.name for field in fields(settings) if field.metadata == NOT_AT_DEFAULT}
    return {name: value for name, value in asdict(settings).items() if name in read or name not in later}


def used_settings(label: Any, family: Family | None = None) -> list[str]:
    """The names of the family's settings that affect the label's mixer, directly or through its ranks.

    ``family`` is the label's family. If None, it is looked up.
    """
    label = as_label(label)
    family = family or family_of(label)
    names = [field.name for field in fields(family.Settings)]
    if not names:  # the traits of a user's module need its code, which is not imported for this
        return []
    read = label_traits(label, family).settings
    return [name for name in names if read is None or name in read]


def effective_settings(
    allocation: Allocation, settings: Mapping[str, Any], family: Family | None = None
) -> dict[str, Any]:
    """The settings that change the mixer of an allocation other than through its ranks.

    ``family`` is the family of the allocation's label. If None, it is looked up.
    """
    family = family or family_of(allocation.label)
    read = {name: settings[name] for name in used_settings(allocation.label, family) if name in settings}
    effective = getattr(family, "effective", lambda _, read: read)
    return dict(effective(allocation, read))


def _size(*sizes: Any) -> Size:
    """The :class:`Size` of a caller's arguments. NumPy numbers are accepted."""
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
