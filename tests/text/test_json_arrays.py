"""JSON lines and JSON arrays, compressed, and read in chunks of any size."""

from __future__ import annotations

import io
import json
import tracemalloc

import pytest

from madbench.errors import ConfigError
from madbench.text import formats
from madbench.text.formats import json_array
from shards import DOCUMENTS, lines_of, pack, refusal_under_limits
from source_samples import only_source

ARRAY = json.dumps([{"text": text, "n": [{"text": "]"}]} for text in DOCUMENTS], indent=1).encode()
JSON = {
    "lines": lines_of(DOCUMENTS),
    "an array on lines": ARRAY,
    "an array on a line": json.dumps([{"text": text} for text in DOCUMENTS], ensure_ascii=False).encode(),
    "an array with a byte order mark": b"\xef\xbb\xbf\r\n " + ARRAY.replace(b"\n", b"\r\n") + b"\r\n\r\n",
    "lines with a byte order mark": b"\xef\xbb\xbf" + lines_of(DOCUMENTS),
}


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", JSON)
def test_json_files_may_hold_lines_or_an_array(tmp_path, kind, packing):
    assert list(only_source(pack(tmp_path / f"a.json{packing}", JSON[kind])).documents()) == DOCUMENTS


@pytest.mark.parametrize("ending", [".ndjson", ".NDJSON", ".ndjson.gz", ".ndjson.zst", ".JSONL", ".jsonlines", ".jl"])
def test_json_lines_are_recognized_by_several_file_endings(tmp_path, ending):
    assert list(only_source(pack(tmp_path / f"a{ending}", lines_of(DOCUMENTS))).documents()) == DOCUMENTS


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1000])
def test_an_array_is_read_equally_for_any_size_of_chunks(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(formats, "CHUNK_BYTES", chunk)
    rows = [{"text": text} for text in ('é\\"\n', "\U0001f600" * 9, "", "x" * 300)] + [
        {"text": "b", "n": [1.5e3, None]}
    ]
    path = pack(tmp_path / "a.json", json.dumps(rows, ensure_ascii=False, indent=2).encode())
    assert list(only_source(path).documents()) == [row["text"] for row in rows if row["text"]]


@pytest.mark.parametrize("chunk", range(1, 9))
def test_an_element_is_not_cut_off_where_a_read_ends(monkeypatch, chunk):
    monkeypatch.setattr(formats, "CHUNK_BYTES", chunk)
    content = b'[1.5e-07, -20.25,true , null,"\\ud83d\\ude00",{}, [ ]]'
    assert [value for _, value in json_array(io.BytesIO(content), 100, "a")] == json.loads(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'[{"text": "a"}\n {"text": "b"}]', ":2: not valid JSON: expected ',' or ']' after an element"),
        (b'[{"text": "a"},\n\n{"text": b}]', ":3: not valid JSON: Expecting value"),
        (b'[{"text": "a"},\n{"text": "b"', ":2: not valid JSON: Expecting ',' delimiter"),
        (b'[{"text": "a"},\n{"text": "b', ":2: not valid JSON: Unterminated string"),
        (b'[{"text": "a"},\n', ":2: not valid JSON: Expecting value"),
        (b'[{"text": "a"}]\n[]', ":2: not valid JSON: something after the end of the array"),
        (b'[{"text": "a"},\n"b"]', ':2: expected an object such as {"text": "..."}'),
        (b'[{"text": "a"},\n12', ':2: expected an object such as {"text": "..."}'),
        (b'[{"text": "a"},\n{"text": null}]', ":2: key 'text': expected text, got nothing"),
        (b'[{"text": "a"},\n{"txt": "b"}]', ":2: no key 'text' (choose it with --text-key); did you mean 'txt'?"),
        (b'[{"text": "a"},\n' + b"[" * 100_000, ":2: not valid JSON: "),
        (
            b'{"text": "a"}\n{"text": b}',
            ":2: not valid JSON (an array of objects, or one object per line): Expecting value",
        ),
    ],
)
def test_a_bad_array_element_is_an_error_after_the_documents_before_it(tmp_path, content, problem):
    path = pack(tmp_path / "a.json", content)
    documents = only_source(path).documents()
    assert next(documents) == "a"
    with pytest.raises(ConfigError) as caught:
        list(documents)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("content", [b"", b" \n", b"[]", b" [ ] \n"])
def test_json_without_rows_has_no_document(tmp_path, content):
    assert list(only_source(pack(tmp_path / "a.json", content)).documents()) == []


@pytest.mark.slow
def test_an_array_is_streamed_in_memory_independent_of_its_size(tmp_path):
    peaks, element = [], json.dumps({"text": "a" * 100_000}).encode()
    for megabytes in (5, 30):
        path = pack(tmp_path / "a.json.gz", b"[" + b",\n".join([element] * (10 * megabytes)) + b"]")
        source = only_source(path)
        tracemalloc.start()
        assert sum(1 for _ in source.documents()) == 10 * megabytes
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 15e6


@pytest.mark.slow
def test_an_element_beyond_the_limit_is_refused_before_it_is_in_memory(tmp_path):
    path = pack(tmp_path / "a.json.gz", b'[{"text": "' + b"x" * 50_000_000 + b'"}]')
    tracemalloc.start()
    problem = refusal_under_limits(path, line=2_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem.startswith(f"{path}:1: an element of more than 2 MB; --max-line") and peak < 20_000_000
