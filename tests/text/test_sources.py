from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from madbench.errors import ConfigError, MissingExtraError
from madbench.text.sources import Source, find_sources

DOCUMENTS = [f"document {i} é\n" + hashlib.sha256(bytes([i])).hexdigest() for i in range(200)]


def lines_of(documents: list[str], key: str = "text") -> bytes:
    return b"".join(json.dumps({"meta": {"n": 1}, key: text}).encode() + b"\n" for text in documents)


def zstd(content: bytes) -> bytes:
    return pytest.importorskip("pyarrow").Codec("zstd").compress(content, asbytes=True)


def write_parquet(path: Path, **columns) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path, row_group_size=50)


def write(path: Path, documents: list[str] = DOCUMENTS) -> Path:
    """``documents`` in the format of the path's name."""
    if path.suffix == ".parquet":
        write_parquet(path, text=documents)
    else:
        pack = {".gz": gzip.compress, ".zst": zstd}.get(path.suffix, bytes)
        path.write_bytes(pack(lines_of(documents)))
    return path


def only(path: Path | str, key: str = "text") -> Source:
    (source,) = find_sources([str(path)], key)
    return source


def error_of(path: Path | str, key: str = "text") -> str:
    with pytest.raises(ConfigError) as caught:
        list(only(path, key).documents())
    return str(caught.value)


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


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "a.JSON", "a"])
def test_any_other_file_is_one_document_byte_for_byte(tmp_path, name):
    text = "\ufeffone\r\ntwo\rthree\0é\n\n"
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
    assert "damaged after line 0, before byte" in error_of(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize(("values", "got"), [([1, 2], "int"), (["a", None], "nothing")])
def test_a_parquet_row_that_is_no_text_is_named(tmp_path, values, got):
    write_parquet(tmp_path / "a.parquet", text=values)
    assert error_of(tmp_path / "a.parquet").endswith(f"column 'text': expected text, got {got}")


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
    monkeypatch.setattr("madbench.text.formats._HashedFile.readinto", fail)
    with pytest.raises(ConfigError, match=r"a.jsonl.gz: cannot be read: input/output error"):
        list(source.documents())


def test_a_file_that_went_away_is_named(tmp_path):
    source = only(write(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"a.jsonl: cannot be read: no such file"):
        list(source.documents())


def test_a_folder_gives_all_files_below_it_sorted_without_hidden_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b/z.txt", "b/a.jsonl", "a.txt", ".hidden", ".git/config", "b/.cache/x", "c/d/e.parquet"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text("x")
    assert [source.name for source in find_sources(["data"])] == [
        "data/a.txt",
        "data/b/a.jsonl",
        "data/b/z.txt",
        "data/c/d/e.parquet",
    ]


def test_sources_come_in_the_order_of_the_words(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    words = [str(tmp_path / "b"), str(tmp_path / "a")]
    assert [source.name for source in find_sources(words)] == words


def test_a_dangling_link_in_a_folder_is_an_error(tmp_path):
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"a.txt: cannot be read: no such file"):
        find_sources([str(tmp_path)])


def test_a_file_named_twice_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").symlink_to("a.txt")
    for words in ([str(tmp_path)], [str(tmp_path / "a.txt")] * 2, ["stdlib", "stdlib"]):
        with pytest.raises(ConfigError, match="named twice"):
            find_sources(words)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("corpu.txt", "source 'corpu.txt': no such file or folder; did you mean 'corpus.txt'?"),
        ("stdlb", "source 'stdlb': no such file or folder; did you mean 'stdlib'?"),
        (
            "nowhere/at/all",
            "source 'nowhere/at/all': no such file or folder; expected one of: a file, a folder, hf:NAME",
        ),
        ("x" * 300, "source 'xxx"),
        ("empty", "source 'empty': the folder holds no file"),
        ("hf:", "source 'hf:': expected a dataset, such as hf:"),
    ],
)
def test_a_word_that_names_nothing_is_an_error(tmp_path, monkeypatch, word, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        find_sources([word])
    assert str(caught.value).startswith(message)


def test_no_word_at_all_is_an_error():
    with pytest.raises(ConfigError, match="no source of text; expected files, folders, hf:NAME or stdlib"):
        find_sources([])


def test_a_key_that_no_source_could_have_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="text key 'body' has no effect"):
        find_sources([str(tmp_path)], "body")


def test_the_standard_library_is_megabytes_of_python_without_tests_and_installed_packages():
    sources = find_sources(["stdlib"])
    names = [source.name for source in sources]
    assert {"stdlib/os.py", "stdlib/asyncio/base_events.py"} <= set(names)
    assert names == sorted(names, key=lambda name: Path(name).parts)
    assert not {"test", "tests", "site-packages", "dist-packages"} & {
        part for name in names for part in Path(name).parts
    }
    assert 400 < len(sources) < 1500
    assert 8e6 < sum(source.size for source in sources) < 20e6
    text = next(only.documents() for only in sources if only.name == "stdlib/os.py")
    assert "".join(text) == Path(os.__file__).read_text(encoding="utf-8")


def test_a_library_file_in_another_encoding_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("a = 1")
    (tmp_path / "b.py").write_bytes("# -*- coding: latin-1 -*-\n# é".encode("latin-1"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert [source.name for source in find_sources(["stdlib"])] == ["stdlib/a.py"]


@pytest.mark.parametrize("where", ["empty", "python311.zip"])
def test_a_python_without_its_sources_says_so(tmp_path, monkeypatch, where):
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / where))
    with pytest.raises(ConfigError, match="this Python keeps no source files"):
        find_sources(["stdlib"])


@pytest.fixture
def hub(monkeypatch):
    """Stands for the library ``datasets``: one dataset, ``tiny``, with the config ``small``."""
    asked = []
    rows = [{"text": "a"}, {"text": ""}, {"text": "é"}]

    def load_dataset_builder(name, config):
        asked.append((name, config))
        if name != "tiny":
            raise FileNotFoundError(f"Dataset {name!r} doesn't exist on the Hub\nor cannot be accessed")
        splits = {"train": SimpleNamespace(num_bytes=3)}
        return SimpleNamespace(
            hash="cafe", info=SimpleNamespace(splits=splits), as_streaming_dataset=lambda split: rows
        )

    fake = SimpleNamespace(load_dataset_builder=load_dataset_builder, asked=asked, rows=rows)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return fake


def test_a_dataset_of_the_hub_is_streamed_and_its_revision_is_its_hash(hub):
    source = only("hf:tiny:small")
    assert list(source.documents()) == list(source.documents()) == ["a", "é"]
    assert (source.name, source.size, source.position, source.sha256) == ("hf:tiny:small", 3, 3, "cafe")
    assert hub.asked == [("tiny", "small")]


def test_a_dataset_without_config_takes_the_usual_one(hub):
    only("hf:tiny")
    assert hub.asked == [("tiny", None)]


def test_what_the_hub_refuses_is_said_in_one_line(hub):
    assert error_of("hf:huge").endswith("datasets cannot read it: Dataset 'huge' doesn't exist on the Hub")
    assert error_of("hf:tiny", "txt").endswith("no column 'txt' (choose it with --text-key); did you mean 'text'?")
    hub.rows.append({"text": None})
    assert "expected text, got" in error_of("hf:tiny")


@pytest.mark.parametrize(
    ("module", "name", "extra"), [("datasets", "hf:tiny", "hf"), ("pyarrow", "a.jsonl.zst", "text")]
)
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, module, name, extra):
    (tmp_path / "a.jsonl.zst").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'madbench\[{extra}\]'"):
        list(only(name).documents())


@pytest.mark.slow
def test_a_folder_is_read_through_the_real_datasets_library(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train.jsonl")
    source = only(f"hf:{tmp_path / 'data'}")
    assert list(source.documents()) == DOCUMENTS
    assert source.sha256
