"""studies/heuristics.py: refused arguments."""

from __future__ import annotations

import pytest

import heuristics


@pytest.mark.parametrize("words", [["--help"], ["--seeds", "3"]])
def test_the_study_of_heuristics_refuses_wrong_words_before_it_computes(words, monkeypatch, capsys):
    monkeypatch.setattr(heuristics, "shipped_settings", lambda: pytest.fail("settings were worked out"))
    with pytest.raises(SystemExit):
        heuristics.main(words)
    shown = capsys.readouterr()
    assert "usage" in shown.out + shown.err
