"""Files of every format give the same documents, and damaged ones are named."""

from __future__ import annotations

import gzip
import hashlib
import tracemalloc

import pytest

from madbench.errors import ConfigError
from shards import DOCUMENTS, FORMATS, lines_of, pack, refusal_under_limits, write, write_parquet, zstd
from source_samples import only_source, reading_error


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_documents_in_order(tmp_path, name):
    source = only_source(write(tmp_path / name))
    assert list(source.documents()) == DOCUMENTS
    assert source.name == str(tmp_path / name)


@pytest.mark.parametrize("name", [*FORMATS, "a.txt"])
def test_the_hash_of_a_source_is_available_after_its_last_document(tmp_path, name):
    path = write(tmp_path / name)
    source = only_source(path)
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
    source = only_source(write(tmp_path / name))
    first = source.documents()
    next(first)
    del first
    assert list(source.documents()) == list(source.documents()) == DOCUMENTS
    assert source.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


@pytest.mark.parametrize("name", FORMATS)
def test_empty_documents_are_skipped(tmp_path, name):
    assert list(only_source(write(tmp_path / name, ["a", "", "b"])).documents()) == ["a", "b"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_key_that_is_not_there_is_named_with_the_nearest(tmp_path, name):
    message = reading_error(write(tmp_path / name), "texts")
    assert message.startswith(str(tmp_path / name))
    assert message.endswith("'texts' (choose it with --text-key); did you mean 'text'?")


def test_the_text_may_be_under_another_key(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines_of(["a", "b"], "body"))
    assert list(only_source(tmp_path / "a.jsonl", "body").documents()) == ["a", "b"]
    write_parquet(tmp_path / "a.parquet", body=["a", "b"], other=[1, 2])
    assert list(only_source(tmp_path / "a.parquet", "body").documents()) == ["a", "b"]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "a"])
def test_any_other_file_is_one_document_byte_for_byte(tmp_path, name):
    text = "one\r\ntwo\rthree\0é\n\n"
    (tmp_path / name).write_bytes(text.encode())
    assert list(only_source(tmp_path / name).documents()) == [text]


def test_an_empty_text_file_has_no_document_but_a_hash(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    source = only_source(tmp_path / "a.txt")
    assert list(source.documents()) == []
    assert source.sha256 == hashlib.sha256(b"").hexdigest()


def test_text_that_is_not_utf8_is_named_with_its_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 au lait")
    assert f"{tmp_path / 'a.txt'}: not UTF-8: byte 0xe9 at offset 3" in reading_error(tmp_path / "a.txt")


def test_blank_lines_windows_ends_and_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n  \n{"text": "b"}')
    assert list(only_source(tmp_path / "a.jsonl").documents()) == ["a", "b"]


def test_a_lone_surrogate_becomes_the_replacement_character(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"text": "a\ud800b \ud83d\ude00"}')
    assert list(only_source(tmp_path / "a.jsonl").documents()) == ["a\ufffdb \U0001f600"]


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
def test_a_bad_line_is_an_error_after_the_documents_before_it(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + line + b"\n")
    documents = only_source(path).documents()
    assert next(documents) == "a"
    with pytest.raises(ConfigError) as caught:
        next(documents)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_several_compressed_frames_in_a_row_are_one_file(tmp_path, name):
    path = write(tmp_path / name)
    path.write_bytes(path.read_bytes() * 3)
    assert list(only_source(path).documents()) == DOCUMENTS * 3


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, -1])
def test_a_truncated_shard_is_an_error(tmp_path, name, kept):
    path = write(tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept >= 0 else kept])
    assert reading_error(path).startswith(f"{path}: damaged after ")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_truncated_second_frame_is_an_error(tmp_path, name):
    path = write(tmp_path / name)
    path.write_bytes(path.read_bytes() + path.read_bytes()[:-3])
    assert "damaged after line " in reading_error(path)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_file_of_another_format_is_an_error(tmp_path, name):
    if not name.endswith("gz"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(lines_of(DOCUMENTS))
    assert reading_error(tmp_path / name).startswith(f"{tmp_path / name}: damaged after ")


def test_a_flipped_byte_in_gzip_is_an_error(tmp_path):
    path = write(tmp_path / "a.jsonl.gz")
    for offset in range(20, path.stat().st_size, 997):
        content = bytearray(path.read_bytes())
        content[offset] ^= 0xFF
        (tmp_path / "b.jsonl.gz").write_bytes(content)
        assert reading_error(tmp_path / "b.jsonl.gz").startswith(f"{tmp_path / 'b.jsonl.gz'}:")


def test_a_flipped_byte_in_a_zstd_frame_with_checksum_is_an_error(tmp_path):
    pytest.importorskip("pyarrow")
    frame = bytes.fromhex("28b52ffd2414a100007b2274657874223a2022666c6970206d65227d0a908d8f7a")
    (tmp_path / "a.jsonl.zst").write_bytes(frame)
    assert list(only_source(tmp_path / "a.jsonl.zst").documents()) == ["flip me"]
    (tmp_path / "a.jsonl.zst").write_bytes(frame.replace(b"flip", b"slip"))
    assert "damaged after line 0: " in reading_error(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize(("values", "got"), [([1, 2], "int"), (["a", None], "nothing")])
def test_an_error_names_the_value_of_a_parquet_row_that_is_not_text(tmp_path, values, got):
    write_parquet(tmp_path / "a.parquet", text=values)
    assert reading_error(tmp_path / "a.parquet").endswith(f"column 'text': expected text, got {got}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_shard_is_streamed_in_memory_independent_of_its_size(tmp_path, name):
    line = lines_of(["a" * 100_000])
    peaks = []
    for megabytes in (5, 30):
        pack = gzip.compress if name.endswith("gz") else zstd
        (tmp_path / name).write_bytes(pack(line * (10 * megabytes)))
        assert (tmp_path / name).stat().st_size < 100_000
        source = only_source(tmp_path / name)
        tracemalloc.start()
        assert sum(1 for _ in source.documents()) == 10 * megabytes
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 10e6


def test_a_disk_that_fails_is_not_taken_for_damage(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl.gz")

    def fail(*_):
        raise OSError(5, "Input/output error")

    source = only_source(path)
    monkeypatch.setattr(gzip.GzipFile, "readline", fail)
    with pytest.raises(ConfigError, match=r"a.jsonl.gz: cannot be read: input/output error"):
        list(source.documents())


def test_a_file_that_went_away_is_named(tmp_path):
    source = only_source(write(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"a.jsonl: cannot be read: no such file"):
        list(source.documents())


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.txt.gz", "a.gz", "a.py.zst"])
def test_compressed_text_with_a_byte_order_mark_is_read(tmp_path, name):
    path = pack(tmp_path / name, "\ufeffnaïve \ufeff\r\n".encode())
    assert list(only_source(path).documents()) == ["naïve \ufeff\r\n"]
    assert refusal_under_limits(path, document=8).startswith(f"{path}: a document of more than")
