"""The S/R/G grammar: a label names one HyperMLP-style mixer completely, and each mixer has exactly one label.

::

    label    = base, [ "-" features ], [ "-" rank ], [ "-" mixing ], [ "!" ]
    base     = "S" | "R" | "G"
    features = "p"? "c"? "g"?              at least one letter
    rank     = "q" | "v"
    mixing   = ("1" | "2" | "12"), ["o"]

Three rules hold beyond the syntax. ``q`` and ``v`` pay for a matched budget and ``!`` lifts it, so they exclude each
other. A label that adds parameters (``g``, ``1``, ``2``) says what pays for them: ``q``, ``v`` or ``!``. A label that
adds none has nothing for ``!`` to lift. That leaves 504 labels.

The letters are those of the HyperMLP paper, Section 3 and Table 1.
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass
from typing import Any, Literal

from madbench.errors import LabelError, did_you_mean
from madbench.labels import registry as family

SYNTAX = re.compile(
    r"(?P<base>[SRG])"
    r"(?:-(?=[pcg])(?P<rope>p?)(?P<conv>c?)(?P<gates>g?))?"
    r"(?:-(?P<rank>[qv]))?"
    r"(?:-(?=[12])(?P<mix1>1?)(?P<mix2>2?)(?P<lag>o?))?"
    r"(?P<over>!?)"
)

ALIASES = {
    "SoftmaxAttn": "S",
    "ReLUAttn": "R",
    "HyperMLP": "R-cg-q-12o",
    "HyperGLU": "G-cg-q-12o",
}
"""Names the paper uses for four of the labels; ``parse`` takes them in any case."""

_ALIASES_IN_LOWER_CASE = {name.lower(): label for name, label in ALIASES.items()}
_FLAGS = ("rope", "conv", "gates", "mix1", "mix2", "lag", "over")


@dataclass(frozen=True)
class Variant:
    """One mixer of the S/R/G grammar; ``str`` gives its label. A combination outside it is a ``LabelError``."""

    base: Literal["S", "R", "G"]
    """Activation: softmax, ReLU of the L2-normalised scores, or GLU of two score branches."""
    rope: bool = False
    """Whether queries and keys are rotated by position (p)."""
    conv: bool = False
    """Whether depthwise causal convolutions run over the K and V inputs (c)."""
    gates: bool = False
    """Whether the QK and VO widths are gated by the current token (g)."""
    rank: Literal["", "q", "v"] = ""
    """Which rank is compressed to keep the budget."""
    mix1: bool = False
    """Whether R(1) mixes the scores along the sequence (1)."""
    mix2: bool = False
    """Whether R(2) mixes the activations along the sequence (2)."""
    lag: bool = False
    """Whether mixing rows are counted back from the current token (o) rather than forward from the oldest."""
    over: bool = False
    """Whether the budget is reported but not enforced (!)."""

    def __post_init__(self):
        problem = _broken_rule(self)
        if problem:
            raise LabelError(problem)

    def __str__(self) -> str:
        return _spell(self)

    @property
    def has_mixing(self) -> bool:
        return self.mix1 or self.mix2

    @property
    def adds_parameters(self) -> bool:
        """Whether gates or mixing cost parameters that something has to pay for; conv taps are budgeted apart."""
        return self.gates or self.has_mixing

    def query_heads(self, n_head: int) -> int:
        """Number of QK heads: ``2 * n_head`` for G (gate branch, then scale branch), else ``n_head``."""
        return 2 * n_head if self.base == "G" else n_head


def parse(label: str) -> Variant | family.FamilyLabel:
    """The value a label or an alias names; ``str`` of it is the canonical label.

    Text with a colon belongs to the family named before it and gives a ``FamilyLabel``. Raises ``LabelError``, whose
    message points at the character and names the nearest label.
    """
    if not isinstance(label, str):
        raise LabelError(f"a label is text such as 'G-cg-q-12o', got {type(label).__name__}")
    if family.family_of(label):
        return family.parse(label)
    label = _ALIASES_IN_LOWER_CASE.get(label.lower(), label)
    match = SYNTAX.fullmatch(label)
    if match is None:
        raise InvalidLabel(label)
    try:
        return Variant(**fields_of(match))
    except LabelError:
        raise InvalidLabel(label) from None


def format(variant: Variant | family.FamilyLabel) -> str:
    """The canonical label; ``format(parse(label)) == label`` for every label that is not an alias."""
    return str(variant)


@functools.cache
def all_variants() -> tuple[Variant, ...]:
    """Every valid variant: by base, then features, mixing, and what pays for them."""
    choices = itertools.product(
        "SRG",
        itertools.product((False, True), repeat=3),
        ((False, False, False), *itertools.product((False, True), (False, True), (False, True))),
        (("", False), ("q", False), ("v", False), ("", True)),
    )
    found = {}
    for base, (gates, conv, rope), (lag, mix2, mix1), (rank, over) in choices:
        fields = dict(base=base, rope=rope, conv=conv, gates=gates, rank=rank)
        try:
            variant = Variant(**fields, mix1=mix1, mix2=mix2, lag=lag, over=over)
        except LabelError:
            continue
        found[variant] = None
    return tuple(found)


@functools.cache
def all_labels() -> tuple[str, ...]:
    """The 504 labels of the grammar, in the order of ``all_variants``."""
    return tuple(map(str, all_variants()))


class InvalidLabel(LabelError):
    """A text outside the grammar. The message is worked out when it is shown, so that rejecting a label is cheap."""

    def __str__(self) -> str:
        from madbench.labels.diagnosis import describe

        return describe(self.args[0])


def fields_of(match: re.Match[str]) -> dict[str, Any]:
    """The arguments of ``Variant`` that a match of ``SYNTAX`` spells."""
    fields: dict[str, Any] = {name: bool(match[name]) for name in _FLAGS}
    return {"base": match["base"], "rank": match["rank"] or "", **fields}


def _spell(variant: Variant, **changes: Any) -> str:
    parts = {**vars(variant), **changes}
    features = "p" * parts["rope"] + "c" * parts["conv"] + "g" * parts["gates"]
    mixing = "1" * parts["mix1"] + "2" * parts["mix2"] + "o" * parts["lag"]
    return "-".join(filter(None, (parts["base"], features, parts["rank"], mixing))) + "!" * parts["over"]


def _broken_rule(variant: Variant) -> str | None:
    if variant.base not in ("S", "R", "G"):
        return f"base {variant.base!r} is unknown{did_you_mean(str(variant.base), 'SRG')}"
    if variant.rank not in ("", "q", "v"):
        return f"rank {variant.rank!r} is unknown; expected 'q', 'v' or ''"
    for name in _FLAGS:
        if not isinstance(getattr(variant, name), bool):
            return f"{name} is True or False, got {getattr(variant, name)!r}"
    if variant.lag and not variant.has_mixing:
        return "'o' lays out sequence mixing, and there is none; add '1', '2' or '12' before it"
    if variant.over and variant.rank:
        kept = _spell(variant, over=False)
        lifted = _spell(variant, rank="", over=variant.adds_parameters)
        return (
            f"'!' lifts the budget and {variant.rank!r} pays to keep it, which is a contradiction;"
            f" did you mean {kept!r} or {lifted!r}?"
        )
    if variant.over and not variant.adds_parameters:
        return (
            "'!' has no effect: nothing here adds parameters, so there is no budget to lift;"
            f" did you mean {_spell(variant, over=False)!r}?"
        )
    if variant.adds_parameters and not (variant.rank or variant.over):
        added = "-".join(filter(None, ("g" * variant.gates, "1" * variant.mix1 + "2" * variant.mix2)))
        q, v, over = _spell(variant, rank="q"), _spell(variant, rank="v"), _spell(variant, over=True)
        return (
            f"{added!r} adds parameters and nothing pays for them; add q to compress QK ({q!r}),"
            f" v to compress VO ({v!r}) or ! to lift the budget ({over!r})"
        )
    return None
