"""studies/heuristics.py."""

from __future__ import annotations

import pytest

import heuristics


@pytest.mark.parametrize("words", [["--help"], ["--seeds", "3"]])
def test_words_are_answered_before_anything_is_worked_out(words, monkeypatch, capsys):
    monkeypatch.setattr(heuristics, "shipped_settings", lambda: pytest.fail("settings were worked out"))
    with pytest.raises(SystemExit):
        heuristics.main(words)
    shown = capsys.readouterr()
    assert "usage" in shown.out + shown.err
