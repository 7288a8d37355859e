"""The family of named layers. Their labels have no prefix, as ``KDA``, ``GDN(neg)`` and ``Mamba-2``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from madbench.errors import LabelError, did_you_mean
from madbench.labels import Explanation
from madbench.labels.diagnosis import point_at
from madbench.labels.registry import name_key
from madbench.mixers import Check, ListedFamily, Size, Traits
from madbench.mixers.named import arguments
from madbench.mixers.named.attention import Attention
from madbench.mixers.named.budget import NamedAllocation, NamedLabel, solve
from madbench.mixers.named.operator import Operator
from madbench.mixers.named.operators import OPERATORS
from madbench.mixers.named.parts import Gain, Taps
from madbench.mixers.named.recurrent import Recurrent
from madbench.mixers.named.self_contained import SelfContained

if TYPE_CHECKING:
    from madbench.mixers.named.layer import NamedLayer

PARTS_BY_GROUP = {Taps: "mixer conv", Gain: "norms"}
"""The group in which the parameters of a part are counted, by type of the part. Parts that ``Operator.gates`` names are
in the group ``mixer gates`` instead."""


@dataclass(frozen=True)
class Settings:
    """The settings of named layers: none besides the label and the size."""


if TYPE_CHECKING:
    OwnSettings: TypeAlias = Settings  # in the family, its attribute hides this name


class NamedFamily(ListedFamily[NamedLabel, NamedAllocation]):
    """The family of named layers."""

    name = "named"
    version = "1"
    matches = ("flops", "state")
    Settings = Settings
    mixers: ClassVar = {name: name for name in OPERATORS}
    titles: ClassVar = {operator.title: name for name, operator in OPERATORS.items()}
    description = "Published layers by name, with the parameters of flash-linear-attention's, on any device."
    syntax = "NAME[(flag,name=integer,...)][!]"
    example = "GDN(neg)"

    def labels(self) -> list[NamedLabel]:
        """All labels: every operator with every choice of arguments, first without and then with ``!``."""
        return [
            NamedLabel(instance, over)
            for over in (False, True)
            for operator in OPERATORS.values()
            for instance in arguments.all_instances(operator)
        ]

    def parse(self, text: str) -> NamedLabel:
        """Parse ``NAME`` or ``NAME(argument, ...)``, with or without ``!`` at the end.

        The name may be in any case and may have the prefix ``named:``. Raises ``LabelError`` for any other text.
        """
        match = re.fullmatch(r"(?:named:)?([A-Za-z0-9-]+?)(?:\(([^()]*)\))?(!?)", text)
        name = next((name for name in OPERATORS if match and name_key(name) == name_key(match[1])), None)
        if match is None or name is None:
            at = cast("re.Match[str]", re.match(r"(?:named:)?[A-Za-z0-9-]*", text))
            typed = text.removeprefix("named:")[:60]
            known = did_you_mean(re.split(r"[(!]", typed)[0], OPERATORS)
            is_known = any(name_key(each) == name_key(at[0].removeprefix("named:")) for each in OPERATORS)
            hint = "expected (argument), ! or the end of the label" if is_known else f"no operator of this name{known}"
            raise LabelError(point_at(text, at.end() if is_known else at.end() - len(at[0]), hint))
        start, end = match.span(2)
        return NamedLabel(arguments.read(OPERATORS[name], text, start, end), bool(match[3]))

    def factors(self, label: NamedLabel) -> dict[str, str]:
        """The factors of a label by name: ``operator``, each argument of the operator, and ``budget``.

        The value of ``budget`` is ``matched``, or ``over`` for a label with ``!``, whose widths are those of the
        library's layer.
        """
        budget = "over" if label.over else "matched"
        return {"operator": label.operator.name, **arguments.levels(label.operator), "budget": budget}

    def explain(self, label: NamedLabel) -> list[Explanation]:
        """The explanation of a label: rows for its operator, its arguments, the letter ``!`` and the layer's library.

        The row of the library names the class that has the same parameters, and says how the layer differs from it. A
        last row names the ``cd:`` label with a recurrence of the same form, if there is one.
        """
        operator = label.operator
        rows = [Explanation(operator.name, operator.title, "", operator.equation, operator.source)]
        for name, meaning in operator.meanings.items():
            if level := arguments.levels(operator)[name]:
                text = name if level == name else f"{name}={level}"
                rows.append(Explanation(f"({text})", name, meaning, "", operator.source))
        if label.over:
            what = "The library's own widths, whatever they cost. An upper bound."
            rows.append(Explanation("!", "budget", what, "", "this label"))
        what = (
            f"The parameters of {operator.library}, with its names and its initialization. {operator.differs}".strip()
        )
        rows.append(Explanation("", "library", what, "", operator.origin))
        if operator.counterpart:
            what = f"{operator.counterpart} has a recurrence of the same form, in the parts of coefficient dynamics."
            rows.append(Explanation("", "counterpart", what, "", "madbench"))
        return rows

    def traits(self, label: NamedLabel) -> Traits:
        """The traits of the layers of this label, which its operator states."""
        return Traits(
            outputs=(f"{label.operator.output}.weight",),
            stacked_path=label.operator.stacked_path,
            has_heads=label.operator.has_heads,
            keeps_init=label.operator.keeps_init,
            without_decay=label.operator.without_decay,
            shares_values=label.operator.shares_values,
            is_replayable=True,
            groups=self._groups(label.operator),
        )

    def _groups(self, operator: Operator) -> dict[str, str]:
        """The groups in which the parameters of convolutions, norms and gates are counted, by name of the part.

        A group is a text such as ``mixer gates``. Projections and other parts are left out. A group does not depend on
        the widths, so small widths are used.
        """
        parts = operator.parts(operator.library_dims(64, 2))
        groups = {name: PARTS_BY_GROUP[type(part)] for name, part in parts.items() if type(part) in PARTS_BY_GROUP}
        return groups | {name: "mixer gates" for name in operator.gates if name in parts}

    def takes_layer(self, label: NamedLabel) -> bool:
        """True if the layer of this label depends on its place in a model."""
        return label.operator.takes_layer

    def own_modules(self, label: NamedLabel) -> tuple[str, ...]:
        """The names of the Python modules that define the label's operator and its base classes."""
        bases = type(label.operator).__mro__
        return tuple(dict.fromkeys(base.__module__ for base in bases if issubclass(base, Operator)))

    def solve(self, label: NamedLabel, size: Size, settings: OwnSettings) -> NamedAllocation:
        return solve(label, size)

    def build(self, allocation: NamedAllocation, settings: Any, path: str = "auto") -> NamedLayer:
        from madbench.mixers.named.attention_layer import AttentionLayer
        from madbench.mixers.named.recurrent_layer import RecurrentLayer
        from madbench.mixers.named.self_contained_layer import SelfContainedLayer

        kinds = {Attention: AttentionLayer, SelfContained: SelfContainedLayer, Recurrent: RecurrentLayer}
        layer = next(kinds[kind] for kind in type(allocation.operator).__mro__ if kind in kinds)
        return layer(allocation, path)

    def checks(self, label: NamedLabel) -> Iterable[Check]:
        from madbench.mixers.checks import general_checks

        return general_checks(self, label)


FAMILY = NamedFamily()
