"""Tokenizers of Hugging Face models, made here by the library tokenizers and read without network."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from madbench.errors import ConfigError, MissingExtraError
from madbench.text.corpus import open_corpus
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare
from madbench.text.tokenizers import BytePairTokenizer, load_tokenizer, train_bpe

library = pytest.importorskip("tokenizers")

from folder_tokenizers import KINDS, ODD, TEXTS, byte_level, byte_level_with_prefix_space, llama, metaspace, write  # noqa: E402

BROKEN_FILES = b'{"model": {"type": "BPE", "vocab": {"</s>": 0}, "byte_fallback": true}, "added_tokens": []}'


@pytest.fixture(params=KINDS)
def folder(request, tmp_path) -> Path:
    make, end = KINDS[request.param]
    return write(tmp_path / "model", make(), end)


@pytest.mark.parametrize("text", [*ODD, *TEXTS, "the cat"])
def test_texts_come_back_whole_and_special_tokens_in_them_are_text(folder, text):
    tokenizer = load_tokenizer(f"hf-tokenizer:{folder}")
    ids = tokenizer.encode(text)
    assert ids.dtype == tokenizer.dtype == np.dtype("<u2")
    assert tokenizer.decode(ids) == text
    assert not {tokenizer.end_of_text, 0 if "cat" in text else tokenizer.end_of_text} & set(ids.tolist())
    both = [*ids, tokenizer.end_of_text, *tokenizer.encode("b")]
    assert tokenizer.decode(both) == text + "b"
    assert b"".join(tokenizer.tokens[i] for i in ids) in (text.encode(), b" " + text.encode())


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_the_librarys_without_special_tokens(tmp_path, kind):
    make, end = KINDS[kind]
    theirs, ours = make(), load_tokenizer(f"hf-tokenizer:{write(tmp_path / 'model', make(), end)}")
    for text in [*TEXTS, "the cat", "日本語"]:
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False).ids
    assert ours.vocab_size == theirs.get_vocab_size()
    assert ours.end_of_text == theirs.token_to_id(end if isinstance(end, str) else end["content"])
    assert ours.token_bytes().shape == (ours.vocab_size,) and ours.token_bytes()[ours.end_of_text] == 0


@pytest.mark.parametrize(("make", "end"), [(metaspace, "</s>"), (byte_level_with_prefix_space, "<|endoftext|>")])
def test_a_tokenizer_that_drops_a_leading_space_is_noted(tmp_path, make, end):
    read = load_tokenizer(f"hf-tokenizer:{write(tmp_path, make(), end)}")
    assert [read.decode(read.encode(text)) for text in (" the cat", "the cat", "a  b ")] == [
        "the cat",
        "the cat",
        "a  b ",
    ]
    assert "takes a space at the beginning" in read.note


def test_a_byte_level_folder_counts_the_bytes_of_a_text_exactly(tmp_path):
    tokenizer = load_tokenizer(f"hf-tokenizer:{write(tmp_path, byte_level(), '<|endoftext|>')}")
    for text in [*TEXTS, *ODD]:
        assert tokenizer.token_bytes()[tokenizer.encode(text)].sum() == len(text.encode())


def test_the_tokenizer_digest_covers_only_what_decides_ids(tmp_path):
    def digest(name: str, tokenizer, end="<|endoftext|>") -> str:
        return load_tokenizer(f"hf-tokenizer:{write(tmp_path / name, tokenizer, end)}").digest

    first = digest("a", byte_level())
    cut = byte_level()
    cut.enable_truncation(4)
    cut.enable_padding()
    assert digest("b", byte_level()) == digest("c", cut) == first
    assert digest("d", byte_level(), "<|pad|>") != first and digest("e", byte_level(280)) != first


def test_text_never_encodes_to_end_of_text_even_if_it_is_not_special(tmp_path):
    write(tmp_path, byte_level(), "<|endoftext|>")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["added_tokens"][0]["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = load_tokenizer(f"hf-tokenizer:{tmp_path}")
    ids = tokenizer.encode("a<|endoftext|>b")
    assert tokenizer.end_of_text not in ids and tokenizer.decode(ids) == "a<|endoftext|>b"


def test_truncation_padding_and_dropout_of_the_file_do_not_touch_a_text(tmp_path):
    cut = llama(dropout=0.5)
    cut.enable_truncation(2)
    tokenizer = load_tokenizer(f"hf-tokenizer:{write(tmp_path, cut, '</s>')}")
    assert tokenizer.decode(tokenizer.encode(TEXTS[0])) == TEXTS[0]
    assert len({tuple(tokenizer.encode("the cat " * 9).tolist()) for _ in range(8)}) == 1


def test_a_pickled_folder_tokenizer_gives_equal_ids(folder):
    tokenizer = load_tokenizer(f"hf-tokenizer:{folder}")
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.digest == tokenizer.digest and copy.encode(TEXTS[1]).tolist() == tokenizer.encode(TEXTS[1]).tolist()


def test_a_corpus_keeps_a_copy_of_its_folder_tokenizer(folder, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 60)
    request = [str(tmp_path / "text.txt")], tmp_path / "corpus", PrepareOptions(validation=0.2)
    corpus = prepare(*request, tokenizer=f"hf-tokenizer:{folder}")
    tokenizer = load_tokenizer(f"hf-tokenizer:{folder}")
    info = corpus.manifest.tokenizer
    assert (info.digest, info.vocab_size) == (tokenizer.digest, tokenizer.vocab_size)
    assert corpus.manifest.recipe.tokenizer == f"hf-tokenizer:{tokenizer.digest}"
    assert corpus.tokens("train")[-1] == tokenizer.end_of_text
    assert corpus.tokenizer().decode(corpus.tokens("train")[:9].tolist()).startswith("the cat")
    moved = folder.rename(tmp_path / "moved")
    again = open_corpus(tmp_path / "corpus")  # from its own copy
    assert again.digest == corpus.digest and again.tokenizer().digest == tokenizer.digest
    assert again.token_bytes().sum() > 0
    same = prepare(*request, tokenizer=f"hf-tokenizer:{moved}")
    assert same.digest == corpus.digest
    with pytest.raises(ConfigError, match="holds another corpus"):
        prepare(*request, tokenizer="bytes")
    other = next(token for token in ("<|pad|>", "<s>") if token in (tmp_path / "corpus" / "tokenizer.json").read_text())
    (tmp_path / "corpus" / "tokenizer_config.json").write_text(json.dumps({"eos_token": other}))
    with pytest.raises(ConfigError, match="prepare the corpus again or bring its tokenizer back"):
        open_corpus(tmp_path / "corpus").tokenizer()


def test_a_corpus_that_is_replaced_leaves_no_tokenizer_of_the_old_one(folder, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 60)
    prepare(
        [str(tmp_path / "text.txt")],
        tmp_path / "corpus",
        PrepareOptions(validation=0.2),
        tokenizer=f"hf-tokenizer:{folder}",
    )
    prepare(
        [str(tmp_path / "text.txt")], tmp_path / "corpus", PrepareOptions(validation=0.2, force=True), tokenizer="bytes"
    )
    assert not list((tmp_path / "corpus").glob("tokenizer*"))


def test_the_end_of_text_defaults_to_the_usual_special_token(tmp_path):
    assert load_tokenizer(f"hf-tokenizer:{write(tmp_path, llama(), None)}").end_of_text == 2
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<s>"}')
    assert load_tokenizer(f"hf-tokenizer:{tmp_path}").end_of_text == 1


def test_a_normalizer_is_noted_in_the_manifest(folder, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 60)
    corpus = prepare(
        [str(tmp_path / "text.txt")],
        tmp_path / "corpus",
        PrepareOptions(validation=0.2),
        tokenizer=f"hf-tokenizer:{folder}",
    )
    has_one = json.loads((folder / "tokenizer.json").read_text())["normalizer"] is not None
    assert bool(corpus.manifest.notes) is has_one


def lowercased():
    tokenizer = byte_level()
    tokenizer.normalizer = library.normalizers.Lowercase()
    return tokenizer


def words_only():
    tokenizer = library.Tokenizer(library.models.WordLevel({"the": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    return tokenizer


@pytest.mark.parametrize(
    ("make", "end", "message"),
    [
        (lowercased, "<|endoftext|>", "loses text, 'The cat sat on the mat.' comes back as 'the cat sat on the mat.'"),
        (words_only, "the", "a WordLevel without bytes for characters that it does not know, which loses text"),
        (lambda: llama(byte_fallback=False), "</s>", "loses text"),
        (byte_level, "<end>", "no token '<end>' to end a text; its special tokens: '<|endoftext|>', '<|pad|>'"),
        (
            lambda: byte_level(special=("<a>", "<b>")),
            None,
            'write tokenizer_config.json beside it, such as {"eos_token"',
        ),
    ],
)
def test_a_tokenizer_that_loses_text_or_has_no_end_of_text_is_refused(tmp_path, make, end, message):
    with pytest.raises(ConfigError) as refused:
        load_tokenizer(f"hf-tokenizer:{write(tmp_path, make(), end)}")
    assert message in str(refused.value) and str(tmp_path / "tokenizer.json") in str(refused.value)


def test_a_folder_without_the_file_says_what_it_lacks(tmp_path):
    for folder, message in ((tmp_path / "none", "no such folder"), (tmp_path, "holds no tokenizer.json")):
        with pytest.raises(ConfigError, match=message):
            load_tokenizer(f"hf-tokenizer:{folder}")
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(ConfigError, match="save_pretrained"):
        load_tokenizer(f"hf-tokenizer:{tmp_path}")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"\xff", b'{"model": 1}', b'{"model": {"vocab": {"a": "b"}}}', BROKEN_FILES]
)
def test_a_folder_with_an_invalid_tokenizer_file_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    with pytest.raises(ConfigError, match="tokenizer.json: "):
        load_tokenizer(f"hf-tokenizer:{tmp_path}")


@pytest.mark.parametrize(
    "change",
    [
        {"added_tokens": 1.5},
        {"added_tokens": "x"},
        {"normalizer": json.loads('{"normalizers": [' * 70 + "]}" * 70)},
        {"prefix": "x" * 1000},
    ],
    ids=["number", "text", "deep", "panic"],
)
def test_a_file_on_which_the_library_fails_is_refused(tmp_path, change):
    parsed = json.loads(byte_level().to_str())
    if prefix := change.pop("prefix", None):
        parsed["model"]["continuing_subword_prefix"] = prefix
    (tmp_path / "tokenizer.json").write_text(json.dumps(parsed | change))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    with pytest.raises(ConfigError, match="not a tokenizer of Hugging Face"):
        load_tokenizer(f"hf-tokenizer:{tmp_path}").encode("the cat")


def test_without_the_library_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"hf-tokenizer:.*'\.\[text\]'"):
        load_tokenizer(f"hf-tokenizer:{folder}")


def test_files_of_another_program_can_be_read_with_a_folder(folder, tmp_path):
    tokenizer = load_tokenizer(f"hf-tokenizer:{folder}")
    (tmp_path / "foreign").mkdir()
    for split in ("train", "val"):
        np.append(tokenizer.encode("the cat " * 50), np.uint16(tokenizer.end_of_text)).astype("<u2").tofile(
            tmp_path / "foreign" / f"{split}.bin"
        )
    corpus = open_corpus(tmp_path / "foreign", f"hf-tokenizer:{folder}", dtype="uint16")
    assert corpus.vocab_size == tokenizer.vocab_size and corpus.tokenizer().digest == tokenizer.digest


def test_a_trained_bpe_has_the_same_ids_when_read_as_a_folder(tmp_path):
    pytest.importorskip("tiktoken")
    trained = train_bpe(TEXTS * 3, 280)
    assert isinstance(trained, BytePairTokenizer)
    (tmp_path / "bpe").mkdir()
    trained.save(tmp_path / "bpe")
    copy = shutil.copytree(tmp_path / "bpe", tmp_path / "copy")
    content = json.loads((copy / "tokenizer.json").read_text())
    content["added_tokens"] = [
        {"id": 279, "content": "<|end|>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False}
    ]
    (copy / "tokenizer.json").write_text(json.dumps(content))
    (copy / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    read = load_tokenizer(f"hf-tokenizer:{copy}")
    assert (read.vocab_size, read.end_of_text, read.tokens[:279]) == (280, 279, trained.tokens)
    for text in [*TEXTS, *ODD]:
        assert read.encode(text).tolist() == trained.encode(text).tolist()
