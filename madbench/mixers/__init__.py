"""Sequence mixers by family: the interface of a family, and the functions that turn a label into a module.

Labels of the S/R/G family have no prefix. Every other family is a subpackage with a ``family.py``, or a package with an
entry point of the group ``madbench.families``; ``examples/plugin`` is a complete example. A family can be imported
without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from madbench.config import from_mapping, plain_values
from madbench.errors import BudgetError, ConfigError, FamilyError, UnknownStateError, did_you_mean
from madbench.jobs import NOT_AT_DEFAULT, Budget
from madbench.labels import Explanation, Label, as_label, family_of, loaded_families, trust
from madbench.labels.family import Allocation, Check, Family, Layer, ListedFamily, LoadedFamily, Size, one_factor_apart
from madbench.labels.traits import Traits
from madbench.mixers.traits import attach

if TYPE_CHECKING:
    from torch import nn

    from madbench.mixers.mixer import Mixer

__all__ = [
    "Allocation", "Check", "Explanation", "Family", "Layer", "ListedFamily", "LoadedFamily", "Size", "Traits", "build",
    "families_that_see_all", "label_traits", "one_factor_apart", "own_settings", "solve", "state_size",
]  # fmt: skip


def build(
    label: str | Label,
    d_model: int,
    max_len: int,
    *,
    n_head: int = 2,
    budget: Budget = "strict",
    path: str = "auto",
    causal: bool = True,
    layer: Layer = Layer(),
    **settings: Any,
) -> Mixer:
    """Build the mixer of ``label``: a module that maps (B, T, d_model) to (B, T, d_model), for T <= ``max_len``.

    Args:
        label: a label such as ``G-cg-q-12o``, or ``family:...`` with the name of an installed family, as text or
            parsed.
        d_model: width of the input and the output. A budget in parameters is 4 d_model^2.
        max_len: length of the longest sequence in tokens; the mixing tables of S/R/G have this many rows.
        n_head: number of heads. The paper of S/R/G uses 2 for every label.
        budget: ``strict`` chooses ranks so that all parameters fit the budget, and ``paper`` uses the ranks of the
            family's paper. ``flops`` and ``state`` choose ranks that match the FLOPs per token, or the decoding state,
            of softmax attention at ``max_len`` tokens.
        path: name of the implementation that computes the output, such as ``dense``. ``auto`` chooses one. For S/R/G
            see :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`.
        causal: True if an output row depends only on tokens up to its own, False if it depends on all tokens. False
            requires a family with ``is_bidirectional``.
        layer: position of the mixer among the blocks of its model. Only some families use it.
        settings: the family's own settings; for S/R/G see :class:`madbench.mixers.srg.family.Settings`.

    Raises ``LabelError`` for an invalid label, and ``BudgetError`` for an invalid size, or if no ranks meet the budget.
    Raises ``ConfigError`` for an unknown setting, for a changed setting without effect on the label, and if ``causal``
    is False but the family is always causal. Raises ``TrainingError`` for a path that cannot compute this label.
    """
    if isinstance(label, str):  # typed by the caller; labels of stored jobs arrive parsed
        trust.allow_typed(label)
    label, family, own = _resolve(label, settings)
    if not (causal or family.is_bidirectional):
        raise ConfigError(f"{label} is causal: a row sees no later token; {families_that_see_all()} can see all tokens")
    allocation = _solve(label, family, _size(d_model, n_head, max_len, budget, layer), own)
    build_mixer: Callable[..., nn.Module] = family.build  # only a bidirectional family accepts ``causal``
    mixer = build_mixer(allocation, own, path, **({} if causal else {"causal": False}))
    return attach(mixer, label_traits(label), label)


def families_that_see_all() -> str:
    """Name the families that accept ``causal=False``, as a text for messages such as ``labels of S/R/G``.

    The text is ``labels of no family`` if no family accepts it.
    """
    able = (name for name, family in loaded_families().items() if family.is_bidirectional)
    return f"labels of {' and '.join(f'{name}:' if name else 'S/R/G' for name in able) or 'no family'}"


def solve(
    label: str | Label,
    d_model: int,
    n_head: int = 2,
    max_len: int = 1024,
    budget: Budget = "strict",
    *,
    layer: Layer = Layer(),
    **settings: Any,
) -> Allocation:
    """Return the allocation (ranks and costs) of the mixer that :func:`build` would build for the same arguments.

    Raises ``LabelError``, ``BudgetError`` and ``ConfigError`` as :func:`build` does.
    """
    label, family, own = _resolve(label, settings)
    return _solve(label, family, _size(d_model, n_head, max_len, budget, layer), own)


def _solve(label: Label, family: LoadedFamily, size: Size, settings: Any) -> Allocation:
    """The allocation of a label. Raises ``BudgetError`` if no ranks meet the budget in parameters, FLOPs or state."""
    rule = size.rule
    if rule.quantity == "parameters":
        return family.solve(label, size, settings)
    if rule.quantity not in family.matches:
        raise BudgetError(
            f"{label}: its family chooses ranks by parameters, and cannot match {rule.name}; use --match parameters"
        )
    allocation = family.solve(label, size, settings)
    is_hybrid = label not in _parts(label, family)  # its mixers are checked one by one
    is_checked = not is_hybrid and family.factors(label).get("budget") != "over"
    if is_checked and rule.room(allocation) < 0:
        amount, target = rule.amount(allocation), rule.target(allocation)
        raise BudgetError(
            f"{label} has {amount:,.0f} {rule.name} at d_model {size.d_model}, max_len {size.max_len}, where softmax "
            f"attention has {target:,.0f}; use a shorter max_len, or --match parameters"
        )
    return allocation


def label_traits(label: str | Label, family: LoadedFamily | None = None) -> Traits:
    """The traits that a family states for the mixers of a label. Default traits if the family states none.

    ``family`` is the label's family. If None, it is looked up. Raises ``FamilyError`` if the family's method ``traits``
    does not return :class:`Traits`, or returns traits that name a setting that the family does not have.
    """
    family = family or family_of(label)
    traits = family.traits(label)
    where = f"family {family.name!r}: traits of {str(label)!r}"
    if not isinstance(traits, Traits):
        raise FamilyError(f"{where}: expected madbench.mixers.Traits, got {type(traits).__name__}")
    setting_names = [field.name for field in fields(family.Settings)]
    for name in (*(traits.settings or ()), *traits.start_settings):
        if name not in setting_names:
            raise FamilyError(f"{where}: its family has no setting {name!r}{did_you_mean(name, setting_names)}")
    return traits


def own_settings(label: str | Label, settings: Any) -> dict[str, Any]:
    """The settings that are part of the identity of a label's jobs: name to value.

    ``settings`` is an instance of the ``Settings`` of the label's family. A field with the metadata ``NOT_AT_DEFAULT``
    is included only if the label's mixer uses it. All other fields are included.
    """
    read, later = used_settings(label), {field.name for field in fields(settings) if field.metadata == NOT_AT_DEFAULT}
    return {name: value for name, value in asdict(settings).items() if name in read or name not in later}


def used_settings(label: str | Label, family: LoadedFamily | None = None) -> list[str]:
    """The names of the settings that affect the label's mixer, directly or through its ranks.

    They are fields of the ``Settings`` of the label's family. ``family`` is this family. If None, it is looked up.
    """
    label = as_label(label)
    family = family or family_of(label)
    names = [field.name for field in fields(family.Settings)]
    if not names:  # a user's module has no settings, and its traits would need an import of its code
        return []
    parts = _parts(label, family)
    if label not in parts:  # its traits may need the code of users' modules as well
        read_by_parts = {name for part in parts for name in used_settings(part)}
        return [name for name in names if name in read_by_parts]
    read = label_traits(label, family).settings
    return [name for name in names if read is None or name in read]


def _parts(label: Label, family: LoadedFamily) -> tuple[Label, ...]:
    """The distinct labels that a label combines. The label itself if its family does not combine labels."""
    return tuple(dict.fromkeys(family.blocks(label, family.block_period(label))))


def state_size(allocation: Allocation, seq_len: int) -> int:
    """The size of a mixer's decoding state after ``seq_len`` tokens of one sequence, as a count of numbers.

    Raises ``UnknownStateError`` if the label's family or the user's module does not state this size.
    """
    stated: Callable[[int], int] | None = getattr(allocation, "state", None)
    if stated is None:
        raise UnknownStateError(
            f"{allocation.label}: its family does not state what decoding carries from token to token; the family's "
            "allocation can have a method state(seq_len)"
        )
    return stated(seq_len)


def effective_settings(
    allocation: Allocation, settings: Mapping[str, Any], family: LoadedFamily | None = None
) -> dict[str, Any]:
    """The part of ``settings`` that still changes a mixer when its ranks are given by ``allocation``: name to value.

    Names in ``settings`` that the label does not use are left out. ``family`` is the family of the allocation's label.
    If None, it is looked up.
    """
    family = family or family_of(allocation.label)
    read = {name: settings[name] for name in used_settings(allocation.label, family) if name in settings}
    return dict(family.effective(allocation, read))


def _size(*sizes: Any) -> Size:
    """The :class:`Size` with these values of its fields, in order. NumPy numbers become Python numbers."""
    return Size(*plain_values(sizes))


def _resolve(label: str | Label, values: dict[str, Any]) -> tuple[Label, LoadedFamily, Any]:
    """Return the parsed label, its family, and the family's ``Settings`` with these values.

    Raises ``ConfigError`` for an unknown setting, and for a changed setting that has no effect on the label.
    """
    label, values = as_label(label), plain_values(values)
    family = family_of(label)
    settings = from_mapping(family.Settings, values, f"settings of {label}")
    own = own_settings(label, settings)
    usual = family.Settings()
    if unused := [name for name in values if name not in own and values[name] != getattr(usual, name)]:
        raise ConfigError(f"{unused[0]} has no effect on {str(label)!r}; settings of its mixer: {', '.join(own)}")
    return label, family, settings
