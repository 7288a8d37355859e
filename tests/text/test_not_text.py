"""Files that are not text are refused, with the name of their format."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from madbench.errors import ConfigError
from shards import lines_of, pack
from source_samples import only_source, reading_error


def sheet(path: Path) -> str:
    path.write_text("title\ttext\na\tb\n" if path.suffix == ".tsv" else "title,text\na,b\n")
    with pytest.raises(ConfigError) as caught:
        only_source(path)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.TSV"])
def test_a_table_is_refused_with_the_command_that_makes_it_readable(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    problem = sheet(Path(name.lower()))
    assert "a table" in problem and "--text-key" in problem
    exec(problem.partition('python -c "')[2].rstrip('"'))
    assert list(only_source("a.jsonl").documents()) == ["b"]
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
    assert reading_error(path) == f"{path}: JSON lines; give it a name that ends in {ending}"


@pytest.mark.parametrize("text", ['{"a": 1}\n', '{\n{"a": 1}\n', '[1]\n{"a": 1}\n', '{"a": 1}\n\nis an object\n'])
def test_text_with_an_object_in_it_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert list(only_source(tmp_path / "a.txt").documents()) == [text]


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".json", ".txt.gz"])
@pytest.mark.parametrize("kind", NOT_TEXT)
def test_files_that_are_not_text_are_refused_with_their_format(tmp_path, kind, ending):
    content, says = NOT_TEXT[kind]
    path = pack(tmp_path / f"a{ending}", content)
    problem = reading_error(path)
    assert problem.startswith(f"{path}: ") and re.search(says, problem)


def test_numpy_and_torch_files_and_archives_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(9))
    assert "a NumPy array" in reading_error(tmp_path / "a.npy")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"text": "x" * 99}))
    assert "not UTF-8" in reading_error(tmp_path / "a.pkl")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.npy")
    assert "not text but binary data" in reading_error(tmp_path / "a.tar.gz")
    (tmp_path / "train.bin").write_bytes(b"\x05\x00\x07\x00")
    with pytest.raises(ConfigError, match=r"train.bin: token ids .* a corpus already: madbench lm LABEL --corpus"):
        only_source(tmp_path / "train.bin")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(ConfigError, match=r"a.parquet.gz: parquet, .* unpack it"):
        only_source(tmp_path / "a.parquet.gz")
