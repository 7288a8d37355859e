"""The shared parts of the grammars of ``hfa:`` and ``ha:``: rules beyond the syntax, error messages, nearest labels."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

from madbench.errors import LabelError, did_you_mean
from madbench.labels.diagnosis import SHOWN, point_at, quoted_choices
from madbench.mixers.srg.grammar import SrgLabel

MOST_PARTS = 4  # largest number of parts of the heads, each with a number
LETTERS = "LC123456789+wusa-!pqv"  # all letters, in the order in which messages list them
COMMON = {"base": ("", "L", "C"), "rope": (False, True), "rank": ("", "q", "v"), "over": (False, True)}
"""The possible values of the fields that labels of both families have: field to values."""


class BrokenRule(LabelError):
    """The error of a label whose letters do not go together.

    It has the place of the problem in the label, and valid labels that are near.
    """

    def __init__(self, at: str, problem: str, suggestions: Sequence[str] = (), *, has_hint: bool = True):
        hint = (
            f"; did you mean {quoted_choices([f'{label!r}' for label in suggestions])}?"
            if suggestions and has_hint
            else ""
        )
        super().__init__(problem + hint)
        self.at = at  # the wrong letter, or a name of a part in InteractionLabel.position
        self.suggestions = list(suggestions)  # valid labels, the nearest first


@dataclass(frozen=True, kw_only=True)
class InteractionLabel:
    """The base class of the labels of ``hfa:`` and ``ha:``. ``str`` gives the text of a label.

    The constructor raises ``LabelError`` for a value that a field cannot have, and for fields that do not go together.
    """

    base: Literal["", "L", "C"] = ""
    """Empty for softmax, ``L`` for linear with factored effects, ``C`` for linear with full coupling matrices or
    tensors."""
    rope: bool = False
    """True with the letter ``p``: queries and keys are rotated by position."""
    rank: Literal["", "q", "v"] = ""
    """The rank that is reduced to meet the budget: ``q`` for queries and keys, ``v`` for values and outputs. Empty if
    none is named."""
    over: bool = False
    """True with the letter ``!``: the budget is reported but not enforced."""

    prefix: ClassVar[str]
    """The name of the family and a colon, such as ``ha:``."""
    kind: ClassVar[str]
    """The text between the base and the first hyphen: the numbers of the parts, and letters of the family."""
    numbers: ClassVar[str]
    """The name of the field that has one number per part of the heads, such as ``orders``."""
    own: ClassVar[Mapping[str, Sequence[Any]]]
    """The possible values of the fields that only this family has, except of the field ``numbers``: field to values."""
    extra: ClassVar[str]
    """The letter of the family that adds parameters, such as ``u``."""
    syntax: ClassVar[re.Pattern[str]]
    number: ClassVar[str]
    """The words for a digit of a label in error messages, such as ``a degree from 2 to 9``."""
    examples: ClassVar[str]
    kind_fields: ClassVar[Callable[[re.Match[str]], dict[str, Any]]]
    """A function from a match of ``syntax`` to the values of the fields that only this family has, by field."""
    in_order: ClassVar[Callable[[str], str]]
    """A function from a text, with letters and digits in any order, to the :attr:`kind` that they spell.

    Letters that belong to other parts of a label are left out. The function is used to suggest a label for an invalid
    text.
    """

    def __post_init__(self) -> None:
        for name, options in {**COMMON, **self.own}.items():
            if getattr(self, name) not in options:
                problem = f"{name} {getattr(self, name)!r} is unknown"
                raise LabelError(problem + did_you_mean(str(getattr(self, name)), map(repr, options)))
        self.check_kind()
        self.check_payment()

    def __str__(self) -> str:
        rank = f"-{self.rank}" if self.rank else ""
        return f"{self.prefix}{self.base}{self.kind}{'-p' if self.rope else ''}{rank}{'!' if self.over else ''}"

    @property
    def adds_parameters(self) -> bool:
        """True if a letter of the label adds parameters. The label must then have ``q``, ``v`` or ``!``.

        ``q`` and ``v`` name the rank that is reduced to pay for the parameters. ``!`` lifts the budget.
        """
        return self.base != "C" and self.extra in self.kind

    @property
    def parts(self) -> tuple[int, ...]:
        """The order (``hfa:``) or degree (``ha:``) of each part of the heads, in the order of the label.

        A part is a group of heads with the same order or degree. All parts have the same number of heads.
        """
        parts: tuple[int, ...] = getattr(self, self.numbers)
        return parts

    def by_head(self, n_head: int) -> tuple[int, ...]:
        """The order or degree of each of ``n_head`` heads. All parts of the label have the same number of heads."""
        return tuple(number for number in self.parts for _ in range(n_head // len(self.parts)))

    def check_kind(self) -> None:
        """Raise ``BrokenRule`` if the letters of ``kind`` do not go together, or do not fit the base."""

    def check_parts(self) -> None:
        """Raise ``BrokenRule`` if the parts are too many, not ascending, or could be written with fewer parts.

        Raises ``LabelError`` if a number of a part is not from 1 to 9.
        """
        parts = self.parts
        if not (isinstance(parts, tuple) and parts and all(type(each) is int and 1 <= each <= 9 for each in parts)):
            raise LabelError(f"{self.numbers} must be whole numbers from 1 to 9, got {parts!r}")
        if len(parts) > MOST_PARTS:
            raise BrokenRule("part 5", f"a label has at most {MOST_PARTS} parts")
        ascending = tuple(sorted(parts))
        if ascending != parts:
            fewest = self.suggestions({self.numbers: fewest_parts(ascending)})
            raise BrokenRule("descent", f"{self.numbers} must ascend", fewest)
        if fewest_parts(parts) != parts:
            problem = "equal shares of the heads must be written with the fewest parts"
            raise BrokenRule("last part", problem, self.suggestions({self.numbers: fewest_parts(parts)}))

    def suggestions(self, *changes: Mapping[str, Any]) -> list[str]:
        """The texts of valid labels that result from this label by each of ``changes``, which map fields to new values.

        A change that gives an invalid label is replaced by the first suggestion of that label's error, if it has one.
        """
        labels = []
        for change in changes:
            try:
                labels.append(str(replace(self, **change)))
            except BrokenRule as error:
                labels += error.suggestions[:1]
        return list(dict.fromkeys(labels))

    def check_payment(self) -> None:
        """Raise ``BrokenRule`` if the letters of the budget are missing, contradict each other, or have no effect.

        Base ``C`` accepts none of these letters, nor the letter for RoPE, because they have no effect on it.
        """
        bare = {"rope": False, "rank": "", "over": False}
        if self.base == "C":
            for letter, applies, why in (
                ("p", self.rope, "'C' has no queries and keys to rotate"),
                (self.rank, self.rank, "'C' has no ranks to reduce"),
                ("!", self.over, "'!' has no effect: the budget never applies to 'C'"),
            ):
                if applies:
                    linear = [{"base": "L"}] if letter != "!" else []
                    raise BrokenRule(letter, why, self.suggestions(*linear, bare))
        if self.over and self.rank:
            problem = f"'!' lifts the budget and {self.rank!r} enforces it, which is a contradiction"
            raise BrokenRule("!", problem, self.suggestions({"over": False}, {"rank": ""}))
        if self.over and not self.adds_parameters:
            problem = "'!' has no effect: no letter adds parameters, so there is no budget to lift"
            raise BrokenRule("!", problem, self.suggestions({"over": False}))
        if self.adds_parameters and not (self.rank or self.over):
            q, v, over = (replace(self, **change) for change in ({"rank": "q"}, {"rank": "v"}, {"over": True}))
            problem = f"{self.extra!r} adds parameters"
            problem += f"; add q ('{q}'), v ('{v}') or ! ('{over}')"
            raise BrokenRule(self.extra, problem, [str(q)], has_hint=False)

    @classmethod
    def from_match(cls, match: re.Match[str]) -> Self:
        """The label that a match of ``syntax`` describes. Raises ``LabelError`` if its letters do not go together."""
        flags: dict[str, Any] = {"rope": bool(match["rope"]), "rank": match["rank"] or "", "over": bool(match["over"])}
        return cls(base=cast(Any, match["base"]), **cls.kind_fields(match), **flags)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a label. Raises ``LabelError`` for any other text; the message points at the wrong character."""
        match = cls.syntax.fullmatch(text)
        if not match:
            raise LabelError(cls._syntax_problem(text))
        try:
            return cls.from_match(match)
        except BrokenRule as error:
            raise LabelError(point_at(text, cls.position(text, error.at), str(error))) from None

    @classmethod
    def position(cls, text: str, at: str) -> int:
        """The index of a letter or part in a text that matches the syntax.

        ``at`` is a letter, or a name of a part such as ``last part`` (:attr:`BrokenRule.at`).
        """
        match = cast("re.Match[str]", cls.syntax.fullmatch(text))
        numbers = match["parts"].split("+")
        places = {"part 5": 2 * MOST_PARTS, "last part": 2 * (len(numbers) - 1)}
        places["descent"] = 2 * next((i + 1 for i in range(len(numbers) - 1) if numbers[i] > numbers[i + 1]), 0)
        return match.start("parts") + places[at] if at in places else text.index(at, len(cls.prefix))

    @classmethod
    def _syntax_problem(cls, text: str) -> str:
        position = len(cls.prefix)
        while position < min(len(text), SHOWN) and text[position] in cls._following(text[:position]):
            position += 1
        options = [cls.number if letter.isdigit() else letter for letter in cls._following(text[:position])]
        if cls.syntax.fullmatch(text[:position]):
            options.append("the end")
        hint = f"labels look like {cls.examples}"
        if nearest := cls._nearest(text):
            hint = f"did you mean {nearest!r}?"
        expected = quoted_choices(list(dict.fromkeys(options)))
        return point_at(text, position, f"expected {expected} after {text[position - 1]!r}; {hint}")

    @classmethod
    def _following(cls, read: str) -> list[str]:
        """The characters that may follow ``read``, the beginning of a label.

        A character may follow if the label is complete after it, or after one more character.
        """
        return [
            letter for letter in LETTERS if any(cls.syntax.fullmatch(read + letter + end) for end in ("", "3", "q"))
        ]

    @classmethod
    def begins(cls, text: str) -> bool:
        """True if a text that starts with the prefix can be completed to a match of the syntax, or is one."""
        return all(text[i] in cls._following(text[:i]) for i in range(len(cls.prefix), len(text)))

    @classmethod
    def _nearest(cls, text: str) -> str | None:
        """A valid label with the letters of a text, which may be in any order and case.

        If these letters give an invalid label, the result is the first suggestion in the error of that label. None if
        there is no such suggestion, or if the text is too long.
        """
        if len(text) > SHOWN:
            return None
        body = "".join(unicodedata.normalize("NFKC", text[len(cls.prefix) :]).split())
        base, rest = (body[:1].upper(), body[1:]) if body[:1].upper() in ("L", "C") else ("", body)
        rest = rest.lower()
        rank = next((f"-{letter}" for letter in rest if letter in "qv"), "")
        tail = ("-p" if "p" in rest else "") + (rank or ("!" if "!" in rest else ""))
        match = cls.syntax.fullmatch(f"{cls.prefix}{base}{cls.in_order(rest)}{tail}")
        try:
            return str(cls.from_match(match)) if match else None
        except BrokenRule as error:
            return error.suggestions[0] if error.suggestions else None


def fewest_parts(parts: tuple[int, ...]) -> tuple[int, ...]:
    """The fewest parts in which each number has the same share of the heads as in ``parts``: 1+1+3+3 gives 1+3."""
    counts = Counter(parts)
    divisor = math.gcd(*counts.values())
    return tuple(number for number, count in counts.items() for _ in range(count // divisor))


def in_parts(letters: str) -> str:
    """The digits from 1 to 9 in a text, written as the parts of a label. For example, 31 gives 1+3."""
    numbers = sorted(int(letter) for letter in letters if letter in "123456789")
    return "+".join(map(str, fewest_parts(tuple(numbers))))


def softmax_attention(label: InteractionLabel) -> str:
    """The label of softmax attention, in the family S/R/G, with the RoPE and the rank letter of ``label``."""
    return str(SrgLabel("S", rope=label.rope, rank=label.rank))
