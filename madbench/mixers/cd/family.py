"""Coefficient dynamics (arXiv 2510.09389), labels such as cd:id-sm-bd-cg."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from madbench.config import check_at_least, check_numbers
from madbench.errors import LabelError
from madbench.jobs import NOT_AT_DEFAULT
from madbench.labels import Explanation
from madbench.mixers import Check, Size, Traits, one_factor_apart
from madbench.mixers.cd.budget import Allocation, solve
from madbench.mixers.cd.diagnosis import message
from madbench.mixers.cd.explanations import explain
from madbench.mixers.cd.grammar import ALIASES, CORE, OPTIONS, PREFIX, PRESETS, Label, read, with_preset

if TYPE_CHECKING:
    from madbench.mixers.cd.operator import CoefficientMixer

GROUPS = {f"{side}_conv": "mixer conv" for side in "qkv"} | {"out_gate": "mixer gates", "out_norm": "norms"}
"""What parameters do, by their names."""
CONSTANTS = ("0.95", "1.05")  # gates of a neighbourhood: those of the paper


@dataclass(frozen=True)
class Settings:
    """What mixers of coefficient dynamics have besides their label and size."""

    qk_rank: int = 0
    """Rank N of queries and keys, over all heads, where the budget does not decide it (--budget paper, !); 0 is d."""
    init_std: float = 0.02
    """Standard deviation at which projections start."""

    value_skip: bool = field(default=False, metadata=NOT_AT_DEFAULT)
    """Adds the row's own value times D, a number a head from 1 on, as the standard Mamba-2 does."""

    def __post_init__(self):
        check_at_least(self, 0, "qk_rank")
        check_numbers(self, "init_std")


class CoefficientFamily:
    """See :class:`madbench.mixers.Family`."""

    description = "Softmax attention, linear attention and state-space models in one recurrence of coefficients."
    name = "cd"
    version = "1"
    Settings = Settings
    mixers: ClassVar = {name: PREFIX + ALIASES.get(name, name) for name in (*PRESETS, *ALIASES)}
    syntax = "readout|preset[-A][-b][-eta][-features][-v][!]"
    example = "cd:gdn-cg"

    def parse(self, text: str) -> Label:
        """The label of a free spelling or a preset."""
        values = read(text)
        if values:
            with suppress(LabelError):
                return Label(**values)
        raise LabelError(message(text))

    def preset_spelling(self, label: Label) -> str:
        """The label with a preset's name where it is that with other features, else its canonical text."""
        return with_preset(label)

    def factors(self, label: Label) -> dict[str, str]:
        """Spelling by factor; ``rank`` is there only where the budget is enforced: else nothing is compressed."""
        letters = {name: getattr(label, name) for name in CORE}
        letters |= {"rope": "p" * label.rope, "conv": "c" * label.conv}
        letters |= {"unit": "u" * label.unit, "output": label.output}
        letters |= {} if label.over else {"rank": label.rank}
        return letters | {"budget": "over" if label.over else "matched"}

    def neighbours(self, label: Label) -> tuple[Label, ...]:
        """Every label that differs from this one in exactly one factor; constant gates are those of the paper."""
        others = {}
        for name, options in OPTIONS.items():
            for value in ("", *CONSTANTS, *options[1:]) if name == "gate" else options:
                for rank in ("", "v") if name == "over" else (label.rank,):
                    with suppress(LabelError):
                        others[replace(label, **{"rank": rank, name: value})] = None
        return one_factor_apart(self.factors(label), ((other, self.factors(other)) for other in others))

    def explain(self, label: Label) -> list[Explanation]:
        """A row a letter, then cautions."""
        return explain(label)

    def effective(self, allocation: Allocation, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The start of the projections, and the skip."""
        return {name: value for name, value in settings.items() if name != "qk_rank"}

    def traits(self, label: Label) -> Traits:
        """A constant gate above 1 makes coefficients grow (Principle 6)."""
        return Traits(
            outputs=("o.weight",),
            start_settings=("init_std",),
            may_grow=label.has_growing_gate,
            stacked_path="dense",
            is_replayable=True,
            groups=GROUPS,
        )

    def solve(self, label: Label, size: Size, settings: Settings) -> Allocation:
        return solve(label, size, settings.qk_rank, settings.value_skip)

    def build(self, allocation: Allocation, settings: Settings, path: str = "auto") -> CoefficientMixer:
        from madbench.mixers.cd.operator import CoefficientMixer

        return CoefficientMixer(allocation, settings, path)

    def checks(self, label: Label) -> Iterable[Check]:
        from madbench.mixers.cd.checks import checks

        return checks(self, label)


FAMILY = CoefficientFamily()
