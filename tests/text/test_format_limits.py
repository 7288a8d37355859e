"""Limits of lines, documents and skipped rows."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest

from madbench.errors import ConfigError
from madbench.text.documents import BadRowError
from madbench.text.sources import TextLimits, find_sources
from shards import FORMATS, lines_of, pack, refusal_under_limits, write, write_parquet
from source_samples import only_source


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_line_beyond_the_limit_is_refused_and_the_longest_allowed_is_read(tmp_path, name):
    path, longest = write(tmp_path / name, ["x" * 10_000]), len(lines_of(["x" * 10_000]))
    assert refusal_under_limits(path, line=longest - 1).startswith(f"{path}:1: a line of more than 0.01")
    assert len(list(find_sources([str(path)], limits=TextLimits(line=longest))[0].documents())) == 1


@pytest.mark.parametrize("name", [*FORMATS, "a.txt"])
def test_a_document_beyond_the_limit_is_refused_with_the_option_that_allows_it(tmp_path, name):
    path = tmp_path / name
    path.write_text("x" * 2000) if name == "a.txt" else write(path, ["short", "x" * 2000])
    assert (
        refusal_under_limits(path, document=1999)
        == f"{path}: a document of more than 0.001999 MB; --max-document MB allows longer ones"
    )


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_a_long_line_takes_little_memory(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b"a" * 1_000_000)
    tracemalloc.start()
    problem = refusal_under_limits(path, line=2_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "a line of more than 2 MB" in problem and peak < 10_000_000


BAD_ROWS = [None, 7, ["a"], {"text": "a"}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson.gz", "array.json"])
def test_bad_rows_are_skipped_and_counted_with_skip_bad(tmp_path, name):
    rows = [json.dumps({"text": text}) for text in ["a", *BAD_ROWS, "b", None, "", "c"]] + ['{"txt": "d"}', "7"]
    syntax = [] if name == "array.json" else ["{", '{"text": "e"', "\ufffe"]
    content = "[" + ",\n".join(rows) + "]" if name == "array.json" else "\n".join(rows + syntax)
    path = pack(tmp_path / name, content.encode())
    (source,) = find_sources([str(path)], skip_bad=True)
    for _ in range(2):
        assert list(source.documents()) == ["a", "b", "c"]
        assert source.skipped == 7 + len(syntax)
    with pytest.raises(BadRowError, match=":2: key 'text': expected text, got nothing"):
        list(only_source(path).documents())


def test_null_rows_of_parquet_are_skipped_and_counted(tmp_path):
    write_parquet(tmp_path / "a.parquet", text=["a", None, "", None, "b"])
    (source,) = find_sources([str(tmp_path / "a.parquet")], skip_bad=True)
    assert list(source.documents()) == ["a", "b"] and source.skipped == 2


def test_skip_bad_is_refused_without_rows_and_does_not_excuse_a_missing_column(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="--skip-bad has no effect: none of the sources has rows"):
        find_sources([str(tmp_path / "a.txt")], skip_bad=True)
    write_parquet(tmp_path / "a.parquet", txt=["a"])
    (source,) = find_sources([str(tmp_path / "a.parquet")], skip_bad=True)
    with pytest.raises(ConfigError, match="no column 'text'"):
        list(source.documents())
