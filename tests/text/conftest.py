"""Fixtures for corpora: files with documents, and a corpus that is prepared from them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from madbench.text import prepare as module
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare

SHARE = 0.2  # fifty documents are enough for validation by whole documents


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    """Three shards of 100 documents each, and one text file. Batches are small, so that each holds a few documents."""
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 2000)
    rng = random.Random(0)
    words = []
    for shard in range(3):
        lines = [json.dumps({"text": f"{shard}.{i}: " + "añ " * rng.randrange(99)}) for i in range(100)]
        words.append(str(tmp_path / f"{shard}.jsonl"))
        Path(words[-1]).write_text("\n".join(lines))
    (tmp_path / "whole.txt").write_text("a file is one document\n" * 50)
    return [*words, str(tmp_path / "whole.txt")]


@pytest.fixture
def whole(words, tmp_path):
    return prepare(words, tmp_path / "whole", PrepareOptions(validation=SHARE))
