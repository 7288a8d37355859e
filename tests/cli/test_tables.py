from __future__ import annotations

from rich.console import Console

from madbench.cli.tables import Lines, plain_lines, plain_table

ROWS = [
    {"label": "G-cg-q-12o", "task": "漢字", "lr": "0.1", "folder": "/a/b"},
    {"label": "S", "task": "compression", "lr": None, "folder": "/a/b/cc"},
    {"label": "[bold]", "task": "", "lr": 0.25, "folder": "x"},
]


def printed(shown, width: int, **choices) -> str:
    console = Console(width=width, **choices)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_plain_lines_look_like_the_plain_table():
    assert printed(plain_lines(ROWS, right=("lr",)), 80) == printed(plain_table(ROWS, right=("lr",)), 80)


def test_plain_lines_are_as_wide_as_their_widest():
    lines = plain_lines(ROWS)
    widest = max(map(len, printed(lines, 80).replace("漢字", "____").splitlines()))
    assert lines.width == widest


def test_a_line_wider_than_the_terminal_folds_and_keeps_its_style():
    lines = Lines([("short", "bold"), ("x" * 30, "dim")])
    assert printed(lines, 20) == "short\n" + "x" * 20 + "\n" + "x" * 10 + "\n"
    styled = printed(lines, 20, force_terminal=True, color_system="standard")
    assert "\x1b[1mshort\x1b[0m" in styled and styled.count("\x1b[2m") == 2
