"""The check of commit messages names what is wrong with a title or a body."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / ".ci" / "message"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Add a letter\n\nIt was missing.\n", ""),
        ("Add a letter\n\nIt was missing.\n# Please enter the commit message\n", ""),
        ("fixup! Add a letter\n", ""),
        ("# only comments\n", "the title is empty"),
        (f"{'x' * 73}\n\nWhy.\n", "the title has 73 characters; at most 72 are allowed"),
        ("Add a letter.\n\nWhy.\n", "the title ends with a period"),
        ("Add a letter\nbecause\n", "the line below the title is not empty"),
        ("Add a letter\n\n# a comment\n", "there is no body that says why"),
    ],
)
def test_a_message_needs_a_short_title_and_a_body(tmp_path, message, problem):
    path = tmp_path / "message"
    path.write_text(message)
    checked = subprocess.run([sys.executable, CHECK, path], capture_output=True, text=True)
    assert checked.returncode == bool(problem) == bool(checked.stderr)
    assert problem in checked.stderr.replace("commit message: ", "").splitlines() or not problem
