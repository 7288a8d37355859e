"""The full message of each rule of the grammar."""

from __future__ import annotations

import itertools
import random

import pytest

from madbench.errors import LabelError
from madbench.labels import every_label, parse
from madbench.labels.diagnosis import escape, point_at
from madbench.mixers.srg.diagnosis import nearest
from madbench.mixers.srg.listing import all_labels
from srg_letters import BASES, END, features_after, text_of_choices

ALL_KINDS = "labels look like 'S', 'G-cg-q-12o', 'KDA' (madbench ls operators) or 'cd:exp' (madbench ls families)"
MESSAGES = {
    "G-cx-q-12o": (10, f"expected {features_after('c', '-', END, base='G')} after 'c'; did you mean 'G-cg-q-12o'?"),
    "X": (7, f"expected {text_of_choices(BASES)} at the start; {ALL_KINDS}"),
    "Gcg-q": (8, "expected '-' or the end after 'G'; did you mean 'G-cg-q'?"),
    "G-cg-qq": (13, "expected '-' or the end after 'q'; did you mean 'G-cg-q'?"),
    "G-gc-q-12o": (10, f"expected {features_after('g', '-', '!', base='G')} after 'g'; did you mean 'G-cg-q-12o'?"),
    "G-cg-q-21o": (15, "expected 'o' or the end after '2'; did you mean 'G-cg-q-12o'?"),
    "S-q-1-c": (12, "expected '2', 'o' or the end after '1'; did you mean 'S-c-q-1'?"),
    "S-cc": (10, f"expected {features_after('c', '-', END)} after 'c'; did you mean 'S-c'?"),
    "SR-c": (8, "expected '-' or the end after 'S'; did you mean 'S-c'?"),
    "S-q-v": (11, "expected '1' or '2' after '-'; did you mean 'S-q'?"),
    "s": (7, f"expected {text_of_choices(BASES)} at the start; did you mean 'S'?"),
    "S-C-q": (9, f"expected {features_after('', *'qv12')} after '-'; did you mean 'S-c-q'?"),
    "S-G-q": (9, f"expected {features_after('', *'qv12')} after '-'; did you mean 'S-g-q'?"),
    "": (7, f"expected {text_of_choices(BASES)} at the start; {ALL_KINDS}"),
    "S-c-": (11, "expected 'q', 'v', '1' or '2' after '-'; did you mean 'S-c'?"),
    "S--c": (9, f"expected {features_after('', *'qv12')} after '-'; did you mean 'S-c'?"),
    "-c": (7, f"expected {text_of_choices(BASES)} at the start; did you mean 'S-c'?"),
    "S -c": (8, "expected '-' or the end after 'S'; did you mean 'S-c'?"),
    "G-\u0441g-q": (9, f"expected {features_after('', *'qv12', base='G')} after '-'; did you mean 'G-pg-q'?"),
    "\uff27-q": (7, f"expected {text_of_choices(BASES)} at the start; did you mean 'G-q'?"),
    "S\u2013c": (8, "expected '-' or the end after 'S'; did you mean 'S-c'?"),
    "R-cg-q-o": (14, "expected '1' or '2' after '-'; did you mean 'R-cg-q-12o'?"),
    "G-cg-q-12o!": (
        17,
        "'!' lifts the budget and 'q' enforces it, which is a contradiction; did you mean 'G-cg-q-12o' or 'G-cg-12o!'?",
    ),
    "S-c-v!": (
        12,
        "'!' lifts the budget and 'v' enforces it, which is a contradiction; did you mean 'S-c-v' or 'S-c'?",
    ),
    "G-c-12o": (
        11,
        (
            "'12' adds parameters; add q to compress QK ('G-c-q-12o'), v to compress VO ('G-c-v-12o') or ! to lift "
            "the budget ('G-c-12o!')"
        ),
    ),
    "S-pg": (
        10,
        (
            "'g' adds parameters; add q to compress QK ('S-pg-q'), v to compress VO ('S-pg-v') or ! to lift "
            "the budget ('S-pg!')"
        ),
    ),
    "R-c!": (10, "'!' has no effect: no letter adds parameters, so there is no budget to lift; did you mean 'R-c'?"),
    "S-pc-g": (
        12,
        (
            "expected 'q', 'v', '1' or '2' after '-'; 'g' adds parameters; add q to compress QK ('S-pcg-q'), v to "
            "compress VO ('S-pcg-v') or ! to lift the budget ('S-pcg!')"
        ),
    ),
    "S-pme!!": (
        12,
        (
            f"expected {features_after('e', '-', END)} after 'e'; '!' has no effect: no letter adds parameters, so "
            "there is no budget to lift; did you mean 'S-pme'?"
        ),
    ),
    "R-ag-q": (10, f"expected {features_after('a', '-', '!', base='R')} after 'a'; did you mean 'R-ga-q'?"),
    "D-pk": (
        10,
        (
            "'k' adds parameters; add q to compress QK ('D-pk-q'), v to compress VO ('D-pk-v') or ! to lift "
            "the budget ('D-pk!')"
        ),
    ),
    "D-kx-q": (10, f"expected {features_after('k', '-', '!')} after 'k'; did you mean 'D-k-q'?"),
    "D!": (8, "'!' has no effect: no letter adds parameters, so there is no budget to lift; did you mean 'D'?"),
    "HyperGLUE": (7, f"expected {text_of_choices(BASES)} at the start; did you mean 'HyperGLU'?"),
}


def message(label: str) -> str:
    with pytest.raises(LabelError) as caught:
        parse(label)
    return str(caught.value)


@pytest.mark.parametrize("label", MESSAGES)
def test_error_messages_and_their_carets(label):
    column, text = MESSAGES[label]
    assert message(label) == f"label '{escape(label)}'\n{' ' * column}^ {text}"


def test_the_caret_accounts_for_escaped_characters():
    offered = features_after("c", "-", END)
    assert message("S-c\t\u0000").startswith(f"label 'S-c\\t\\x00'\n          ^ expected {offered}")
    assert message("\ud800").startswith(f"label '\\ud800'\n       ^ expected {text_of_choices(BASES)} at the start")
    assert point_at("\u6f22\tx", 2, "here") == "label '\\u6f22\\tx'\n               ^ here"


def test_a_long_text_is_shown_around_its_fault():
    shown, caret = point_at("a" * 200 + "X" + "b" * 200, 200, "here").split("\n")
    assert shown[caret.index("^")] == "X" and len(shown) < 80


@pytest.mark.slow
def test_every_character_named_as_expected_begins_a_label():
    befores = sorted(
        {label[:i] for label in all_labels() for i in range(len(label))} | {"D-pg", "R-ck", "G-a", "D-ga-v"}
    )
    following = {}
    for label in every_label():
        for i, letter in enumerate(label):
            following.setdefault(label[:i], set()).add(letter)
    for before in befores:
        text = message(before + "x")
        offered = text[text.index("expected") :].split(" after ")[0].split(" at the start")[0]
        letters = {part for part in offered.split("'") if len(part) == 1 and part != " "}
        assert letters == following.get(before, set()), before


def levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        new = [i + 1]
        for j, y in enumerate(b):
            new.append(min(row[j] + (x != y), row[j + 1] + 1, new[j] + 1))
        row = new
    return row[-1]


@pytest.mark.slow
def test_suggested_labels_are_within_one_edit_of_the_nearest():
    draw = random.Random(1)
    checked = 0
    for _ in range(60):
        text = list(draw.choice(all_labels()))
        for _ in range(draw.randrange(1, 4)):
            position = draw.randrange(len(text))
            text[position : position + 1] = draw.choice(("", "x", "z-", "-", "qv", "y"))
        text = "".join(text)
        suggestion = nearest(text)
        if not suggestion or text in all_labels() or suggestion == _reordered(text):
            continue
        least = min(levenshtein(text, label) for label in all_labels())
        assert levenshtein(text, suggestion) <= least + (least > 1), (text, suggestion)
        checked += 1
    assert checked > 20


def _reordered(text: str) -> str | None:
    """The label with exactly the letters of ``text``, if there is one."""
    letters = set(text) - {"-"}
    return next((label for label in all_labels() if set(label) - {"-"} == letters), None)


def test_a_label_with_reordered_segments_is_suggested():
    for segments in itertools.permutations(("cg", "q", "12o")):
        assert nearest("-".join(("G", *segments))) == "G-cg-q-12o"
