"""Token files of other programs are read with the detected dtype, or refused with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.text.corpus import open_corpus

WORDS = np.random.default_rng(0).zipf(1.3, 6000) % 50_000
LARGE = np.random.default_rng(1).integers(0, 128_000, 6000)


@pytest.fixture
def write(tmp_path):
    """``write(train, val)``: a folder with the bytes of the two arrays."""

    def write(train: np.ndarray, val: np.ndarray) -> Path:
        train.tofile(tmp_path / "train.bin")
        val.tofile(tmp_path / "val.bin")
        return tmp_path

    return write


@pytest.mark.parametrize("type_", ["<u2", "<u4", "<i4", "<u8", "<i8"])
@pytest.mark.parametrize("tokenizer", ["none:50257", "none:65", "none:128000"])
def test_ids_are_read_in_the_width_they_were_written_in(write, type_, tokenizer):
    ids = WORDS % min(50_000, int(tokenizer[5:]))
    corpus = open_corpus(write(ids[:5000].astype(type_), ids[5000:].astype(type_)), tokenizer)
    assert corpus.tokens("train").tolist() == ids[:5000].tolist()
    assert corpus.tokens("val").tolist() == ids[5000:].tolist()
    assert corpus.description()["dtype"] == corpus.manifest.dtype == f"uint{8 * int(type_[-1])}"
    assert corpus.description()["splits"]["train"]["tokens"] == 5000


@pytest.mark.parametrize("type_", ["<u4", "<u8"])
def test_ids_of_a_vocabulary_beyond_65536_are_read(write, type_):
    corpus = open_corpus(write(LARGE[:5000].astype(type_), LARGE[5000:].astype(type_)), "none:128256")
    assert corpus.tokens("train").tolist() == LARGE[:5000].tolist()


def test_an_error_names_the_first_id_beyond_the_vocabulary(write):
    folder = write(LARGE[:5000].astype("<u4"), LARGE[5000:].astype("<u4"))
    first = int(np.argmax(LARGE >= 300))
    with pytest.raises(ConfigError, match=rf"token {first}: token id {LARGE[first]} is beyond the vocabulary of 300"):
        open_corpus(folder, "none:300")


@pytest.mark.parametrize("vocab_size", [2, 4, 16, 65, 257, 50_257, 65_536, 70_000])
def test_uint16_ids_of_any_vocabulary_are_detected(write, vocab_size):
    ids = np.random.default_rng(2).integers(0, min(vocab_size, 65_536), 3000).astype("<u2")
    corpus = open_corpus(write(ids[:2000], ids[2000:]), f"none:{vocab_size}")
    assert corpus.manifest.dtype == "uint16" and len(corpus.tokens("train")) == 2000


@pytest.mark.parametrize("type_", [">u2", ">u4", ">u8", "<f4", "<f8"])
def test_big_endian_ids_and_floats_are_refused_with_what_converts_them(write, type_):
    folder = write(WORDS[:5000].astype(type_), WORDS[5000:].astype(type_))
    with pytest.raises(ConfigError, match="looks like (big-endian u|float)") as refused:
        open_corpus(folder, "none:50257")
    convert = re.search(r"numpy\.fromfile.*", str(refused.value))[0]
    for path in (folder / "train.bin", folder / "val.bin"):
        eval(convert, {"numpy": np, "path": path})
    assert open_corpus(folder, "none:50257").tokens("train").tolist() == WORDS[:5000].tolist()


def test_two_files_of_two_types_are_refused(write):
    folder = write(WORDS[:5000].astype("<u4"), WORDS[5000:].astype("<u2"))
    with pytest.raises(ConfigError, match=r"train.bin looks like uint32 and val.bin looks like uint16; .*--dtype"):
        open_corpus(folder, "none:50257")


@pytest.mark.parametrize("type_", ["<u2", "<u4"])
def test_a_short_file_takes_the_dtype_of_the_long_one(write, type_):
    corpus = open_corpus(write(WORDS[:5000].astype(type_), np.array([5, 0, 7, 0]).astype(type_)), "none:50257")
    assert corpus.tokens("val").tolist() == [5, 0, 7, 0] and len(corpus.tokens("train")) == 5000


def test_two_short_files_need_a_given_dtype(write):
    folder = write(np.array([1, 2, 3], "<u4"), np.array([4, 5], "<u4"))
    with pytest.raises(ConfigError, match=r"train.bin: too short to tell .* uint16 or uint32; give the type"):
        open_corpus(folder, "none:50257")
    assert open_corpus(folder, "none:50257", dtype="int32").tokens("train").tolist() == [1, 2, 3]
    assert open_corpus(folder, "none:50257", dtype="uint16").tokens("train").tolist() == [1, 0, 2, 0, 3, 0]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_truncated_file_of_uint32_is_not_read_as_uint16(write, cut):
    folder = write(WORDS[:5000].astype("<u4"), WORDS[5000:].astype("<u4"))
    (folder / "train.bin").write_bytes((folder / "train.bin").read_bytes()[:-cut])
    with pytest.raises(StoreError, match=f"train.bin: truncated: .* 4999 ids of 4 bytes and {4 - cut} more"):
        open_corpus(folder, "none:50257")


def test_a_given_dtype_is_checked_against_the_vocabulary(write):
    folder = write(WORDS[:5000].astype("<u4"), WORDS[5000:].astype("<u4"))
    assert len(open_corpus(folder, "none:65536", dtype="uint16").tokens("train")) == 10_000
    assert open_corpus(folder, "none:256", dtype="uint8").manifest.dtype == "uint8"
    with pytest.raises(ConfigError, match=r"is beyond the vocabulary of 50257; .* its ids are not uint64"):
        open_corpus(folder, "none:50257", dtype="uint64")
    with pytest.raises(ConfigError, match="dtype 'uint31': not a type of token ids; did you mean 'uint32'?"):
        open_corpus(folder, "none:50257", dtype="uint31")


def test_a_dtype_that_contradicts_a_prepared_corpus_is_refused(whole):
    assert open_corpus(whole.folder, dtype="uint16") == whole
    with pytest.raises(ConfigError, match="--dtype 'uint32': .* has ids of type uint16; leave out --dtype"):
        open_corpus(whole.folder, dtype="uint32")


def with_header(header: bytes) -> bytes:
    return header + WORDS.astype("<u2").tobytes()


FILES_WITH_HEADERS = {
    "llm.c": (with_header(np.array([20240520, 1, 6000, *[0] * 253], "<i4").tobytes()), "llm.c, .* tail -c \\+1025"),
    "llm.c of Llama 3": (
        with_header(np.array([20240801, 7, 6000, *[0] * 253], "<i4").tobytes()),
        "a header of 1,024 bytes",
    ),
    "numpy": (with_header(b"\x93NUMPY\x01\x00v\x00{'descr': '<u2'}"), "NumPy array with a header"),
    "Megatron": (with_header(b"MMIDIDX\x00\x00\x01"), "index of Megatron's"),
    "zip": (with_header(b"PK\x03\x04"), "zip archive"),
    "gzip": (with_header(b"\x1f\x8b\x08\x00"), "gzip"),
    "text": (("Any text, naïve or not, is no token file. \n" * 9).encode(), "text, not token ids; madbench lm prepare"),
}


@pytest.mark.parametrize("kind", FILES_WITH_HEADERS)
def test_token_files_with_a_foreign_header_are_refused(write, kind):
    content, says = FILES_WITH_HEADERS[kind]
    folder = write(WORDS.astype("<u2"), WORDS.astype("<u2"))
    (folder / "val.bin").write_bytes(content)
    with pytest.raises(MadbenchError, match=f"val.bin: .*{says}"):
        open_corpus(folder, "none:65536")


def test_text_is_read_as_ids_of_one_byte_with_dtype_uint8(write):
    text = np.frombuffer(b"All of these are bytes of a text. " * 30, np.uint8)
    corpus = open_corpus(write(text, text[:99]), "bytes", dtype="uint8")
    assert corpus.tokenizer().decode(corpus.tokens("train")) == text.tobytes().decode()


@pytest.mark.parametrize("type_", ["<u1", "<u2", "<u4", "<u8"])
@pytest.mark.parametrize("id_", [0, 3])
def test_a_file_of_one_repeated_id_needs_a_given_dtype(write, type_, id_):
    folder = write(np.full(504, id_, type_), np.full(96, id_, type_))
    with pytest.raises(ConfigError, match=r"train.bin: the same bytes over and over, .*; give the type with --dtype"):
        open_corpus(folder, "none:50257")
    corpus = open_corpus(folder, "none:50257", dtype=np.dtype(type_).name)
    assert set(corpus.tokens("train").tolist()) == {id_} and len(corpus.tokens("train")) == 504


def test_a_file_of_one_repeated_id_takes_the_dtype_of_the_other_file(write):
    corpus = open_corpus(write(WORDS[:5000].astype("<u4"), np.zeros(90, "<u4")), "none:50257")
    assert corpus.manifest.dtype == "uint32" and len(corpus.tokens("val")) == 90
