"""Opening a prepared or foreign corpus, its counts and digest, and damage that is named."""

from __future__ import annotations

import json
import pickle
from random import Random

import numpy as np
import pytest

from madbench.errors import ConfigError, StoreError
from madbench.files import seal, unseal
from madbench.text.corpus import Corpus, open_corpus
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare

TEXT = "naïve café, déjà vu. " * 100


@pytest.fixture
def prepared_corpus(tmp_path) -> Corpus:
    (tmp_path / "book.txt").write_text(TEXT)
    return prepare([str(tmp_path / "book.txt")], tmp_path / "corpus", PrepareOptions(validation=0.1))


@pytest.fixture
def nanogpt_folder(tmp_path):
    """nanoGPT's two files with ids of bytes."""
    folder = tmp_path / "shakespeare"
    folder.mkdir()
    np.frombuffer(TEXT.encode(), np.uint8).astype("<u2").tofile(folder / "train.bin")
    np.array([65, 256, 66], "<u2").tofile(folder / "val.bin")
    return folder


def test_a_prepared_corpus_opens_with_its_text_and_counts(prepared_corpus):
    train, val = (prepared_corpus.tokens(split) for split in ("train", "val"))
    assert prepared_corpus.tokenizer().decode(np.concatenate([train, val])) == TEXT
    assert train[-1] == val[-1] == prepared_corpus.tokenizer().end_of_text
    assert (prepared_corpus.vocab_size, prepared_corpus.padded_vocab_size) == (257, 320)
    text_bytes = prepared_corpus.token_bytes()
    splits = prepared_corpus.description()["splits"]
    for split, tokens in (("train", train), ("val", val)):
        assert splits[split]["tokens"] == len(tokens)
        assert splits[split]["bytes"] == text_bytes[tokens].sum() == len(tokens) - 1
    assert splits["train"]["bytes"] + splits["val"]["bytes"] == len(TEXT.encode())
    json.dumps(prepared_corpus.description(), allow_nan=False)


@pytest.mark.parametrize("names", [("train",), ("val",), ("train", "val", "test"), ()])
def test_a_manifest_without_train_and_val_is_damage(prepared_corpus, names):
    manifest = unseal((prepared_corpus.folder / "manifest.json").read_bytes())
    manifest["splits"] = {name: manifest["splits"].get(name, {}) for name in names}
    (prepared_corpus.folder / "manifest.json").write_text(json.dumps(seal(manifest)))
    with pytest.raises(StoreError, match="splits: expected train and val"):
        open_corpus(prepared_corpus.folder)


def test_a_corpus_can_be_handed_to_another_process(prepared_corpus):
    prepared_corpus.token_bytes()
    again = pickle.loads(pickle.dumps(prepared_corpus))
    assert again == prepared_corpus
    assert again.digest == prepared_corpus.digest


def test_a_corpus_digest_covers_tokens_and_tokenizer_but_not_name_and_folder(prepared_corpus, tmp_path):
    moved = prepared_corpus.folder.rename(tmp_path / "moved")
    assert open_corpus(moved).digest == prepared_corpus.digest
    other = prepare([str(tmp_path / "book.txt")], tmp_path / "other", PrepareOptions(validation=0.1), name="other")
    assert other.name == "other"
    assert other.digest == prepared_corpus.digest
    assert (
        prepare([str(tmp_path / "book.txt")], tmp_path / "less", PrepareOptions(validation=0.2)).digest
        != prepared_corpus.digest
    )
    (moved / "manifest.json").unlink()
    assert open_corpus(moved, tokenizer="bytes").digest == prepared_corpus.digest
    assert open_corpus(moved, tokenizer="none:257").digest != prepared_corpus.digest


def test_nanogpt_files_open_in_a_read_only_folder(nanogpt_folder):
    before = sorted(nanogpt_folder.iterdir())
    nanogpt_folder.chmod(0o555)
    corpus = open_corpus(nanogpt_folder, tokenizer="bytes")
    assert sorted(nanogpt_folder.iterdir()) == before
    assert corpus.name == "shakespeare"
    assert corpus.tokenizer().decode(corpus.tokens("train")) == TEXT
    val = corpus.description()["splits"]["val"]
    assert (val["tokens"], val["bytes"], val["documents"]) == (3, 2, None)


def test_ids_without_a_tokenizer_leave_bytes_unknown(nanogpt_folder):
    corpus = open_corpus(nanogpt_folder, tokenizer="none:300")
    assert corpus.vocab_size == 300
    assert corpus.token_bytes() is None
    assert corpus.description()["splits"]["val"]["bytes"] is None
    with pytest.raises(ConfigError, match="none:300, which means ids only"):
        corpus.tokenizer()
    for spec in ("none", "none:", "none:x", "none:0"):
        with pytest.raises(ConfigError, match="expected none:N"):
            open_corpus(nanogpt_folder, tokenizer=spec)


def test_a_char_level_corpus_needs_a_vocabulary_size_and_its_pickle_is_not_loaded(nanogpt_folder, tmp_path):
    bomb = f"cpathlib\nPath\n(S'{tmp_path / 'loaded'}'\ntR."
    (nanogpt_folder / "meta.pkl").write_text(bomb)
    with pytest.raises(ConfigError, match="--tokenizer none:65"):
        open_corpus(nanogpt_folder)
    assert open_corpus(nanogpt_folder, tokenizer="none:257").vocab_size == 257


def test_an_id_beyond_the_vocabulary_is_named_with_file_and_place(nanogpt_folder):
    ids = np.full(5_000_000, 7, "<u2")
    ids[4_500_123] = 60_000
    ids.tofile(nanogpt_folder / "train.bin")
    with pytest.raises(ConfigError, match=r"train.bin, token 4500123: token id 60000 is beyond the vocabulary of 257"):
        open_corpus(nanogpt_folder, tokenizer="bytes")


def mapped_files(monkeypatch) -> list[str]:
    """The names of the token files that are read from now on, as they are read."""
    names, memmap = [], np.memmap
    monkeypatch.setattr(np, "memmap", lambda path, *how, **more: names.append(path.name) or memmap(path, *how, **more))
    return names


def test_nanogpt_files_are_read_again_only_when_they_change(nanogpt_folder, tmp_path, monkeypatch):
    reads = mapped_files(monkeypatch)

    def opened(tokenizer):
        reads.clear()
        return open_corpus(nanogpt_folder, tokenizer, cache=tmp_path / "cache")

    first = opened("bytes")
    assert reads == ["train.bin", "val.bin"]
    assert opened("bytes") == first and reads == []
    assert opened("none:257") != first and len(reads) == 2
    np.array([65, 65, 66], "<u2").tofile(nanogpt_folder / "val.bin")
    changed = opened("bytes")
    assert changed.digest != first.digest and len(reads) == 2
    for remembered in (tmp_path / "cache").iterdir():
        remembered.write_text("{")
    assert opened("bytes") == changed and len(reads) == 2


def test_a_corpus_opens_without_a_writable_cache(nanogpt_folder, tmp_path):
    (tmp_path / "file").write_text("")
    assert open_corpus(nanogpt_folder, tokenizer="bytes", cache=tmp_path / "file").vocab_size == 257


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_truncated_file_is_named_with_both_sizes(prepared_corpus, nanogpt_folder, split):
    for folder, options in ((prepared_corpus.folder, {}), (nanogpt_folder, {"tokenizer": "bytes"})):
        path = folder / f"{split}.bin"
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(
            StoreError, match=rf"{split}.bin: truncated: {size - 1} bytes .* {size if not options else 2}"
        ):
            open_corpus(folder, **options)


def test_a_file_longer_than_its_manifest_is_refused(prepared_corpus):
    with open(prepared_corpus.folder / "val.bin", "ab") as file:
        file.write(b"ab")
    with pytest.raises(StoreError, match=r"val.bin: \d+ bytes where its manifest has \d+"):
        open_corpus(prepared_corpus.folder)


def test_a_folder_without_a_corpus_is_refused_with_the_missing_files(tmp_path, nanogpt_folder):
    with pytest.raises(ConfigError, match="no such folder; madbench lm prepare makes one"):
        open_corpus(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"train.bin and val.bin missing"):
        open_corpus(tmp_path)
    (nanogpt_folder / "val.bin").write_bytes(b"")
    with pytest.raises(StoreError, match=r"val.bin: empty"):
        open_corpus(nanogpt_folder, tokenizer="bytes")


def test_a_tokenizer_that_contradicts_the_manifest_is_refused(prepared_corpus):
    assert open_corpus(prepared_corpus.folder, tokenizer="bytes") == prepared_corpus
    with pytest.raises(ConfigError, match="--tokenizer 'gpt2': .* was prepared with bytes; leave out --tokenizer"):
        open_corpus(prepared_corpus.folder, tokenizer="gpt2")


def test_a_tokenizer_that_would_give_other_ids_is_refused(prepared_corpus):
    path = prepared_corpus.folder / "manifest.json"
    content = unseal(path.read_bytes())
    content["tokenizer"]["digest"] = "0" * 64
    path.write_text(json.dumps(seal(content)))
    with pytest.raises(ConfigError, match="written with tokenizer bytes of digest 0000000000000000; the one here has"):
        open_corpus(prepared_corpus.folder).tokenizer()


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99}', '{"format": 1}', "null", "7", "[" * 100_000])
def test_a_damaged_manifest_says_how_to_mend_it(prepared_corpus, content):
    (prepared_corpus.folder / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=r"manifest.json.*--force"):
        open_corpus(prepared_corpus.folder)


def test_a_flipped_bit_of_a_manifest_is_noticed_and_one_of_an_earlier_version_is_read(prepared_corpus):
    path = prepared_corpus.folder / "manifest.json"
    content, random = path.read_bytes(), Random(0)
    for _ in range(100):
        place, bit = random.randrange(len(content)), 1 << random.randrange(8)
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        try:
            assert open_corpus(prepared_corpus.folder) == prepared_corpus  # a space became another
        except StoreError as error:
            assert str(error).startswith(f"{path}: cannot be read")
    path.write_text(json.dumps(unseal(content)))
    assert open_corpus(prepared_corpus.folder) == prepared_corpus


def overwrite_half(path):
    content = path.read_bytes()
    path.write_bytes(b"\0" * (len(content) // 4 * 2) + content[len(content) // 4 * 2 :])


def test_tokens_that_changed_are_refused_with_and_without_a_cache(prepared_corpus, tmp_path):
    for cache in (None, tmp_path / "cache"):
        assert open_corpus(prepared_corpus.folder, cache=cache) == prepared_corpus
    overwrite_half(prepared_corpus.folder / "train.bin")
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        with pytest.raises(StoreError, match=r"train.bin: damaged or changed.*delete .* and prepare the corpus again"):
            open_corpus(prepared_corpus.folder, cache=cache)
    with pytest.raises(StoreError, match=r"train.bin: damaged or changed"):
        prepared_corpus.verify()


def test_tokens_are_read_once_until_they_change(prepared_corpus, tmp_path, monkeypatch):
    reads = mapped_files(monkeypatch)
    for _ in range(3):
        open_corpus(prepared_corpus.folder, cache=tmp_path / "cache").verify()
    assert reads == ["train.bin", "val.bin"]
    (prepared_corpus.folder / "val.bin").touch()
    open_corpus(prepared_corpus.folder, cache=tmp_path / "cache")
    assert reads == ["train.bin", "val.bin"] * 2


def test_nanogpts_files_that_changed_since_they_were_opened_are_refused(nanogpt_folder):
    opened = open_corpus(nanogpt_folder, tokenizer="bytes")
    overwrite_half(nanogpt_folder / "val.bin")
    with pytest.raises(StoreError, match=r"val.bin: damaged or changed.*give the command again"):
        opened.verify()


@pytest.mark.parametrize("name", ["manifest.json", "train.bin"])
def test_a_folder_in_place_of_a_file_is_named(prepared_corpus, name):
    (prepared_corpus.folder / name).unlink()
    (prepared_corpus.folder / name).mkdir()
    with pytest.raises(StoreError, match=name):
        open_corpus(prepared_corpus.folder)
