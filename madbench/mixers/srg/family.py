"""The S/R/G family (HyperMLP), with labels such as G-cg-q-12o."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from madbench.config import check_at_least
from madbench.errors import ConfigError, LabelError
from madbench.jobs import NOT_AT_DEFAULT
from madbench.labels import Explanation
from madbench.mixers import Check, Family, Size, Traits, one_factor_apart
from madbench.mixers.srg.allocation import ADAPTER_OUTPUTS, GROUPS, SrgAllocation
from madbench.mixers.srg.budget import solve
from madbench.mixers.srg.diagnosis import InvalidLabel
from madbench.mixers.srg.grammar import (
    ALIASES,
    FACTOR_NAMES,
    FACTORS,
    LETTERS,
    MATCHED,
    NO_POSITIONS,
    POSITION_LAYOUT,
    SYNTAX,
    WIDENED,
    SrgLabel,
    from_letters,
)
from madbench.mixers.srg.listing import every_label, neighbors

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP


@dataclass(frozen=True)
class Settings:
    """Settings of S/R/G mixers besides their label and size."""

    mix_rank: int = 16
    """Rank r of the mixing matrices R(1) and R(2). The strict budget may lower it."""
    rank_multiple: int = 1
    """The budget solver chooses multiples of this number as widths of heads."""
    rope: Literal["rotation", "mispaired"] = "rotation"
    """rotation: true RoPE; mispaired: angles of half-split pairs on interleaved pairs, as in the paper's code."""
    rope_share: float = field(default=1.0, metadata=NOT_AT_DEFAULT)
    """Labels with p: share of each head's channels that RoPE rotates, from the first on; at least one pair."""
    rope_order: Literal["before_gate", "after_gate"] = field(default="before_gate", metadata=NOT_AT_DEFAULT)
    """Labels with p and g: RoPE before the QK gate (paper), or after it, so that scores depend on offsets alone."""
    position_rows: Literal["from_start", "from_end"] = field(default="from_start", metadata=NOT_AT_DEFAULT)
    """Mixing without o: short inputs use the first rows of the tables, or the last rows as in the paper's code."""
    gates: Literal["both", "qk", "vo"] = field(default="both", metadata=NOT_AT_DEFAULT)
    """Labels with g: the sides of the mixer, QK, VO or both, that the current token gates."""
    registers: int = field(default=4, metadata=NOT_AT_DEFAULT)
    """Labels with k: number of learned rows before the tokens."""
    register_place: Literal["first", "last"] = field(default="first", metadata=NOT_AT_DEFAULT)
    """Labels with k and mixing: registers have the first slots of a row, or the slots behind its last token."""
    adapter_rank: int = field(default=4, metadata=NOT_AT_DEFAULT)
    """Labels with a: rank of the low-rank matrices that are added to W_v and W_o."""
    window: int = field(default=8, metadata=NOT_AT_DEFAULT)
    """Labels with w: number of newest tokens that a token sees, itself included."""
    kv_heads: int = field(default=1, metadata=NOT_AT_DEFAULT)
    """Labels with m: heads of keys and values, a divisor of n_head. 1 is MQA; with n_head, m has no effect."""
    differential: Literal["v1", "v2"] = field(default="v1", metadata=NOT_AT_DEFAULT)
    """Labels with D: v1 as in Ye et al. 2024; v2: lambda per head and token, shared keys, no norm (Microsoft 2026)."""
    lambda_init: float = field(default=0.8, metadata=NOT_AT_DEFAULT)
    """D, differential=v1: initial factor of the softmax that is subtracted; at least 0 and below 1."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "mix_rank", "rank_multiple", "registers", "adapter_rank", "window", "kv_heads")
        if not 0 < self.rope_share <= 1:
            raise ConfigError(f"rope_share must be above 0 and at most 1, got {self.rope_share}")
        if not 0 <= self.lambda_init < 1:
            raise ConfigError(f"lambda_init must be at least 0 and below 1, got {self.lambda_init}")


_LEVELS_OF = {"q": ("v", "q"), "1": ("1", "1o"), "2": ("2", "2o")}
LEVELS = ("", *dict.fromkeys(level for row in LETTERS for level in _LEVELS_OF.get(row.letter, (row.letter,))))
"""All levels that factors of labels can have, as in :meth:`SrgFamily.levels`. The empty text stands for an absent
letter.

Their order decides the sign of a contrast, which is the gain of the later of two levels over the earlier one.
"""


if TYPE_CHECKING:
    OwnSettings: TypeAlias = Settings  # in the family, its attribute hides this name


class SrgFamily(Family[SrgLabel, SrgAllocation]):
    """The family of S/R/G labels, which have no prefix."""

    name = ""
    version = "1"
    is_bidirectional = True
    matches = ("flops", "state")
    Settings = Settings
    mixers: ClassVar = {name: name for name in ALIASES}
    description = "Attention read as a two-layer network made of the tokens, with one letter for each part (HyperMLP)."
    syntax = SYNTAX
    example = "G-cg-q-12o"
    labels = staticmethod(every_label)
    factor_names, factor_order, level_order = FACTOR_NAMES, FACTORS, LEVELS

    def parse(self, text: str) -> SrgLabel:
        """Parse a label, or an alias such as ``HyperMLP``, which is accepted in upper or lower case.

        Raises ``InvalidLabel`` for any other text, with a message that points at the mistake.
        """
        text = next((label for name, label in ALIASES.items() if name.lower() == text.lower()), text)
        with suppress(LabelError):
            if str(label := from_letters(text)) == text:
                return label
        raise InvalidLabel(text)

    def factors(self, label: SrgLabel) -> dict[str, str]:
        """The letter of the label for each factor. Empty if the label has no letter for the factor.

        Two values are words: ``layout`` is ``position`` or ``lag``, and ``budget`` is ``matched`` or ``over``. Labels
        with ``!`` have no factor ``rank``, and labels without mixing have no factor ``layout``. ``G-cg-q-12o`` and
        ``G-cg-12o!`` therefore differ in ``budget`` alone.
        """
        letters = dict.fromkeys(FACTORS, "") | {row.factor: row.letter for row in label.letters}
        letters |= {"layout": label.layout, "budget": "over" if label.over else "matched"}
        absent = {"rank" if label.over else "", "" if label.has_mixing else "layout"}
        return {name: value for name, value in letters.items() if name not in absent}

    def neighbors(self, label: SrgLabel) -> tuple[SrgLabel, ...]:
        """All labels that differ from ``label`` in one factor, ordered by factor and then as in :meth:`labels`."""
        others = ((other, self.factors(other)) for other in neighbors(label))
        return one_factor_apart(self.factors(label), others)

    def levels(self, label: SrgLabel) -> dict[str, str]:
        """The level of the label in each of its :meth:`factors`, as tables of contrasts show it.

        A level is a letter, or empty if the label has no letter for the factor. In the lag layout, the levels of
        ``mix1`` and ``mix2`` are ``1o`` and ``2o``. The level of ``budget`` is ``q``, ``v``, ``!`` or empty.
        """
        letters = self.factors(label) | {"budget": "!" if label.over else label.rank}
        if label.has_mixing:
            lag = "o" if label.layout == "lag" else ""
            letters |= {name: letters[name] + lag for name in ("mix1", "mix2") if letters[name]} | {"layout": lag}
        return letters

    def explain(self, label: SrgLabel) -> list[Explanation]:
        """Explanations of a label: one per letter, in the order of the label, then those of its other properties.

        The other properties follow from letters that the label does not have, such as the position layout.
        """
        letters = {row.letter for row in label.letters}
        rows = []
        for row in label.letters:
            own = Explanation(row.letter, row.name, row.what, row.equation, row.source)
            rows.append(next((other for letter, other in row.beside if letter in letters), own))
        if label.has_mixing and label.layout == "position":
            rows.append(POSITION_LAYOUT)
        if not (label.rope or label.conv or label.has_mixing):
            rows.append(NO_POSITIONS)
        if not (label.rank or label.over):
            rows.append(WIDENED if label.shared_kv else MATCHED)
        return rows

    def effective(self, allocation: SrgAllocation, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``settings`` that still changes the mixer when its ranks are fixed, by name.

        Settings without effect are left out: ``rope`` with a single pair of rotated channels, ``rope_share`` with a
        single pair of channels, ``rope_order`` without a QK gate, and ``lambda_init`` in DIFF V2. ``rope_share`` is
        replaced by the exact share of rotated channels, so that values that rotate the same channels are equal.
        """
        without_effect = {"mix_rank", "rank_multiple"}
        if allocation.rotated <= 2:
            without_effect.add("rope")
        if allocation.differential == "v2":
            without_effect.add("lambda_init")
        if allocation.qk_width <= 2:
            without_effect.add("rope_share")
        if "rope_share" in settings:
            settings = {**settings, "rope_share": allocation.rotated / allocation.qk_width}
        if allocation.gates == "vo":
            without_effect.add("rope_order")
        return {name: value for name, value in settings.items() if name not in without_effect}

    def traits(self, label: SrgLabel) -> Traits:
        """The traits of the label.

        The diagonals p of the mixing matrices R(1) and R(2) get no weight decay. The second factors of the low-rank
        adapters (``v_up`` and ``o_up``) start at zero in every fidelity. Other linear maps are initialized anew in the
        fidelity ``published``.
        """
        diagonals = [f"{mixing}.p" for mixing, is_there in (("mix1", label.mix1), ("mix2", label.mix2)) if is_there]
        reads = {
            "rank_multiple": True,
            "rope_order": label.rope and label.gates,
            "position_rows": label.has_mixing and label.layout == "position",
            "register_place": label.registers and label.has_mixing,
        } | {name: True for row in label.letters for name in row.settings}
        return Traits(
            settings=tuple(each.name for each in fields(Settings) if reads.get(each.name)),
            shorter_settings=("position_rows",),
            outputs=("o.weight",),
            without_decay=tuple(diagonals),
            keeps_init=ADAPTER_OUTPUTS if label.adapter else (),
            has_even_heads=label.rope,
            stacked_path="dense",
            is_replayable=True,
            is_stackable=True,
            has_tables=label.has_mixing,
            groups=GROUPS,
        )

    def solve(self, label: SrgLabel, size: Size, settings: OwnSettings) -> SrgAllocation:
        read = {name for row in label.letters for name in row.settings}
        own = {each.name: getattr(settings, each.name) for each in fields(SrgAllocation) if each.name in read}
        return solve(label, size, settings.mix_rank, settings.rank_multiple, **own)

    def build(
        self, allocation: SrgAllocation, settings: OwnSettings, path: str = "auto", causal: bool = True
    ) -> DynamicMLP:
        from madbench.mixers.srg.dynamic_mlp import DynamicMLP

        own = {name: getattr(settings, name) for name in DynamicMLP.settings}
        return DynamicMLP(allocation, path=path, causal=causal, **own)

    def checks(self, label: SrgLabel) -> Iterable[Check]:
        """The checks of :mod:`madbench.mixers.srg.checks` for this label."""
        from madbench.mixers.srg.checks import checks

        return checks(self, label)


FAMILY = SrgFamily()
