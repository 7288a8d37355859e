"""The family of hybrids. A label is a pattern of labels of other families, which repeats over a model's layers."""

from __future__ import annotations

import dataclasses
import functools
import string
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from madbench.errors import ConfigError, LabelError, MadbenchError
from madbench.jobs import NOT_AT_DEFAULT
from madbench.labels import Explanation, Label, families, family_of, parse
from madbench.labels.diagnosis import point_at
from madbench.labels.patterns import PREFIX, is_pattern, join_pattern, period, split_pattern
from madbench.mixers import Check, Family, Size, Traits, effective_settings, label_traits, used_settings
from madbench.mixers.hybrid.allocation import HybridAllocation, HybridLabel
from madbench.mixers.sequence import solve_blocks

if TYPE_CHECKING:
    from torch import nn

MEASURED = Size(d_model=64, n_head=2, max_len=64, budget="paper")  # size at which the growth of a cache is measured


class HybridFamily(Family[Any, HybridAllocation]):
    """The family of hybrids. Properties of a label are computed from the labels of its layers."""

    name = "hybrid"
    version = "1"
    matches = ("flops", "state")
    description = "Different mixers in the layers of one model: labels of other families, in a pattern that repeats."
    syntax = "[count x]label{/[count x]label}[/...]"
    example = "3xKDA/S-p"
    factor_names: typing.ClassVar = {"pattern": "order of mixers"} | {
        letter: f"mixer {letter}" for letter in string.ascii_lowercase
    }

    @functools.cached_property
    def Settings(self) -> type:
        """A dataclass with the settings of all other families.

        A setting enters a run's id only if a layer uses it and it differs from its default.
        """
        own: dict[str, tuple[str, Any, Any]] = {}
        for settings in _settings_of_others():
            kinds = typing.get_type_hints(settings)
            for field in dataclasses.fields(settings):
                settings_field = dataclasses.field(default=field.default, metadata=NOT_AT_DEFAULT)
                own.setdefault(field.name, (field.name, kinds[field.name], settings_field))
        return dataclasses.make_dataclass("Settings", own.values(), frozen=True)

    def parse(self, text: str) -> Label:
        """Parse a pattern such as ``3xKDA/S-p``. If all layers have the same label, return this label.

        Raises ``LabelError`` for a text that is not a pattern, and for an invalid label in the pattern.
        """
        text = text.removeprefix(PREFIX)
        if not is_pattern(text):
            raise LabelError(point_at(text, 0, "expected labels separated by '/', as in 3xKDA/S-p"))
        parts, is_cut = split_pattern(text)
        layers: list[Label] = []
        for part in parts:
            try:
                layers += [parse(part.text)] * part.count
            except LabelError as error:
                first, _, second = str(error).partition("\n")
                at, caret, problem = second.partition("^")
                offset = max(0, len(at) - len("label '")) if caret and first.startswith("label '") else 0
                problem = problem.strip() if caret else first
                raise LabelError(point_at(text, part.position + min(offset, len(part.text)), problem)) from None
        shortest = period(layers)
        return shortest[0] if len(shortest) == 1 else HybridLabel(shortest, is_cut)

    def blocks(self, label: HybridLabel, count: int) -> tuple[Label, ...]:
        """The labels of the mixers of a model with ``count`` layers, in order.

        Raises ``ConfigError`` if the pattern does not fit this number.
        """
        return label.at(count)

    def block_period(self, label: HybridLabel) -> int:
        """The number of layers after which the mixers repeat: the length of the pattern."""
        return len(label.layers)

    def preset_spelling(self, label: HybridLabel) -> str:
        """The text of the pattern, in which each label is spelled with a preset if one fits.

        A preset is a name for several letters, such as ``cd:gla``.
        """
        return join_pattern([family_of(part).preset_spelling(part) for part in label.layers], label.is_cut)

    def factors(self, label: HybridLabel) -> dict[str, str]:
        """The factors of a label by name: ``pattern``, and a letter a, b, ... for each different mixer.

        The value of a letter is the label of its mixer. The value of ``pattern`` is the pattern, written with letters
        in place of labels. Mixers whose decoding state has a fixed size get the first letters.
        """
        kinds = _ordered(label.kinds)
        letters = {kind: _letter(index) for index, kind in enumerate(kinds)}
        pattern = str(HybridLabel(tuple(_Letter(letters[layer]) for layer in label.layers), label.is_cut))
        return {"pattern": pattern} | {letters[kind]: str(kind) for kind in kinds}

    def factors_of_other(self, other: Label) -> dict[str, str]:
        """The factors of a model that has the label ``other`` in all layers, for comparisons with hybrids.

        ``other`` is the value of the factor ``b`` if its decoding cache grows with the text, else of the factor ``a``.
        The value of the factor ``pattern`` is the name of this factor, ``b`` or ``a``.
        """
        letter = "b" if _grows(other) else "a"
        return {"pattern": letter, letter: str(other)}

    def neighbors(self, label: HybridLabel) -> tuple[HybridLabel, ...]:
        """All hybrids that differ from ``label`` in one mixer, which is replaced wherever it occurs.

        The new mixer is a neighbor of the old one in its own family: a label that differs in one factor. Two hybrids
        must differ in one factor, too. A replacement that changes the letters of the mixers is therefore left out,
        because it changes the factor ``pattern`` as well. An example is a mixer with a growing cache in place of one
        whose state has a fixed size: it gets a later letter.
        """
        mine = self.factors(label)
        changed: dict[HybridLabel, None] = {}
        for kind in label.kinds:
            for other in family_of(kind).neighbors(kind):
                if other not in label.kinds:
                    layers = (other if layer == kind else layer for layer in label.layers)
                    changed[HybridLabel(tuple(layers), label.is_cut)] = None
        others = ((other, self.factors(other)) for other in changed)
        return tuple(other for other, theirs in others if sum(theirs[name] != mine[name] for name in mine) == 1)

    def explain(self, label: HybridLabel) -> list[Explanation]:
        """The explanation of a label: a row for the pattern, and then several rows for each mixer.

        The first row of a mixer lists its layers. The rows that its own family gives for its label follow.
        """
        length = len(label.layers)
        what = "The last repetition may be incomplete." if label.is_cut else f"The depth is a multiple of {length}."
        rows = [
            Explanation(str(label), "hybrid", f"A pattern of {length} layers that repeats. {what}", "", "this label")
        ]
        for kind in label.kinds:
            word = "" if _names_code(kind) else f": {_layer_type(kind)}"
            rows.append(Explanation(str(kind), f"{label.numbers(kind)} of {length}{word}", "", "", ""))
            rows += family_of(kind).explain(kind)
        return rows

    def traits(self, label: HybridLabel) -> Traits:
        """The traits of the label as a whole, combined from the traits of its mixers.

        A trait such as ``has_heads`` is true if it is true for at least one mixer.
        """
        each = [label_traits(kind) for kind in label.kinds]
        used = {name for kind in label.kinds for name in used_settings(kind)}
        return Traits(
            settings=tuple(sorted(used)),
            start_settings=tuple(sorted(used & {name for traits in each for name in traits.start_settings})),
            shorter_settings=tuple(sorted(used & {name for traits in each for name in traits.shorter_settings})),
            keeps_init=tuple(dict.fromkeys(name for traits in each for name in traits.keeps_init)),
            has_heads=any(traits.has_heads for traits in each),
            has_tables=any(traits.has_tables for traits in each),
            trains_alone=any(traits.trains_alone for traits in each),
        )

    def effective(self, allocation: HybridAllocation, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``settings`` that still changes a mixer of the pattern when the ranks of all mixers are given.

        A key of the result is the label of a mixer, a space and the name of a setting that changes this mixer.
        """
        effective: dict[str, Any] = {}
        for kind, _ in allocation.kinds:
            own = {name: settings[name] for name in used_settings(kind.label) if name in settings}
            effective |= {f"{kind.label} {name}": value for name, value in effective_settings(kind, own).items()}
        return effective

    def solve(self, label: HybridLabel, size: Size, settings: Any) -> HybridAllocation:
        """Choose the ranks of the layers of one pattern. Raises ``BudgetError`` if a mixer cannot meet its budget."""
        own = {name: getattr(settings, name) for kind in label.kinds for name in used_settings(kind)}
        sizes = size.d_model, size.n_head, size.max_len, size.budget
        whole = HybridLabel(label.layers)
        return HybridAllocation(solve_blocks(whole, len(label.layers), *sizes, **own).blocks, label)

    def build(self, allocation: HybridAllocation, settings: Any, path: str = "auto") -> nn.Module:
        """Raise ``ConfigError``, because a hybrid is not a single mixer."""
        raise ConfigError(
            f"{allocation.label} has several mixers, one per layer; name one of them, or build a model: "
            "madbench.mixers.sequence.build_blocks"
        )

    def checks(self, label: HybridLabel) -> Iterable[Check]:
        """The checks of each mixer of the pattern. A check's name begins with the mixer's label."""
        for kind in label.kinds:
            for check in family_of(kind).checks(kind):
                yield dataclasses.replace(check, name=f"{kind}: {check.name}")


def _settings_of_others() -> Iterator[type]:
    """Yield the ``Settings`` class of each other family that can be loaded."""
    for name in families():
        if name != HybridFamily.name:
            with suppress(LabelError):
                yield family_of(f"{name}:" if name else "S").Settings


@dataclasses.dataclass(frozen=True)
class _Letter:
    """A letter in place of a mixer's label, in the value of the factor ``pattern`` (:meth:`HybridFamily.factors`)."""

    letter: str

    def __str__(self) -> str:
        return self.letter


def _letter(index: int) -> str:
    """The letter of the mixer with this index: a, b, ..., z, a2, b2, ..."""
    round_, position = divmod(index, len(string.ascii_lowercase))
    return string.ascii_lowercase[position] + (str(round_ + 1) if round_ else "")


def _names_code(label: Label) -> bool:
    return family_of(label).names_code


def _ordered(kinds: Iterable[Label]) -> list[Label]:
    return sorted(kinds, key=lambda kind: (_grows(kind), str(kind)))


def _grows(label: Label) -> bool:
    """True if the label's mixer keeps keys and values of tokens for decoding, so that its cache grows.

    False for users' code, which is not imported here.
    """
    return _cache_bytes(label, MEASURED.max_len) > 0


def _layer_type(label: Label) -> str:
    """The value for a layer with this label in the list ``layer_types`` of a transformers config.

    It is ``linear_attention``, ``sliding_attention`` or ``full_attention``.
    """
    if not _grows(label):
        return "linear_attention"
    is_limited = _cache_bytes(label, 2 * MEASURED.max_len) == _cache_bytes(label, MEASURED.max_len)
    return "sliding_attention" if is_limited else "full_attention"


@functools.cache
def _cache_bytes(label: Label, length: int) -> float:
    """Bytes of the decoding cache after ``length`` tokens. Zero for users' code and if no ranks meet the budget."""
    family = family_of(label)
    if _names_code(label):
        return 0.0
    try:
        allocation = family.solve(label, dataclasses.replace(MEASURED, max_len=length), family.Settings())
        return length * allocation.state_bytes_per_token()
    except MadbenchError:
        return 0.0


FAMILY = HybridFamily()
