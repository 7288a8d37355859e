"""Preparing a corpus: order and split of documents, hashes, replacement, and resumption after a stop."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import madbench
from madbench.errors import ConfigError, StoreError
from madbench.files import seal, unseal
from madbench.text import prepare as module
from madbench.text.corpus import open_corpus
from madbench.text.options import PrepareOptions
from madbench.text.prepare import default_corpus, prepare

SHARE = 0.2  # fifty documents are enough for validation by whole documents


def texts_of(corpus, split) -> list[str]:
    ids = np.array(corpus.tokens(split))
    ends = np.flatnonzero(ids == corpus.tokenizer().end_of_text)
    return [corpus.tokenizer().decode(ids[start:end]) for start, end in zip([0, *(ends + 1)], ends)]


def bins(folder) -> list[bytes]:
    return [(folder / f"{split}.bin").read_bytes() for split in ("train", "val")]


def test_documents_are_in_order_and_their_hash_decides_the_split(whole, words):
    documents = [json.loads(line)["text"] for word in words[:3] for line in Path(word).read_text().splitlines()]
    documents.append(Path(words[3]).read_text())
    share = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64 for text in documents]
    assert texts_of(whole, "val") == [text for text, at in zip(documents, share) if at < SHARE]
    assert texts_of(whole, "train") == [text for text, at in zip(documents, share) if at >= SHARE]
    splits = whole.manifest.splits
    assert sum(facts.documents for facts in splits.values()) == len(documents)
    assert sum(facts.bytes for facts in splits.values()) == sum(len(text.encode()) for text in documents)


def test_the_manifest_names_and_hashes_every_source(whole, words):
    for source, word in zip(whole.manifest.sources, words, strict=True):
        assert source.name == word
        assert source.sha256 == hashlib.sha256(Path(word).read_bytes()).hexdigest()
        assert source.documents == (1 if word.endswith(".txt") else 100)
    for split, content in zip(("train", "val"), bins(whole.folder)):
        assert whole.manifest.splits[split].sha256 == hashlib.sha256(content).hexdigest()
    assert whole.manifest.madbench == madbench.__version__
    assert "sha256" in whole.manifest.split_rule


def test_the_files_do_not_depend_on_the_number_of_workers(whole, words, tmp_path):
    assert bins(prepare(words, tmp_path / "two", PrepareOptions(validation=SHARE, workers=2)).folder) == bins(
        whole.folder
    )


def test_copies_of_a_document_are_in_one_split(tmp_path):
    lines = [json.dumps({"text": f"document {i % 60}"}) for i in range(240)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    corpus = prepare([str(tmp_path / "a.jsonl")], tmp_path / "corpus", PrepareOptions(validation=SHARE))
    train, val = (set(texts_of(corpus, split)) for split in ("train", "val"))
    assert train.isdisjoint(val)
    assert len(train | val) == 60


def test_the_end_of_every_document_is_for_validation_if_there_are_few_documents(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name + "é" * 998 + name.upper())
    corpus = prepare(
        [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], tmp_path / "corpus", PrepareOptions(validation=0.01)
    )
    assert texts_of(corpus, "val") == ["é" * 9 + "A", "é" * 9 + "B"]
    assert texts_of(corpus, "train") == ["a" + "é" * 989, "b" + "é" * 989]
    assert "last 1% of every document" in corpus.manifest.split_rule


def test_preparing_the_same_corpus_again_reads_nothing(whole, words):
    whole.folder.chmod(0o555)
    seen = []
    assert prepare(words, whole.folder, PrepareOptions(validation=SHARE), on_progress=seen.append) == whole
    assert seen == []


def test_another_corpus_in_the_folder_is_replaced_only_with_force(whole, words, tmp_path):
    before = bins(whole.folder)
    for changes, why in (
        ({"validation": 0.5}, "validation 0.2 then, 0.5 now"),
        ({"tokenizer": "bpe:300"}, "tokenizer bytes then, bpe:300 now"),
        ({"words": words[:3]}, "4 sources then, 3 now"),
        ({"words": words[::-1]}, "0.jsonl then, .*whole.txt now"),
    ):
        asked = {"words": words, "validation": SHARE, "tokenizer": "bytes"} | changes
        with pytest.raises(ConfigError, match=f"holds another corpus \\(.*{why}\\); .* --force"):
            prepare(asked["words"], whole.folder, PrepareOptions(asked["validation"]), tokenizer=asked["tokenizer"])
    os.utime(words[1], ns=(1, 1))
    with pytest.raises(ConfigError, match="1.jsonl has changed since"):
        prepare(words, whole.folder, PrepareOptions(validation=SHARE))
    assert bins(whole.folder) == before
    replaced = prepare(words, whole.folder, PrepareOptions(validation=0.5, force=True))
    assert replaced.digest != whole.digest
    assert bins(whole.folder) != before


def test_the_old_corpus_stays_until_the_new_one_is_complete(whole, words):
    def check(progress):
        assert open_corpus(whole.folder) == whole

    prepare(words, whole.folder, PrepareOptions(validation=0.5, force=True), on_progress=check)
    assert open_corpus(whole.folder) != whole


def test_token_files_of_another_program_are_not_overwritten(words, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "val.bin").write_bytes(b"ab")
    with pytest.raises(ConfigError, match="token files of another program"):
        prepare(words, tmp_path / "corpus")
    assert (tmp_path / "corpus" / "val.bin").read_bytes() == b"ab"


def test_one_process_at_a_time_prepares_a_folder(words, tmp_path):
    held = threading.Event()
    with module.locked_folder(tmp_path, wait=False):
        with pytest.raises(StoreError, match="another process is preparing this corpus"):
            prepare(words, tmp_path, PrepareOptions(validation=SHARE))
        waiting = threading.Thread(
            target=lambda: (prepare(words, tmp_path, PrepareOptions(validation=SHARE), wait=True), held.set())
        )
        waiting.start()
        assert not held.wait(0.1)
    waiting.join(30)
    assert held.is_set()


def test_a_bpe_is_trained_on_the_training_text_and_saved_with_the_corpus(tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("tiktoken")
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 200 + "zebrazebra " * 40)
    word = str(tmp_path / "a.txt")
    corpus = prepare([word], tmp_path / "corpus", PrepareOptions(validation=0.1), tokenizer="bpe:265")
    assert corpus.vocab_size == 265
    assert (
        corpus.tokenizer().decode(np.concatenate([corpus.tokens(split) for split in ("train", "val")]))
        == (tmp_path / "a.txt").read_text()
    )
    tokens = corpus.tokenizer().tokens
    assert any(b"the" in token for token in tokens)
    assert not any(b"zeb" in token for token in tokens)
    assert "trained on" in corpus.manifest.notes[0]
    assert prepare([word], tmp_path / "corpus", PrepareOptions(validation=0.1), tokenizer="bpe:265") == corpus
    file = str(tmp_path / "corpus" / "tokenizer.json")
    other = prepare([word], tmp_path / "other", PrepareOptions(validation=0.1), tokenizer=file)
    assert other.digest == corpus.digest
    (tmp_path / "corpus" / "tokenizer.json").unlink()
    assert other.tokenizer().vocab_size == 265
    bytes_now = prepare([word], tmp_path / "other", PrepareOptions(validation=0.1, force=True))
    assert bytes_now.vocab_size == 257
    assert not (tmp_path / "other" / "tokenizer.json").exists()


def test_a_split_without_text_is_an_error(tmp_path):
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(ConfigError, match="leave val without text: 1 documents"):
        prepare([str(tmp_path / "short.txt")], tmp_path / "corpus")
    (tmp_path / "short.txt").write_text("")
    with pytest.raises(ConfigError, match="leave train without text: 0 documents"):
        prepare([str(tmp_path / "short.txt")], tmp_path / "corpus")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"options": PrepareOptions(validation=0)}, "above 0 and below 1"),
        ({"options": PrepareOptions(validation=1.5)}, "above 0 and below 1"),
        ({"tokenizer": "gpt3"}, "did you mean 'gpt2'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(words, tmp_path, wrong, message):
    with pytest.raises(ConfigError, match=message):
        prepare(words, tmp_path / "corpus", **wrong)
    assert not (tmp_path / "corpus").exists()


def test_the_default_corpus_is_prepared_once(tmp_path, monkeypatch):
    library = tmp_path / "python"
    library.mkdir()
    (library / "words.py").write_text("# The hen sat by the mill.\n" * 4000)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(library))
    first = default_corpus(tmp_path / "results")
    assert first.name.startswith("stdlib-3.")
    assert first.folder == tmp_path / "results" / "corpora" / first.name
    (library / "words.py").write_text("# The hen flew.\n" * 4000)
    assert default_corpus(tmp_path / "results") == first
    shutil.rmtree(library)
    assert default_corpus(tmp_path / "results") == first


@pytest.mark.parametrize(
    "name", ["../up", "a/b", "/a", ".", "..", " ", "a\nb", "\x1b[31m", "\udcff", "x" * 201, "é" * 101]
)
def test_a_name_that_is_more_than_one_part_of_a_path_is_refused_before_anything_is_written(words, tmp_path, name):
    with pytest.raises(ConfigError, match="expected one name of printable characters"):
        prepare(words, tmp_path / "corpora" / "c", name=name)
    assert not (tmp_path / "corpora").exists()


def test_more_text_than_allowed_stops_and_a_higher_limit_resumes(words, tmp_path):
    with pytest.raises(StoreError, match="more than 0.0005 MB of text; --max-total MB allows more"):
        prepare(words, tmp_path / "c", PrepareOptions(max_total=500e-6))
    assert prepare(words, tmp_path / "c").manifest.splits["train"].tokens


@pytest.fixture
def with_bad_rows(tmp_path) -> list[str]:
    """A shard without a fault, and one whose every tenth row is null."""
    for name, bad in (("good", 10**9), ("worse", 10)):
        rows = [{"text": None if i % bad == bad - 1 else f"{name} {i} " + "word " * (i % 7)} for i in range(500)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return [str(tmp_path / "good.jsonl"), str(tmp_path / "worse.jsonl")]


def test_bad_rows_are_skipped_on_request_and_counted_in_the_manifest(with_bad_rows, tmp_path):
    with pytest.raises(ConfigError, match=r"worse.jsonl:10: key 'text': expected text, got nothing"):
        prepare(with_bad_rows, tmp_path / "c", PrepareOptions(validation=0.5))
    corpus = prepare(with_bad_rows, tmp_path / "c", PrepareOptions(validation=0.5, skip_bad=True))
    assert [(source.documents, source.skipped) for source in corpus.manifest.sources] == [(500, 0), (450, 50)]
    assert corpus.description()["sources"]["skipped"] == 50
    assert sum(info.documents for info in corpus.manifest.splits.values()) == 950
    assert prepare(with_bad_rows, tmp_path / "c", PrepareOptions(validation=0.5, skip_bad=True)) == corpus
    with pytest.raises(ConfigError, match=r"50 rows of .*worse.jsonl skipped then, none to be skipped now"):
        prepare(with_bad_rows, tmp_path / "c", PrepareOptions(validation=0.5))


def test_skip_bad_does_not_change_a_corpus_without_bad_rows(with_bad_rows, tmp_path):
    corpus = prepare(with_bad_rows[:1], tmp_path / "c", PrepareOptions(validation=0.5))
    assert prepare(with_bad_rows[:1], tmp_path / "c", PrepareOptions(validation=0.5, skip_bad=True)) == corpus


def test_skipping_resumes_in_the_middle_of_a_source(with_bad_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 2000)
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    how = {"validation": 0.5, "skip_bad": True}
    whole, calls = prepare(with_bad_rows, tmp_path / "whole", PrepareOptions(**how)), []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(with_bad_rows, tmp_path / "c", PrepareOptions(**how), on_progress=interrupt)
    resumed = prepare(with_bad_rows, tmp_path / "c", PrepareOptions(**how))
    assert bins(resumed.folder) == bins(whole.folder) and resumed.manifest.sources == whole.manifest.sources


def test_sources_of_bad_rows_alone_leave_no_text_and_say_how_many(with_bad_rows, tmp_path):
    Path(with_bad_rows[0]).write_text('{"text": null}\n' * 9)
    with pytest.raises(ConfigError, match="without text: 0 documents beside 9 rows without a text"):
        prepare(with_bad_rows[:1], tmp_path / "c", PrepareOptions(skip_bad=True))


def test_a_manifest_of_an_earlier_version_still_opens(whole):
    path = whole.folder / "manifest.json"
    content = unseal(path.read_bytes())
    for source in content["sources"]:
        del source["skipped"]
    path.write_text(json.dumps(seal(content)))
    assert open_corpus(whole.folder) == whole
