"""The family of coefficient dynamics (arXiv 2510.09389), with labels such as cd:id-sm-bd-cg."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from madbench.config import check_at_least, check_numbers
from madbench.errors import LabelError
from madbench.jobs import NOT_AT_DEFAULT
from madbench.labels import Explanation
from madbench.mixers import Check, Family, Size, Traits, one_factor_apart
from madbench.mixers.cd.budget import CdAllocation, solve
from madbench.mixers.cd.diagnosis import message
from madbench.mixers.cd.explanations import explain
from madbench.mixers.cd.grammar import ALIASES, CORE, OPTIONS, PREFIX, PRESETS, CdLabel, read, with_preset

if TYPE_CHECKING:
    from madbench.mixers.cd.operator import CoefficientMixer

GROUPS = {f"{side}_conv": "mixer conv" for side in "qkv"} | {"out_gate": "mixer gates", "out_norm": "norms"}
"""The group under which a parameter is counted for display, by parameter name. See
:attr:`madbench.mixers.Traits.groups`."""
CONSTANTS = ("0.95", "1.05")  # constant gates in a neighborhood, as in the paper


@dataclass(frozen=True)
class Settings:
    """Settings of mixers of coefficient dynamics besides their label and size."""

    qk_rank: int = 0
    """Rank N of queries and keys over all heads; 0 means d. Only for ``--budget paper`` and labels with ``!``."""
    init_std: float = 0.02
    """Initial standard deviation of the linear maps to queries, keys, values and outputs."""

    value_skip: bool = field(default=False, metadata=NOT_AT_DEFAULT)
    """True if each row's own value times D is added to its output, as in the standard Mamba-2. D is one number per head
    and starts at 1."""

    def __post_init__(self) -> None:
        check_at_least(self, 0, "qk_rank")
        check_numbers(self, "init_std")


if TYPE_CHECKING:
    OwnSettings: TypeAlias = Settings  # in the family, its attribute hides this name


class CoefficientFamily(Family[CdLabel, CdAllocation]):
    """The family of the ``cd:`` labels."""

    description = "Softmax attention, linear attention and state-space models in one recurrence of coefficients."
    name = "cd"
    version = "1"
    matches = ("flops", "state")
    Settings = Settings
    mixers: ClassVar = {name: PREFIX + ALIASES.get(name, name) for name in (*PRESETS, *ALIASES)}
    syntax = "readout|preset[-A][-b][-eta][-features][-v][!]"
    example = "cd:gdn-cg"

    def parse(self, text: str) -> CdLabel:
        """Parse a label with or without a preset.

        Raises ``LabelError`` for an invalid label. The message points at the error and suggests the nearest valid
        label.
        """
        values = read(text)
        if values:
            with suppress(LabelError):
                return CdLabel(**values)
        raise LabelError(message(text))

    def preset_spelling(self, label: CdLabel) -> str:
        """The label's text with the name of a preset at its beginning, if a preset fits.

        Otherwise its canonical text.
        """
        return with_preset(label)

    def factors(self, label: CdLabel) -> dict[str, str]:
        """The levels of the label's factors, by name of the factor.

        ``rank`` is left out for a label with ``!``, which reduces no rank.
        """
        letters = {name: getattr(label, name) for name in CORE}
        letters |= {"rope": "p" if label.rope else "", "conv": "c" if label.conv else ""}
        letters |= {"unit": "u" if label.unit else "", "output": label.output}
        letters |= {} if label.over else {"rank": label.rank}
        return letters | {"budget": "over" if label.over else "matched"}

    def neighbors(self, label: CdLabel) -> tuple[CdLabel, ...]:
        """All labels that differ from ``label`` in exactly one factor.

        Of the constant gates, only 0.95 and 1.05 are listed.
        """
        others: dict[CdLabel, None] = {}
        for name, options in OPTIONS.items():
            for value in ("", *CONSTANTS, *options[1:]) if name == "gate" else options:
                for rank in ("", "v") if name == "over" else (label.rank,):
                    with suppress(LabelError):
                        others[replace(label, **{"rank": rank, name: value})] = None
        return one_factor_apart(self.factors(label), ((other, self.factors(other)) for other in others))

    def explain(self, label: CdLabel) -> list[Explanation]:
        """The explanation of a label: one row per segment and feature letter, and then notes such as cautions."""
        return explain(label)

    def effective(self, allocation: CdAllocation, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``settings`` that still changes a mixer when its ranks are given: all but ``qk_rank``."""
        return {name: value for name, value in settings.items() if name != "qk_rank"}

    def traits(self, label: CdLabel) -> Traits:
        """The traits of the label's mixers.

        ``may_grow`` is true for a constant gate above 1 (Principle 6 of the paper).
        """
        return Traits(
            outputs=("o.weight",),
            start_settings=("init_std",),
            may_grow=label.has_growing_gate,
            stacked_path="dense",
            is_replayable=True,
            groups=GROUPS,
        )

    def solve(self, label: CdLabel, size: Size, settings: OwnSettings) -> CdAllocation:
        return solve(label, size, settings.qk_rank, settings.value_skip)

    def build(self, allocation: CdAllocation, settings: OwnSettings, path: str = "auto") -> CoefficientMixer:
        from madbench.mixers.cd.operator import CoefficientMixer

        return CoefficientMixer(allocation, settings, path)

    def checks(self, label: CdLabel) -> Iterable[Check]:
        from madbench.mixers.cd.checks import checks

        return checks(self, label)


FAMILY = CoefficientFamily()
