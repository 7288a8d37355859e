"""The width of columns in printed lists, and captions of matched quantities."""

from __future__ import annotations

import pytest

from madbench.cli.shared.printing import table_lines
from madbench.labels.names import DisplayNames, using_names

ROWS = [
    {"label": "G-cg-q-12o", "task": "漢字", "lr": "0.1", "folder": "/a/b"},
    {"label": "S", "task": "compression", "lr": None, "folder": "/a/b/cc"},
    {"label": "[bold]", "task": "", "lr": 0.25, "folder": "x"},
]


def test_columns_are_padded_to_their_widest_cell():
    assert table_lines(ROWS, right=("lr",)) == [
        "label       task           lr  folder ",
        "─" * 38,
        "G-cg-q-12o  漢字          0.1  /a/b   ",
        "S           compression     -  /a/b/cc",
        "[bold]                   0.25  x      ",
    ]


def test_only_the_last_column_folds_to_the_width():
    rows = [{"task": "a", "what": "seven words of which the last is uncut"}, {"task": "bb", "what": "short"}]
    assert table_lines(rows, width=24)[2:] == [
        "a     seven words of which",
        "      the last is uncut   ",
        "bb    short               ",
    ]
    assert max(map(len, table_lines(rows, width=200))) < 60


@pytest.mark.slow
def test_the_caption_names_another_matched_quantity_than_parameters(main, fill, tiny):
    fill(["S-p", "R-c"], budget="flops")
    shown = main("table", "-t", "compression", "-p", tiny, "--match", "flops").stdout
    assert "matched by flops)" in " ".join(shown.split())


def test_a_display_name_replaces_no_unit_or_word_of_a_list():
    with using_names(DisplayNames(by_user={"G": "HyperGLU"})):
        assert table_lines([{"FLOPs": "15.0 G", "meaning": "identity, G"}])[2] == "15.0 G  identity, G"
