"""Why a text is no label: the character at fault, what was expected there, and the nearest label."""

from __future__ import annotations

import difflib
import unicodedata

from madbench.errors import LabelError
from madbench.labels.factors import LETTERS, SEGMENTS, Letter, either
from madbench.labels.grammar import ALIASES, SYNTAX, all_labels, from_letters

SHOWN = 60  # characters of a rejected text that a message repeats
MOST_EDITS = 3

ALPHABET = "".join(row.letter for row in LETTERS)
"""Every letter of the grammar, in the order in which a label has them."""

# Characters drawn like ours that Unicode normalisation does not relate to them: Cyrillic, Greek, Latin, Cherokee
# letters, a click letter, hyphens and dashes.
_LOOK_ALIKES = {
    "S": "\u0405\u0455\u13da", "R": "\u13a1\u13d2", "G": "\u050c\u050d\u13c0", "p": "\u0420\u0440\u03a1\u03c1",
    "c": "\u0421\u0441\u03f2\u03f9", "g": "\u0261", "q": "\u051a\u051b", "v": "\u0474\u0475\u03bd",
    "o": "\u041e\u043e\u039f\u03bf", "!": "\u01c3", "-": "\u00ad\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
}  # fmt: skip


class InvalidLabel(LabelError):
    """A text outside the grammar. The message is worked out when it is shown, so that rejecting a label is cheap."""

    def __str__(self) -> str:
        return describe(self.args[0])


def describe(label: str) -> str:
    """The whole message for a text that is not a label of the S/R/G grammar."""
    try:
        if SYNTAX.fullmatch(label):
            from_letters(label)
    except LabelError as error:  # a rule beyond the syntax: the fault is the '!', else the first letter to pay for
        at_fault = "!" if label.endswith("!") else [row.letter for row in LETTERS if row.is_paid]
        return point_at(label, next(i for i, letter in enumerate(label) if letter in at_fault), str(error))
    position, problem, repaired = _first_problem(label)
    found = nearest(repaired)
    hint = f"did you mean {found!r}?" if found else "labels look like 'S', 'R-c' or 'G-cg-q-12o'"
    return point_at(label, position, f"{problem}; {hint}")


def point_at(text: str, position: int, problem: str, what: str = "label") -> str:
    """``problem`` under a caret at one character of ``text``, shown on one line with odd characters escaped."""
    start = max(0, position - SHOWN // 2) if len(text) > SHOWN else 0
    opening = f"{what} '" + "..." * (start > 0)
    window = text[start : start + SHOWN]
    before = opening + show(text[start:position])
    column = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in before)
    closing = "..." * (start + SHOWN < len(text)) + "'"
    return f"{opening}{show(window)}{closing}\n{' ' * column}^ {problem}"


def show(text: str) -> str:
    """``text`` with every character escaped that a terminal does not show upright, left to right, in a cell or two."""

    def is_plain(character: str) -> bool:
        if character.isascii() or not character.isprintable():
            return character.isprintable() and character != "\\"
        is_mark = unicodedata.category(character).startswith("M")
        return not is_mark and unicodedata.bidirectional(character) not in ("R", "AL", "AN")

    return "".join(character if is_plain(character) else ascii(character)[1:-1] for character in text)


def nearest(text: str) -> str | None:
    """The valid label or alias nearest to ``text``, or None when nothing is near.

    Look-alikes and case are put right first. Then the label with the same letters in any order, else the one with the
    fewest characters to change, among equals the one of the same length.
    """
    names = {name.lower(): name for name in ALIASES}
    close = difflib.get_close_matches(text[:20].lower(), names, n=1, cutoff=0.75)
    if close:
        return names[close[0]]
    if len(text) > SHOWN:
        return None
    letters = [letter_meant(character) or "?" for character in text if not character.isspace()]
    if letters[:1] == ["g"]:
        letters[0] = "G"
    letters[1:] = ["g" if letter == "G" else letter for letter in letters[1:]]
    try:
        return str(from_letters("".join(letters)))
    except LabelError:
        return _fewest_edits("".join(letters))


def _fewest_edits(text: str) -> str | None:
    base = next((letter for letter in text if letter in "SRG"), "S")
    matcher = difflib.SequenceMatcher(None, "", text, autojunk=False)
    best: tuple[int, int, str | None] = (min(MOST_EDITS, len(text) - 1), len(text) + 1, None)
    for label in all_labels():
        if label[0] == base and abs(len(label) - len(text)) <= best[0]:
            matcher.set_seq1(label)
            changes = (max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")
            candidate = (sum(changes), abs(len(label) - len(text)), label)
            best = candidate if candidate[:2] < best[:2] else best
    return best[2]


def letter_meant(character: str) -> str:
    """The letter of the grammar, or hyphen, that a character is or looks like in any case; ``""`` if there is none."""
    look_alike = next((letter for letter, others in _LOOK_ALIKES.items() if character in others), "")
    base = look_alike or unicodedata.normalize("NFKD", character)[:1]
    choices = (base, base.lower(), base.upper())
    return next((choice for choice in choices if choice and choice in f"{ALPHABET}-"), "")


def _first_problem(label: str) -> tuple[int, str, str]:
    """Position of the first character at which no label can go on, what is wrong, and the text with that mended."""
    position = 0
    while position < len(label) and any(other.startswith(label[: position + 1]) for other in all_labels()):
        position += 1
    before, character, rest = label[:position], label[position : position + 1], label[position + 1 :]
    following = {other[position : position + 1] for other in all_labels() if other.startswith(before)}
    options = [repr(letter) for letter in f"{ALPHABET[:-1]}-!" if letter in following] + ["the end"] * ("" in following)
    expected = f"expected {either(options)} {f'after {before[-1]!r}' if before else 'at the start'}"
    if not character:
        return position, f"an empty {'segment' if label else 'label'}; {expected}", label
    row = next((row for row in LETTERS if row.letter == character), None)
    if row and before:
        problem = _surplus(before, row, expected)
        if problem:
            return position, problem, before + rest
        if row.needs and not set(row.needs).intersection(before):
            problem = f"{character!r} ({row.name}) needs {either(row.needs)} before it"
            return position, problem, before + row.needs + label[position:]
    if character == "-" and before[-1:] not in ("", "-") and _wrong_order(before, rest[:1]):
        return position + 1, _wrong_order(before, rest[:1]), label
    return position, _wrong_order(before, character) or _unexpected(before, character, following, expected), label


def _surplus(before: str, row: Letter, expected: str) -> str:
    """What is wrong with a letter that the label is better off without, or ``""``."""
    rank = next((letter for letter in "qv" if letter in before), "")
    if row.letter == "!" and before[-1] not in "-!":
        if rank:
            return f"'!' lifts the budget and {rank!r} pays to keep it, which is a contradiction"
        return "'!' has no effect: nothing here adds parameters"
    if row.letter in before:
        return f"{row.letter!r} is repeated; {expected}"
    if row.segment == "base" and row.letter.lower() not in ALPHABET:  # G may be a g in the wrong case
        return f"{row.letter!r} is a second base beside {before[0]!r}; {expected}"
    if row.segment == "rank" and rank:
        return f"'q' and 'v' exclude each other: either QK or VO is compressed; {expected}"
    return ""


def _wrong_order(before: str, character: str) -> str:
    if not character or character not in ALPHABET[ALPHABET.index("p") :]:
        return ""
    later = [letter for letter in before if letter in ALPHABET[ALPHABET.index(character) + 1 :]]
    letters = {name: [row.letter for row in LETTERS if row.segment == name] for name in SEGMENTS if name != "base"}
    order = ", ".join((" or " if SEGMENTS[name] == "one" else "").join(letters[name]) for name in letters)
    return f"wrong order, {character!r} comes before {later[0]!r}; the order is base, {order}" if later else ""


def _unexpected(before: str, character: str, following: set[str], expected: str) -> str:
    """What is wrong with a character that is no letter at all, or a letter where no letter of its kind may stand."""
    meant = letter_meant(character)
    if character.isspace():
        return f"a label has no spaces, and this is {_name(character)}; {expected}"
    if not (character.isascii() and character.isprintable()):
        instead = f", not the ASCII {meant!r}" if meant and not character.isascii() else ""
        return f"'{show(character)}' is {_name(character)}{instead}; {expected}"
    if character == "-":
        return f"{'an empty segment' if before[-1:] in ('', '-') else 'no segment can follow'}; {expected}"
    if character.swapcase() in following:
        return f"wrong case, write {character.swapcase()!r}"
    if meant and character not in ALPHABET:
        return f"wrong case, {character!r} is no letter of a label but {meant!r} is; {expected}"
    return expected


def _name(character: str) -> str:
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "")
    return f"{name} ({code})" if name else f"the character {code}"
