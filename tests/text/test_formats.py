from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import pickle
import re
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from madbench.errors import ConfigError
from madbench.text import formats
from madbench.text.documents import BadRowError
from madbench.text.formats import json_array
from madbench.text.sources import Limits, find_sources
from source_samples import error_of, only

DOCUMENTS = [f"document {i} é\n" + hashlib.sha256(bytes([i])).hexdigest() for i in range(200)]


def lines_of(documents: list[str], key: str = "text") -> bytes:
    return b"".join(json.dumps({"meta": {"n": 1}, key: text}).encode() + b"\n" for text in documents)


def zstd(content: bytes) -> bytes:
    return pytest.importorskip("pyarrow").Codec("zstd").compress(content, asbytes=True)


def write_parquet(path: Path, compression: str = "snappy", **columns) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table, how = pyarrow.table(columns), {"row_group_size": 50, "compression": compression}
    pytest.importorskip("pyarrow.parquet").write_table(table, path, **how)


def write(path: Path, documents: list[str] = DOCUMENTS) -> Path:
    """``documents`` in the format of the path's name."""
    if path.suffix == ".parquet":
        write_parquet(path, text=documents)
    elif path.suffix == ".txt":
        path.write_text("\n".join(documents))
    else:
        pack = {".gz": gzip.compress, ".zst": zstd}.get(path.suffix, bytes)
        path.write_bytes(pack(lines_of(documents)))
    return path


FORMATS = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_documents_in_order(tmp_path, name):
    source = only(write(tmp_path / name))
    assert list(source.documents()) == DOCUMENTS
    assert source.name == str(tmp_path / name)


@pytest.mark.parametrize("name", [*FORMATS, "a.txt"])
def test_the_hash_is_that_of_the_file_and_comes_with_its_end(tmp_path, name):
    path = write(tmp_path / name)
    source = only(path)
    documents = source.documents()
    next(documents)
    assert source.sha256 is None
    assert 0 <= source.position <= source.size
    for _ in documents:
        pass
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert source.position == source.size == path.stat().st_size


@pytest.mark.parametrize("name", FORMATS)
def test_documents_start_again_after_an_abandoned_pass(tmp_path, name):
    source = only(write(tmp_path / name))
    first = source.documents()
    next(first)
    del first
    assert list(source.documents()) == list(source.documents()) == DOCUMENTS
    assert source.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


@pytest.mark.parametrize("name", FORMATS)
def test_empty_documents_are_skipped(tmp_path, name):
    assert list(only(write(tmp_path / name, ["a", "", "b"])).documents()) == ["a", "b"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_key_that_is_not_there_is_named_with_the_nearest(tmp_path, name):
    message = error_of(write(tmp_path / name), "texts")
    assert message.startswith(str(tmp_path / name))
    assert message.endswith("'texts' (choose it with --text-key); did you mean 'text'?")


def test_the_text_may_be_under_another_key(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines_of(["a", "b"], "body"))
    assert list(only(tmp_path / "a.jsonl", "body").documents()) == ["a", "b"]
    write_parquet(tmp_path / "a.parquet", body=["a", "b"], other=[1, 2])
    assert list(only(tmp_path / "a.parquet", "body").documents()) == ["a", "b"]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "a"])
def test_any_other_file_is_one_document_byte_for_byte(tmp_path, name):
    text = "one\r\ntwo\rthree\0é\n\n"
    (tmp_path / name).write_bytes(text.encode())
    assert list(only(tmp_path / name).documents()) == [text]


def test_an_empty_text_file_has_no_document_but_a_hash(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    source = only(tmp_path / "a.txt")
    assert list(source.documents()) == []
    assert source.sha256 == hashlib.sha256(b"").hexdigest()


def test_text_that_is_not_utf8_is_named_with_its_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 au lait")
    assert f"{tmp_path / 'a.txt'}: not UTF-8: byte 0xe9 at offset 3" in error_of(tmp_path / "a.txt")


def test_blank_lines_windows_ends_and_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n  \n{"text": "b"}')
    assert list(only(tmp_path / "a.jsonl").documents()) == ["a", "b"]


def test_a_lone_surrogate_becomes_the_replacement_character(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"text": "a\ud800b \ud83d\ude00"}')
    assert list(only(tmp_path / "a.jsonl").documents()) == ["a\ufffdb \U0001f600"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "b"', ":3: not valid JSON: Expecting ',' delimiter at character"),
        (b'{"text": "\xff"}', ":3: not valid JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, ":3: not valid JSON"),
        (b'["text"]', ':3: expected an object such as {"text": "..."}'),
        (b'{"txt": "b"}', ":3: no key 'text' (choose it with --text-key); did you mean 'txt'?"),
        (b'{"text": 7}', ":3: key 'text': expected text, got int"),
        (b'{"text": null}', ":3: key 'text': expected text, got nothing"),
    ],
)
def test_a_bad_line_is_named_and_the_ones_before_it_are_given(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + line + b"\n")
    documents = only(path).documents()
    assert next(documents) == "a"
    with pytest.raises(ConfigError) as caught:
        next(documents)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_several_compressed_frames_in_a_row_are_one_file(tmp_path, name):
    path = write(tmp_path / name)
    path.write_bytes(path.read_bytes() * 3)
    assert list(only(path).documents()) == DOCUMENTS * 3


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, -1])
def test_a_truncated_shard_is_an_error(tmp_path, name, kept):
    path = write(tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept >= 0 else kept])
    assert error_of(path).startswith(f"{path}: damaged after ")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_truncated_second_frame_is_an_error(tmp_path, name):
    path = write(tmp_path / name)
    path.write_bytes(path.read_bytes() + path.read_bytes()[:-3])
    assert "damaged after line " in error_of(path)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_file_of_another_format_is_an_error(tmp_path, name):
    if not name.endswith("gz"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(lines_of(DOCUMENTS))
    assert error_of(tmp_path / name).startswith(f"{tmp_path / name}: damaged after ")


def test_a_flipped_byte_in_gzip_is_an_error(tmp_path):
    path = write(tmp_path / "a.jsonl.gz")
    for offset in range(20, path.stat().st_size, 997):
        content = bytearray(path.read_bytes())
        content[offset] ^= 0xFF
        (tmp_path / "b.jsonl.gz").write_bytes(content)
        assert error_of(tmp_path / "b.jsonl.gz").startswith(f"{tmp_path / 'b.jsonl.gz'}:")


def test_a_flipped_byte_in_a_zstd_frame_with_checksum_is_an_error(tmp_path):
    pytest.importorskip("pyarrow")
    frame = bytes.fromhex("28b52ffd2414a100007b2274657874223a2022666c6970206d65227d0a908d8f7a")
    (tmp_path / "a.jsonl.zst").write_bytes(frame)
    assert list(only(tmp_path / "a.jsonl.zst").documents()) == ["flip me"]
    (tmp_path / "a.jsonl.zst").write_bytes(frame.replace(b"flip", b"slip"))
    assert "damaged after line 0: " in error_of(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize(("values", "got"), [([1, 2], "int"), (["a", None], "nothing")])
def test_a_parquet_row_that_is_no_text_is_named(tmp_path, values, got):
    write_parquet(tmp_path / "a.parquet", text=values)
    assert error_of(tmp_path / "a.parquet").endswith(f"column 'text': expected text, got {got}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_shard_is_streamed_in_memory_independent_of_its_size(tmp_path, name):
    line = lines_of(["a" * 100_000])
    peaks = []
    for megabytes in (5, 30):
        pack = gzip.compress if name.endswith("gz") else zstd
        (tmp_path / name).write_bytes(pack(line * (10 * megabytes)))
        assert (tmp_path / name).stat().st_size < 100_000
        source = only(tmp_path / name)
        tracemalloc.start()
        assert sum(1 for _ in source.documents()) == 10 * megabytes
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 10e6


def test_a_disk_that_fails_is_not_taken_for_damage(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl.gz")

    def fail(*_):
        raise OSError(5, "Input/output error")

    source = only(path)
    monkeypatch.setattr(gzip.GzipFile, "readline", fail)
    with pytest.raises(ConfigError, match=r"a.jsonl.gz: cannot be read: input/output error"):
        list(source.documents())


def test_a_file_that_went_away_is_named(tmp_path):
    source = only(write(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"a.jsonl: cannot be read: no such file"):
        list(source.documents())


def limited(path: Path, **limits: int) -> str:
    """The reason why the source is refused under the limits."""
    (source,) = find_sources([str(path)], limits=Limits(**limits))
    with pytest.raises(ConfigError) as caught:
        list(source.documents())
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_line_beyond_the_limit_is_refused_and_the_longest_allowed_is_read(tmp_path, name):
    path, longest = write(tmp_path / name, ["x" * 10_000]), len(lines_of(["x" * 10_000]))
    assert limited(path, line=longest - 1).startswith(f"{path}:1: a line of more than 0.01")
    assert len(list(find_sources([str(path)], limits=Limits(line=longest))[0].documents())) == 1


@pytest.mark.parametrize("name", [*FORMATS, "a.txt"])
def test_a_document_beyond_the_limit_is_refused_with_the_option_that_allows_it(tmp_path, name):
    path = tmp_path / name
    path.write_text("x" * 2000) if name == "a.txt" else write(path, ["short", "x" * 2000])
    assert (
        limited(path, document=1999)
        == f"{path}: a document of more than 0.001999 MB; --max-document MB allows longer ones"
    )


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_a_long_line_takes_little_memory(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b"a" * 1_000_000)
    tracemalloc.start()
    problem = limited(path, line=2_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "a line of more than 2 MB" in problem and peak < 10_000_000


def pack(path: Path, content: bytes) -> Path:
    path.write_bytes({".gz": gzip.compress, ".zst": zstd}.get(path.suffix, bytes)(content))
    return path


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
def test_json_is_lines_or_an_array(tmp_path, kind, packing):
    assert list(only(pack(tmp_path / f"a.json{packing}", JSON[kind])).documents()) == DOCUMENTS


@pytest.mark.parametrize("ending", [".ndjson", ".NDJSON", ".ndjson.gz", ".ndjson.zst", ".JSONL", ".jsonlines", ".jl"])
def test_json_lines_have_several_endings(tmp_path, ending):
    assert list(only(pack(tmp_path / f"a{ending}", lines_of(DOCUMENTS))).documents()) == DOCUMENTS


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1000])
def test_an_array_is_the_same_however_its_bytes_come(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(formats, "_CHUNK", chunk)
    rows = [{"text": text} for text in ('é\\"\n', "\U0001f600" * 9, "", "x" * 300)] + [
        {"text": "b", "n": [1.5e3, None]}
    ]
    path = pack(tmp_path / "a.json", json.dumps(rows, ensure_ascii=False, indent=2).encode())
    assert list(only(path).documents()) == [row["text"] for row in rows if row["text"]]


@pytest.mark.parametrize("chunk", range(1, 9))
def test_an_element_is_not_cut_off_where_a_read_ends(monkeypatch, chunk):
    monkeypatch.setattr(formats, "_CHUNK", chunk)
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
def test_a_bad_element_is_named_by_its_line_and_the_ones_before_it_are_given(tmp_path, content, problem):
    path = pack(tmp_path / "a.json", content)
    documents = only(path).documents()
    assert next(documents) == "a"
    with pytest.raises(ConfigError) as caught:
        list(documents)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("content", [b"", b" \n", b"[]", b" [ ] \n"])
def test_json_without_rows_has_no_document(tmp_path, content):
    assert list(only(pack(tmp_path / "a.json", content)).documents()) == []


@pytest.mark.slow
def test_an_array_is_streamed_in_memory_independent_of_its_size(tmp_path):
    peaks, element = [], json.dumps({"text": "a" * 100_000}).encode()
    for megabytes in (5, 30):
        path = pack(tmp_path / "a.json.gz", b"[" + b",\n".join([element] * (10 * megabytes)) + b"]")
        source = only(path)
        tracemalloc.start()
        assert sum(1 for _ in source.documents()) == 10 * megabytes
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 15e6


@pytest.mark.slow
def test_an_element_beyond_the_limit_is_refused_before_it_is_in_memory(tmp_path):
    path = pack(tmp_path / "a.json.gz", b'[{"text": "' + b"x" * 50_000_000 + b'"}]')
    tracemalloc.start()
    problem = limited(path, line=2_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem.startswith(f"{path}:1: an element of more than 2 MB; --max-line") and peak < 20_000_000


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.txt.gz", "a.gz", "a.py.zst"])
def test_text_may_be_packed_and_may_begin_with_a_byte_order_mark(tmp_path, name):
    path = pack(tmp_path / name, "\ufeffnaïve \ufeff\r\n".encode())
    assert list(only(path).documents()) == ["naïve \ufeff\r\n"]
    assert limited(path, document=8).startswith(f"{path}: a document of more than")


def sheet(path: Path) -> str:
    path.write_text("title\ttext\na\tb\n" if path.suffix == ".tsv" else "title,text\na,b\n")
    with pytest.raises(ConfigError) as caught:
        only(path)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.TSV"])
def test_a_table_is_refused_with_the_command_that_makes_it_readable(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    problem = sheet(Path(name.lower()))
    assert "a table" in problem and "--text-key" in problem
    exec(problem.partition('python -c "')[2].rstrip('"'))
    assert list(only("a.jsonl").documents()) == ["b"]
    assert "a table" in sheet(Path(name))


NOT_TEXT = {
    "UTF-16": ("naïve".encode("utf-16"), "UTF-16, not UTF-8; convert it: iconv"),
    "UTF-16, big-endian": (b"\xfe\xff" + "naïve".encode("utf-16-be"), "UTF-16, not UTF-8"),
    "UTF-16 without its mark": ("any text at all".encode("utf-16-le"), "full of zeros; if it is UTF-16.* UTF-16LE"),
    "UTF-16, big-endian, without": ("any text at all".encode("utf-16-be"), "full of zeros; if it is UTF-16.* UTF-16BE"),
    "UTF-32": ("any text".encode("utf-32"), "UTF-32, not UTF-8; convert it: iconv -f UTF-32 "),
    "UTF-32, big-endian": (b"\0\0\xfe\xff" + "any text".encode("utf-32-be"), "UTF-32, not UTF-8"),
    "UTF-32 without its mark": ("any text".encode("utf-32-le"), "full of zeros; if it is UTF-32.* UTF-32LE"),
    "UTF-32, big-endian, without": ("any text".encode("utf-32-be"), "full of zeros; if it is UTF-32.* UTF-32BE"),
    "zeros": (bytes(1000), "not text but binary data"),
    "gzip": (gzip.compress(b"any text"), "packed by gzip; give it a name that ends in .gz"),
    "bzip2": (bz2.compress(b"any text"), "packed by bzip2; unpack it"),
    "xz": (lzma.compress(b"any text"), "packed by xz; unpack it"),
    "zip": (b"PK\x03\x04\x14\x00" + b"text" * 20, "a zip archive"),
    "PDF": (b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\n", "a PDF, not its text"),
    "RTF": (rb"{\rtf1\ansi text}", "RTF, not its text"),
    "ids": ((np.arange(400) % 60).astype("<u2").tobytes(), "full of zeros"),
    "ids of one byte": ((np.arange(400) % 60).astype("u1").tobytes(), "binary data"),
    "an image": (b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "an image, not text"),
    "parquet": (b"PAR1\x15\x04" + b"x" * 20, "parquet; give it a name that ends in .parquet"),
}


@pytest.mark.parametrize("name", ["a", "a.txt", "a.log", "a.txt.gz", "a.zst"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"])
def test_json_lines_under_another_name_are_refused_with_a_name_to_give(tmp_path, name, before):
    path = pack(tmp_path / name, before + lines_of(["a", "b"], "body"))
    ending = ".jsonl" + path.suffix * (path.suffix in (".gz", ".zst"))
    assert error_of(path) == f"{path}: JSON lines; give it a name that ends in {ending}"


@pytest.mark.parametrize("text", ['{"a": 1}\n', '{\n{"a": 1}\n', '[1]\n{"a": 1}\n', '{"a": 1}\n\nis an object\n'])
def test_text_with_an_object_in_it_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert list(only(tmp_path / "a.txt").documents()) == [text]


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".json", ".txt.gz"])
@pytest.mark.parametrize("kind", NOT_TEXT)
def test_what_is_no_text_is_refused_for_what_it_is(tmp_path, kind, ending):
    content, says = NOT_TEXT[kind]
    path = pack(tmp_path / f"a{ending}", content)
    problem = error_of(path)
    assert problem.startswith(f"{path}: ") and re.search(says, problem)


def test_numpy_and_torch_files_and_archives_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(9))
    assert "a NumPy array" in error_of(tmp_path / "a.npy")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"text": "x" * 99}))
    assert "not UTF-8" in error_of(tmp_path / "a.pkl")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.npy")
    assert "not text but binary data" in error_of(tmp_path / "a.tar.gz")
    (tmp_path / "train.bin").write_bytes(b"\x05\x00\x07\x00")
    with pytest.raises(ConfigError, match=r"train.bin: token ids .* a corpus already: madbench lm LABEL --corpus"):
        only(tmp_path / "train.bin")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(ConfigError, match=r"a.parquet.gz: parquet, .* unpack it"):
        only(tmp_path / "a.parquet.gz")


BAD = [None, 7, ["a"], {"text": "a"}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson.gz", "array.json"])
def test_bad_rows_are_skipped_and_counted_where_that_is_asked_for(tmp_path, name):
    rows = [json.dumps({"text": text}) for text in ["a", *BAD, "b", None, "", "c"]] + ['{"txt": "d"}', "7"]
    syntax = [] if name == "array.json" else ["{", '{"text": "e"', "\ufffe"]
    content = "[" + ",\n".join(rows) + "]" if name == "array.json" else "\n".join(rows + syntax)
    path = pack(tmp_path / name, content.encode())
    (source,) = find_sources([str(path)], skip_bad=True)
    for _ in range(2):
        assert list(source.documents()) == ["a", "b", "c"]
        assert source.skipped == 7 + len(syntax)
    with pytest.raises(BadRowError, match=":2: key 'text': expected text, got nothing"):
        list(only(path).documents())


def test_null_rows_of_parquet_are_skipped_and_counted(tmp_path):
    write_parquet(tmp_path / "a.parquet", text=["a", None, "", None, "b"])
    (source,) = find_sources([str(tmp_path / "a.parquet")], skip_bad=True)
    assert list(source.documents()) == ["a", "b"] and source.skipped == 2


def test_skipping_has_its_limits(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="--skip-bad has no effect: none of the sources has rows"):
        find_sources([str(tmp_path / "a.txt")], skip_bad=True)
    write_parquet(tmp_path / "a.parquet", txt=["a"])
    (source,) = find_sources([str(tmp_path / "a.parquet")], skip_bad=True)
    with pytest.raises(ConfigError, match="no column 'text'"):
        list(source.documents())
