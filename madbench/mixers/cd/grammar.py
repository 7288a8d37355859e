"""The grammar of labels of coefficient dynamics, ``cd:``.

::

    label    = "cd:", ( free | preset, [ "-", features ] ), [ "-v" ], [ "!" ]
    free     = readout, [ "-", A ], [ "-", b ], [ "-", eta ], [ "-", features ]
    readout  = "exp" | "relu" | "softplus" | "elu" | "sigmoid" | "id" | "krelu" | "kelu" | "ksoftplus" | "kexp"
    A        = gate | mirror | gate, mirror                              absent: I
    gate     = const | "ss" | "sg" | "sm" | "se" | "dg" | "dm"           const: 0 < const < 2, at most 3 digits
    mirror   = "h", ( "k" | "z" ), ( "1" | "2" | "r" )
    b        = "b1" | "b", ( "z" | "d" | "w" | "i" | "u" ), [ "n" ]      absent: 1/sqrt(n)
    eta      = "sum" | "max" | "pow" | "wx"                              absent: 1
    features = "p"?, "c"?, "u"?, ( "g" | "o" )?                          at least one, in this order

The readout is the function phi that maps scores to coefficients, A is the matrix by which a token changes the state, b
scales keys, and eta divides coefficients. Features are parts of the block around them, such as RoPE.

Segments are recognized by their letters, and a default is never written, so each mixer has exactly one spelling. A
preset is an alias of a free spelling; its features are merged with the given ones. With ``-v`` the rank of VO is
reduced first to meet the budget instead of that of QK. With ``!`` no budget is enforced. The names are those of *Design
Principles for Sequence Models via Coefficient Dynamics*, arXiv 2510.09389.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from madbench.errors import LabelError

PREFIX = "cd:"
POINTWISE = ("exp", "relu", "softplus", "elu", "sigmoid", "id")  # phi is applied to the score
KERNELS = ("krelu", "kelu", "ksoftplus", "kexp")  # psi is applied to query and key, elementwise
READOUTS = POINTWISE + KERNELS
SCALAR_GATES = ("ss", "sg", "sm", "se")
DIAGONAL_GATES = ("dg", "dm")
GATES = SCALAR_GATES + DIAGONAL_GATES
MIRRORS = ("hk1", "hk2", "hkr", "hz1", "hz2", "hzr")
SCALINGS = ("b1", "bz", "bzn", "bd", "bdn", "bw", "bwn", "bi", "bin", "bu", "bun")
NORMS = ("sum", "max", "pow", "wx")
CONSTANT = re.compile(r"[01]\.[0-9]{0,2}[1-9]")
EVOLUTION = re.compile(rf"(?P<gate>{CONSTANT.pattern}|{'|'.join(GATES)})?(?P<mirror>{'|'.join(MIRRORS)})?")
FEATURES = re.compile("(?P<rope>p?)(?P<conv>c?)(?P<unit>u?)(?P<output>g?o?)")

CORE = ("readout", "gate", "mirror", "scaling", "norm")
"""The fields of a label that specify phi, A, b and eta."""
PRESETS = {
    "softmax": "exp-sum",
    "linear": "kelu-sum",
    "normalized": "id-wx",
    "gla": "id-dg",
    "mamba2": "id-sm-bd",
    "deltanet": "id-hk1-bwn-u",
    "gateddeltanet": "id-smhk1-bwn-u",
    "mlstm": "id-se-bin-max-o",
}
"""The rows of the paper's Table 1, as free spellings by name. Labels may have the names in any case."""
ALIASES = {"normalised": "normalized", "gdn": "gateddeltanet"}
"""Other names of presets: each with the name in ``PRESETS``."""

SEGMENTS = ("readout", "A", "b", "eta", "features", "v")
"""The kinds of segments of a label, in the order in which they are written."""


@dataclass(frozen=True)
class CdLabel:
    """A ``cd:`` label. ``str(label)`` is its canonical text.

    Raises ``LabelError`` for an unknown value of a field and for an invalid combination.
    """

    readout: str
    """The function phi from scores to coefficients, such as ``exp``. A k before the name, as in ``kexp``, marks a
    kernel readout, which applies its function psi to queries and keys instead."""
    gate: str = ""
    """The gate lambda_t in A_t, a decay of the state: a constant such as 0.95, or one of ``GATES``. Empty for 1."""
    mirror: str = ""
    """The mirror in A_t, such as ``hk1``: the letter h, the direction k or z, and the strength 1, 2 or r. Empty without
    one."""
    scaling: str = ""
    """The scale b_j of keys, such as ``bd``. Empty for 1/sqrt(n)."""
    norm: str = ""
    """The divisor eta_i of coefficients, such as ``sum``. Empty for 1."""
    rope: bool = False
    """Letter p: queries and keys are rotated by position."""
    conv: bool = False
    """Letter c: q, k and v go through a convolution over 4 tokens and SiLU."""
    unit: bool = False
    """Letter u: queries and keys have length 1."""
    output: str = ""
    """The output gate: ``g`` for RMSNorm times a SiLU gate, or ``o`` for a sigmoid gate. Empty without a gate."""
    rank: str = ""
    """``v`` if the rank of VO is reduced before that of QK to meet the budget. Empty otherwise."""
    over: bool = False
    """Sign !: the budget is reported but not enforced."""

    def __post_init__(self) -> None:
        if self.output == "go":
            raise BrokenRule("features", "'g' and 'o' are two output gates, but a mixer has only one", {"output": "g"})
        for name, options in OPTIONS.items():
            value = getattr(self, name)
            if value not in options and not (name == "gate" and isinstance(value, str) and CONSTANT.fullmatch(value)):
                raise LabelError(f"{name} {value!r} is unknown; expected one of: {', '.join(map(repr, options))}")
        check_rules(self)

    def __str__(self) -> str:
        return spell(vars(self))

    @property
    def is_kernel(self) -> bool:
        return self.readout in KERNELS

    @property
    def is_recurrent(self) -> bool:
        """True if a state of fixed size can compute the mixer (Lemma 1 of the paper)."""
        return self.is_kernel or self.readout == "id"

    @property
    def has_log_scale(self) -> bool:
        """True if the scale of the keys is kept as a logarithm, because it may be huge."""
        return self.scaling.startswith("bi") and self.readout == "id"

    @property
    def has_maximum(self) -> bool:
        """True if the state is stored divided by e^m, where m is a running maximum, so that it cannot overflow."""
        return self.is_recurrent and (self.gate == "se" or self.has_log_scale)

    @property
    def is_softmax(self) -> bool:
        """True if the coefficients are those of softmax attention, for any scale of the keys."""
        return (self.readout, self.gate, self.mirror, self.norm) == ("exp", "", "", "sum")

    @property
    def is_constant(self) -> bool:
        """True if the gate is a constant. Its value is ``float(gate)``."""
        return bool(CONSTANT.fullmatch(self.gate))

    @property
    def has_growing_gate(self) -> bool:
        """True if the gate is a constant above 1, so that scores grow with distance (Principle 6 of the paper)."""
        return self.is_constant and float(self.gate) > 1

    @property
    def adds_parameters(self) -> bool:
        """True if the mixer has parameters besides its projections and convolutions.

        The strict budget then reduces a rank.
        """
        costly = (self.gate in GATES, self.mirror not in ("", "hkr"), self.scaling not in ("", "b1"))
        return any(costly) or self.norm == "wx" or bool(self.output)


OPTIONS: dict[str, tuple[Any, ...]] = {
    "readout": READOUTS,
    "gate": ("", *GATES),
    "mirror": ("", *MIRRORS),
    "scaling": ("", *SCALINGS),
    "norm": ("", *NORMS),
    "rope": (False, True),
    "conv": (False, True),
    "unit": (False, True),
    "output": ("", "g", "o"),
    "rank": ("", "v"),
    "over": (False, True),
}
"""The valid values of every field of a label. A gate may also be a constant such as 0.95."""


class BrokenRule(LabelError):
    """An error for a label with segments that are valid alone but do not go together."""

    def __init__(self, segment: str, problem: str, *repairs: Mapping[str, Any]):
        """``segment`` is the kind of the wrong segment, one of ``SEGMENTS``, or a letter such as "!".

        ``problem`` is the error message. Each of ``repairs`` maps fields to new values that may repair the label.
        """
        super().__init__(segment, problem, *repairs)
        self.segment, self.problem, self.repairs = segment, problem, repairs

    def __str__(self) -> str:
        return self.problem


def check_rules(label: CdLabel) -> None:
    """Raise ``BrokenRule`` if the segments of the label do not go together. Only the first broken rule is reported."""
    gate, mirror, b = label.gate, label.mirror, label.scaling
    if b.startswith("bd") and gate not in ("sm", "dm"):
        problem = f"{b!r} is Delta of the gate, and only 'sm' and 'dm' have one"
        raise BrokenRule("b", problem, {"gate": "dm" if gate == "dg" else "sm"})
    if b.startswith("bw") and not mirror:
        raise BrokenRule("b", f"{b!r} is the learned strength of a mirror, but there is no mirror", {"mirror": "hk1"})
    if b.startswith("bw") and mirror.endswith("r"):
        problem = f"{b!r} is the learned strength of the mirror, but that of {mirror!r} is the constant 2"
        raise BrokenRule("b", problem, {"mirror": mirror[:2] + "2"})
    if b.startswith("bu") and gate not in ("ss", "sg", "sm"):
        what = "a vector" if gate in DIAGONAL_GATES else "unbounded" if gate == "se" else "a constant"
        problem = f"{b!r} is 1 - lambda of a gate 'ss', 'sg' or 'sm', but here lambda is {what}"
        raise BrokenRule("b", problem, {"gate": "sg" if gate == "dg" else "sm" if gate == "dm" else "ss"})
    if label.norm == "pow" and not label.is_constant:
        problem = "'pow' is a power of a constant gate, but there is none"
        raise BrokenRule("eta", problem, {"gate": "0.95"}, {"norm": ""})
    if label.over and label.rank:
        problem = "'!' lifts the budget and 'v' enforces it, which is a contradiction"
        raise BrokenRule("!", problem, {"rank": ""}, {"over": False})
    if (label.over or label.rank) and not label.adds_parameters:
        letter = "!" if label.over else "v"
        problem = f"{letter!r} has no effect: no letter adds parameters, so no rank is reduced"
        raise BrokenRule(letter, problem, {"rank": "", "over": False})


def rescaled(label: CdLabel) -> CdLabel:
    """The label with the other scale of keys: with a factor 1 / sqrt(n) if ``label`` has none, else without it.

    n is the key width of a head.
    """
    b = label.scaling
    if b in ("", "b1"):
        return replace(label, scaling="" if b else "b1")
    return replace(label, scaling=b.removesuffix("n") if b.endswith("n") else b + "n")


def twin(label: CdLabel) -> CdLabel | None:
    """A label for exactly the same function as ``label``, with another scale of keys. None if there is none.

    It is the :func:`rescaled` label, if the factor sqrt(n) cancels. The factor cancels if coefficients of ``relu``,
    ``id`` or ``krelu`` are divided by their sum. It also cancels in the RMSNorm of the output gate g, if the readout is
    ``id``.
    """
    by_sum = label.norm == "sum" and label.readout in ("relu", "id", "krelu")
    by_norm = label.norm in ("", "wx", "pow") and label.readout == "id" and label.output == "g"
    return rescaled(label) if by_sum or by_norm else None


def spell(values: Mapping[str, Any], preset: str = "") -> str:
    """The canonical text of a label with these fields. Fields that are not given have their defaults.

    If ``preset`` is given, its name replaces the segments of readout, A, b and eta.
    """
    features = "".join(letter for letter, name in zip("pcu", ("rope", "conv", "unit")) if values.get(name))
    readout, gate, mirror, *rest = (values.get(name, "") for name in CORE)
    head = [preset] if preset else [readout, gate + mirror, *rest]
    segments = (*head, features + values.get("output", ""), values.get("rank", ""))
    return PREFIX + "-".join(filter(None, segments)) + ("!" if values.get("over", False) else "")


def with_preset(label: CdLabel) -> str:
    """The label's text with the name of a preset at its beginning, if a preset fits. Otherwise its canonical text.

    A preset fits if it has the same readout, A, b and eta as the label, and no feature that the label lacks. The
    label's other features are written after the name.
    """
    for name in PRESETS:
        preset, own = CdLabel(**fields_in(PREFIX + name)), vars(label)
        lacks = any(value and not own[field] for field, value in vars(preset).items())
        if not lacks and all(getattr(preset, field) == own[field] for field in CORE):
            text = spell({field: value for field, value in own.items() if value != getattr(preset, field)}, name)
            values = read(text)
            if values and CdLabel(**values) == label:
                return text
    return str(label)


def fields_of(segment: str) -> tuple[str, dict[str, Any]] | None:
    """The kind of a segment, one of ``SEGMENTS``, and the fields that it sets. None if the segment is invalid."""
    if segment in READOUTS:
        return "readout", {"readout": segment}
    if segment in SCALINGS:
        return "b", {"scaling": segment}
    if segment in NORMS:
        return "eta", {"norm": segment}
    if segment == "v":
        return "v", {"rank": "v"}
    if segment and (match := EVOLUTION.fullmatch(segment)):
        return "A", {name: value or "" for name, value in match.groupdict().items()}
    if segment and (match := FEATURES.fullmatch(segment)):
        letters = match.groupdict()
        switches = {name: bool(letters[name]) for name in ("rope", "conv", "unit")}
        return "features", switches | {"output": letters["output"]}
    return None


def preset_of(segment: str) -> str | None:
    """The key of ``PRESETS`` for which ``segment`` stands, in any case or as an alias.

    None if it stands for no preset.
    """
    name = segment.lower()
    name = ALIASES.get(name, name)
    return name if name in PRESETS else None


def _merge(value: bool | str, other: bool | str) -> bool | str:
    if isinstance(value, str) and isinstance(other, str):
        return "".join(sorted({*value, *other}))
    return value or other


def read(text: str) -> dict[str, Any] | None:
    """The fields that the text of a label sets, by name. None if the syntax is wrong.

    Whether the fields go together is not checked.
    """
    body = text.removeprefix(PREFIX)
    first, *rest = body.removesuffix("!").split("-")
    preset = preset_of(first)
    values: dict[str, Any] = {"over": body.endswith("!")}
    for segment in PRESETS[preset].split("-") if preset else [first]:
        values |= (fields_of(segment) or ("", {}))[1]
    last = "eta" if preset else "readout"
    for segment in rest:
        kind_and_fields = fields_of(segment)
        if not kind_and_fields or SEGMENTS.index(kind_and_fields[0]) <= SEGMENTS.index(last):
            return None
        last, fields = kind_and_fields
        if last == "features" and preset:
            fields = {name: _merge(value, values.get(name, value)) for name, value in fields.items()}
        values |= fields
    return values if "readout" in values else None


def fields_in(text: str) -> dict[str, Any]:
    """The fields that the text of a label sets, by name. The syntax of the text must be right."""
    fields = read(text)
    assert fields is not None, text
    return fields
