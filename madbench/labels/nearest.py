"""The label somebody meant: look-alikes, case and order are put right first, then the fewest edits decide."""

from __future__ import annotations

import difflib
import functools
import unicodedata

from madbench.errors import LabelError
from madbench.labels.grammar import ALIASES, Variant, all_labels

LETTERS = "SRGpcgqv12o!"
"""Every letter of the grammar, in the order in which a label has them; the hyphen separates segments."""

MOST_EDITS = 3
_LONGEST = 11

# Characters drawn like ours that Unicode normalisation does not relate to them: Cyrillic, Greek, Latin, Cherokee
# letters, a click letter, hyphens and dashes.
_LOOK_ALIKES = {
    **dict.fromkeys("\u0405\u0455\u13da", "S"),
    **dict.fromkeys("\u13a1\u13d2", "R"),
    **dict.fromkeys("\u050c\u050d\u13c0", "G"),
    **dict.fromkeys("\u0420\u0440\u03a1\u03c1", "p"),
    **dict.fromkeys("\u0421\u0441\u03f2\u03f9", "c"),
    "\u0261": "g",
    **dict.fromkeys("\u051a\u051b", "q"),
    **dict.fromkeys("\u0474\u0475\u03bd", "v"),
    **dict.fromkeys("\u041e\u043e\u039f\u03bf", "o"),
    "\u01c3": "!",
    **dict.fromkeys("\u00ad\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
}

Trie = dict[str, "Trie"]


@functools.cache
def trie() -> Trie:
    """Every label, one level a character; the key ``""`` marks the end of a label."""
    root: Trie = {}
    for label in all_labels():
        node = root
        for character in label:
            node = node.setdefault(character, {})
        node[""] = {}
    return root


def letter_meant(character: str) -> str:
    """The letter of the grammar, or hyphen, that a character is or looks like in any case; ``""`` if there is none."""
    base = _LOOK_ALIKES.get(character) or unicodedata.normalize("NFKD", character)[:1]
    choices = (base, base.lower(), base.upper())
    return next((choice for choice in choices if choice and choice in f"{LETTERS}-"), "")


def nearest(text: str) -> str | None:
    """The valid label or alias nearest to ``text``, or None when nothing is near."""
    if text.isalpha() and 6 <= len(text) <= 15:
        names = {name.lower(): name for name in ALIASES}
        close = difflib.get_close_matches(text.lower(), names, n=1, cutoff=0.75)
        if close:
            return names[close[0]]
    if len(text) > 4 * _LONGEST:
        return None
    letters = [letter_meant(character) or "?" for character in text if not character.isspace()]
    if letters[:1] == ["g"]:
        letters[0] = "G"
    letters[1:] = ["g" if letter == "G" else letter for letter in letters[1:]]
    return _in_order(letters) or _fewest_edits("".join(letters))


def _in_order(letters: list[str]) -> str | None:
    """The label with exactly these letters, whatever their order, repetitions and hyphens."""
    given = set(letters) - {"-"}
    bases, ranks = given & set("SRG"), given & set("qv")
    if len(bases) != 1 or len(ranks) > 1 or "?" in given:
        return None
    names = dict(p="rope", c="conv", g="gates", o="lag")
    flags = {name: letter in given for letter, name in names.items()}
    flags |= dict(mix1="1" in given, mix2="2" in given, over="!" in given)
    try:
        return str(Variant(base=bases.pop(), rank="".join(ranks), **flags))
    except LabelError:
        return None


def _fewest_edits(text: str) -> str | None:
    """The label with the fewest insertions, deletions and substitutions, ``MOST_EDITS`` at most.

    Among equals, one of the same length comes first. A walk down the trie carries one row of the edit table for each
    level and leaves a branch once no entry of its row can lead to a better label than the best found. The labels of
    one base suffice: no other is nearer than those of the first base in the text.
    """
    limit = min(MOST_EDITS, len(text) - 1)
    if _surplus(text) > limit or len(text) > _LONGEST + limit:
        return None
    best: tuple[int, int, str | None] = (limit, _LONGEST, None)

    def descend(node: Trie, prefix: str, row: list[int]) -> None:
        nonlocal best
        for character, child in node.items():
            if not character:
                candidate = (row[-1], abs(len(text) - len(prefix)), prefix)
                best = candidate if candidate[:2] < best[:2] else best
                continue
            left = row[0] + 1
            below = [left]
            diagonal = row[0]
            for given, above in zip(text, row[1:]):
                left = min(left, above) + 1
                if diagonal + (given != character) < left:
                    left = diagonal + (given != character)
                diagonal = above
                below.append(left)
            if min(below) <= best[0] - (best[1] == 0):
                descend(child, prefix + character, below)

    base = next((letter for letter in text if letter in "SRG"), "S")
    descend({base: trie()[base]}, "", list(range(len(text) + 1)))
    return best[2]


def _surplus(text: str) -> int:
    """How many characters no label has room for; each costs an edit of its own."""
    spare = {"?": 0, "-": 3, "SRG": 1, "qv": 1} | dict.fromkeys("pcg12o!", 1)
    return sum(max(0, sum(map(text.count, letters)) - room) for letters, room in spare.items())
