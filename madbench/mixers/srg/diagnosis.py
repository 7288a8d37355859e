"""Error messages for texts that are no S/R/G label: the wrong character, the expected letters, the nearest label."""

from __future__ import annotations

import difflib
import itertools
import unicodedata

from madbench.errors import LabelError
from madbench.labels.diagnosis import SHOWN, point_at, quoted_choices
from madbench.mixers.srg.grammar import ALIASES, LETTERS, RuleError, from_letters, spell

MOST_EDITS = 3
EXAMPLES = "'S', 'R-c' or 'G-cg-q-12o'"
EXAMPLES_OF_ALL = "'S', 'G-cg-q-12o', 'KDA' (madbench ls operators) or 'cd:exp' (madbench ls families)"
"""Examples of labels of several families, shown for a text whose first character starts no S/R/G label."""


class InvalidLabel(LabelError):
    """Error for a text that is no S/R/G label. The message is computed only when shown, so that rejecting is cheap."""

    def __str__(self) -> str:
        label, rule = self.args[0], ""
        try:
            from_letters(label)
        except RuleError as error:  # point at the '!', or else at the first letter that adds parameters
            rule = str(error)
            if label == spell(label):
                at_fault = "!" if label.endswith("!") else [row.letter for row in LETTERS if row.is_paid]
                return point_at(label, next(i for i, letter in enumerate(label) if letter in at_fault), rule)
        except LabelError:  # the syntax is wrong, or a feature needs another base
            for each in LETTERS:
                if each.segment == "features" and each.needs and each.letter in label[1:] and label == spell(label):
                    others = label.replace(label[0], each.needs[0], 1), spell({*label} - {each.letter})
                    reason = f"{each.letter!r} ({each.name}) needs {quoted_choices(each.needs)} before it"
                    suggested = " or ".join(repr(other) for other in others if nearest(other) == other)
                    return point_at(label, label.index(each.letter), f"{reason}; did you mean {suggested}?")
        position = 0
        while position < len(label) and _begins_label(label[: position + 1]):
            position += 1
        before, character, rest = label[:position], label[position : position + 1], label[position + 1 :]
        letters = [*(row.letter for row in LETTERS[:-1]), "-", LETTERS[-1].letter]
        options = [repr(letter) for letter in letters if _begins_label(before + letter)]
        if _is_label(before):
            options.append("the end")
        row = next((row for row in LETTERS if row.letter == character), None)
        suggestion = nearest(label, *([label + row.needs, before + rest] if row else []))
        examples = EXAMPLES if before else EXAMPLES_OF_ALL
        hint = rule or (f"did you mean {suggestion!r}?" if suggestion else f"labels look like {examples}")
        place = f"after {before[-1]!r}" if before else "at the start"
        return point_at(label, position, f"expected {quoted_choices(options)} {place}; {hint}")


def _is_label(text: str) -> bool:
    try:
        return str(from_letters(text)) == text
    except LabelError:
        return False


def _begins_label(text: str) -> bool:
    """True if some label begins with ``text``, which is not empty.

    Every beginning of a label is a label itself, or becomes one if q, 1 or ! is appended.
    """
    return any(_is_label(text + end) for end in ("", "q", "1", "!"))


def nearest(text: str, *repaired: str) -> str | None:
    """The valid label or alias that is nearest to ``text``. None if nothing is near.

    It is the first of these that exists, where case is ignored:

    1. an alias with a similar spelling;
    2. the label with the letters of ``text``, in any order;
    3. the label with the letters of a ``repaired`` text;
    4. of all labels that have the letters of ``text`` except for at most ``MOST_EDITS`` that are removed or added, the
       one with the fewest changed characters, and of several such labels the one of most similar length. Only letters
       of the paper's Table 1 are added.

    If ``text`` has more than ``SHOWN`` characters, only an alias is returned.
    """
    names = {name.lower(): name for name in ALIASES}
    close = difflib.get_close_matches(text[:20].lower(), names, n=1, cutoff=0.75)
    if close:
        return names[close[0]]
    if len(text) > SHOWN:
        return None
    texts = ["".join(unicodedata.normalize("NFKC", each).split()) for each in (text, *repaired)]
    texts = [each[:1].upper() + each[1:].lower() for each in texts]
    for each in texts:
        try:
            return str(from_letters(each))
        except LabelError:
            continue
    text, matcher = texts[0], difflib.SequenceMatcher(autojunk=False)
    bases = [row.letter for row in LETTERS if row.segment == "base"]
    base = next((letter for letter in text if letter in bases), "S")
    others = [row.letter for row in LETTERS if row.letter not in bases and (row.is_in_table1 or row.letter in text)]
    letters = {base, *(letter for letter in others if letter in text)}
    matcher.set_seq2(text)

    def changes(label: str) -> tuple[int, int]:
        matcher.set_seq1(label)
        edits = (max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")
        return sum(edits), abs(len(label) - len(text))

    most = min(MOST_EDITS, len(text) - 1)
    edited = (spell(letters ^ {*some}) for count in range(most + 1) for some in itertools.combinations(others, count))
    best = min(filter(_is_label, edited), key=changes, default=None)
    return best if best and changes(best)[0] <= most else None
