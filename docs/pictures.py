"""The anatomy of a label and the house as SVG.

``python docs/pictures.py G-cg-q-12o`` and ``python docs/pictures.py house`` print them to the standard output; those of
the pages are in ``docs/pages/pictures``.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from madbench.errors import LabelError
from madbench.labels import parse
from madbench.mixers.srg.grammar import LETTERS, SrgLabel

COLORS = {"base": "#1f5fa8", "features": "#1c7c54", "rank": "#a14a00", "mixing": "#7a3b9a", "budget": "#a1262f"}
WHAT = {
    "G": "GLU: one set of heads selects, another weighs",
    "c": "short causal convolution on K and V",
    "g": "gates on QK and VO",
    "q": "the QK rank is reduced to keep the budget",
    "v": "the VO rank is reduced to keep the budget",
    "1": "scores are mixed over the sequence, R(1)",
    "2": "activations are mixed over the sequence, R(2)",
    "o": "mixing counts back from the current token",
    "!": "nothing compressed: exceeds the budget",
}
"""Labels of letters in the picture, for letters whose names say too little."""
WIDTH, ROW, LETTER, LEFT, TOP = 700, 32, 23, 22, 16


def label_picture(label: str) -> str:
    """SVG of ``label`` (S, R, G, D). Below it, one line per letter says what the letter does."""
    segments = {letter.letter: letter.segment for letter in LETTERS}
    names = {letter.letter: letter.name for letter in LETTERS}
    letters = [(i, letter) for i, letter in enumerate(label) if letter in segments]
    baseline = TOP + ROW * len(letters) + 44
    text_left = LEFT + LETTER * len(label) + 18
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {baseline + 24}" role="img"'
            f' aria-label="Anatomy of the label {escape(label)}">'
        ),
        f'<rect width="{WIDTH}" height="{baseline + 24}" rx="8" fill="#ffffff" stroke="#d5d9de"/>',
    ]
    for i, letter in enumerate(label):
        color = COLORS[segments[letter]] if letter in segments else "#8a929a"
        parts.append(
            f'<text x="{LEFT + LETTER * i + LETTER / 2}" y="{baseline}" font-family="ui-monospace, DejaVu Sans Mono,'
            f' monospace" font-size="34" font-weight="600" text-anchor="middle" fill="{color}">{escape(letter)}</text>'
        )
    for row, (i, letter) in enumerate(letters):
        what = WHAT.get(letter, names[letter])
        segment, x, y = segments[letter], LEFT + LETTER * i + LETTER / 2, TOP + ROW * row + ROW / 2
        color = COLORS[segment]
        parts.append(
            f'<path d="M{x} {baseline - 32}V{y}H{text_left - 8}" fill="none" stroke="{color}" stroke-width="1.6"/>'
        )
        parts.append(
            f'<text x="{text_left}" y="{y + 5}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="15"'
            f' fill="#1d232a"><tspan fill="{color}" font-weight="600">{segment}</tspan>  {escape(what)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


FLOORS = (
    (("labels", "a label's text, sets, neighbors"),),
    (("mixers", "grammar, ranks, operators: one folder a family"),),
    (("models", "MAD's, GPT-2's"), ("tasks", "generators"), ("text", "corpora")),
    (("suites", "tasks, profiles, columns, averages, protocol"),),
    (("experiment", "a checked plan"), ("training", "one loop"), ("execute", "local, Ray, Slurm")),
    (("store", "one folder a run, written once"),),
    (("analysis", "scores, one inference, tables, figures"),),
    (("papers", "items, claims"), ("report", "one page"), ("cli", "one file a verb")),
)
"""Rooms by floor, from the ground up: imports point down."""
WAY = ("G-cg-q-12o", "Label", "Allocation, mixer", "model, data", "Job", "Record", "run", "row of a table", "report")
"""What is handed up from floor to floor."""


def house_picture() -> str:
    """SVG of the packages of madbench as floors of a house, and of what each floor makes from a label."""
    width, floor, left, right = 760, 62, 180, 20
    height = floor * len(FLOORS) + 72
    text = 'font-family="system-ui, DejaVu Sans, sans-serif"'
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
            ' aria-label="Packages of madbench by floor, and the way of a label through them">'
        ),
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d5d9de"/>',
    ]
    for row, rooms in enumerate(FLOORS):
        y = height - 46 - floor * (row + 1)
        step = (width - left - right) / len(rooms)
        for column, (name, what) in enumerate(rooms):
            x = left + step * column
            parts.append(
                f'<rect x="{x:g}" y="{y}" width="{step - 8:g}" height="{floor - 12}" rx="6" fill="#eef3f9"'
                ' stroke="#1f5fa8"/>'
            )
            middle = x + (step - 8) / 2
            for dy, size, weight, words in ((20, 15, 600, name), (38, 12, 400, what)):
                parts.append(
                    f'<text x="{middle:g}" y="{y + dy}" {text} font-size="{size}" font-weight="{weight}"'
                    f' text-anchor="middle" fill="#1d232a">{escape(words)}</text>'
                )
    for row, words in enumerate(WAY):
        y = height - 40 - floor * row
        parts.append(
            f'<text x="{left - 40}" y="{y + 4}" {text} font-size="13" text-anchor="end" fill="#7a3b9a">'
            f"{escape(words)}</text>"
        )
        parts.append(f'<circle cx="{left - 24}" cy="{y}" r="4" fill="#7a3b9a"/>')
        if row:
            parts.append(
                f'<path d="M{left - 24} {y + floor - 6}V{y + 9}m-4 6l4 -6l4 6" fill="none" stroke="#7a3b9a"'
                ' stroke-width="1.6"/>'
            )
    parts.append(
        f'<text x="{left}" y="{height - 14}" {text} font-size="12" fill="#4a525a">Imports point down; what a label'
        " becomes goes up.</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(words: list[str]) -> str:
    """The picture that the words of the command name. Exits with a message if they name none."""
    if len(words) != 1 or words[0].startswith("-"):
        raise SystemExit(
            "usage: python docs/pictures.py LABEL > picture.svg   (a label of S, R, G, D or L, such as G-cg-q-12o)\n"
            "       python docs/pictures.py house > picture.svg   (the packages of madbench)"
        )
    if words[0] == "house":
        return house_picture()
    try:
        label = parse(words[0])
    except LabelError as error:
        raise SystemExit(str(error)) from None
    if not isinstance(label, SrgLabel):
        raise SystemExit(
            f"{words[0]} has no such picture: only in labels of S, R, G, D and L does each letter switch on one part;"
            f" madbench explain {label} shows its equation"
        )
    return label_picture(str(label))


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
