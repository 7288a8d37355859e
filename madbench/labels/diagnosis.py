"""Why a text is no label: the character at fault, what was expected there, and the nearest label."""

from __future__ import annotations

import unicodedata

from madbench.errors import LabelError
from madbench.labels.grammar import SYNTAX, Variant, fields_of
from madbench.labels.nearest import LETTERS, Trie, letter_meant, nearest, trie

SHOWN = 60  # characters of a rejected text that a message repeats
ORDER = "the order is base, pcg, q or v, 12o, !"


def describe(label: str) -> str:
    """The whole message for a text that is not a label of the S/R/G grammar."""
    match = SYNTAX.fullmatch(label)
    if match:
        try:
            Variant(**fields_of(match))
        except LabelError as error:
            return point_at(label, _first_cost(label), str(error))
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
    return "".join(character if _is_plain(character) else ascii(character)[1:-1] for character in text)


def _is_plain(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and character != "\\"
    return (
        character.isprintable()
        and not unicodedata.category(character).startswith("M")
        and unicodedata.bidirectional(character) not in ("R", "AL", "AN")
    )


def _first_cost(label: str) -> int:
    """Where a label breaks a rule beyond the syntax: at its ``!``, else at the first letter that adds parameters."""
    if label.endswith("!"):
        return len(label) - 1
    return next(i for i, character in enumerate(label) if character in "g12")


def _first_problem(label: str) -> tuple[int, str, str]:
    """Position of the first character at which no label can go on, what is wrong, and the text with that mended."""
    node, position = trie(), 0
    while position < len(label) and label[position] in node:
        node = node[label[position]]
        position += 1
    before = label[:position]
    expected = f"expected {_either(node)} {f'after {before[-1]!r}' if before else 'at the start'}"
    if position == len(label):
        return position, f"an empty {'segment' if label else 'label'}; {expected}", label
    character, rest = label[position], label[position + 1 :]
    problem = _misplaced(before, character, expected)
    if problem:
        return position, problem, before + rest
    if character == "o" and before and not ("1" in before or "2" in before):
        problem = "'o' lays out sequence mixing, and there is none before it; write '1o', '2o' or '12o'"
        return position, problem, f"{before}12o{rest}"
    if character == "-" and before[-1:] not in ("", "-") and _wrong_order(before, rest[:1]):
        return position + 1, _wrong_order(before, rest[:1]), label
    return position, _wrong_order(before, character) or _unexpected(before, character, node, expected), label


def _misplaced(before: str, character: str, expected: str) -> str:
    """What is wrong with a letter that the label is better off without, or ``""``."""
    if character not in LETTERS or not before:
        return ""
    if character == "!" and before[-1] not in "-!":
        rank = next((letter for letter in "qv" if letter in before), "")
        if rank:
            return f"'!' lifts the budget and {rank!r} pays to keep it, which is a contradiction"
        return "'!' has no effect: nothing here adds parameters"
    if character in before:
        return f"{character!r} is repeated; {expected}"
    if character in "SR":
        return f"{character!r} is a second base beside {before[0]!r}; {expected}"
    if character in "qv" and ("q" in before or "v" in before):
        return f"'q' and 'v' exclude each other: either QK or VO is compressed; {expected}"
    return ""


def _wrong_order(before: str, character: str) -> str:
    if character in ("", "-") or character not in LETTERS or not before or character in "SRG":
        return ""
    later = [letter for letter in before if letter in LETTERS[LETTERS.index(character) + 1 :]]
    return f"wrong order, {character!r} comes before {later[0]!r}; {ORDER}" if later else ""


def _unexpected(before: str, character: str, node: Trie, expected: str) -> str:
    """What is wrong with a character that is no letter at all, or a letter where no letter of its kind may stand."""
    meant = letter_meant(character)
    if character.isspace():
        return f"a label has no spaces, and this is {_name(character)}; {expected}"
    if not character.isascii() and meant:
        return f"'{show(character)}' is {_name(character)}, not the ASCII {meant!r}; {expected}"
    if not (character.isascii() and character.isprintable()):
        return f"'{show(character)}' is {_name(character)}; {expected}"
    if character == "-":
        return f"{'an empty segment' if before[-1:] in ('', '-') else 'no segment can follow'}; {expected}"
    if character.swapcase() in node:
        return f"wrong case, write {character.swapcase()!r}"
    if meant and character not in LETTERS:
        return f"wrong case, {character!r} is no letter of a label but {meant!r} is; {expected}"
    return expected


def _either(node: Trie) -> str:
    letters = sorted(filter(None, node), key=f"{LETTERS[:-1]}-!".index)
    options = [repr(character) for character in letters] + ["the end"] * ("" in node)
    return " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))


def _name(character: str) -> str:
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "")
    return f"{name} ({code})" if name else f"the character {code}"
