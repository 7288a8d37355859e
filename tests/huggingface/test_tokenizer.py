"""The exported tokenizer gives every text the ids that training gives it."""

from __future__ import annotations

import itertools
import random

import pytest

from folder_tokenizers import (
    KINDS,
    ODD,
    TEXTS,
    byte_level,
    byte_level_with_prefix_space,
    library,
    llama,
    metaspace,
    write,
)
from madbench.text.tokenizers import Tokenizer, load_tokenizer, train_bpe

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")

from madbench.huggingface.export import fast_tokenizer  # noqa: E402

SPELLED_TEXTS = [
    "<|endoftext|>",
    "</s>",
    "<s>",
    "<unk>",
    "<|pad|>",
    "<tool>",
    "<|im_start|>",
    "<0x41>",
    "\u2581",
    "[CLS]",
]


def with_added_tokens():
    tokenizer = llama()
    tokenizer.add_tokens([library.AddedToken("<tool>", normalized=False)])
    tokenizer.add_special_tokens([library.AddedToken("<|im_start|>", lstrip=True, rstrip=True)])
    return tokenizer


def with_dropout():
    tokenizer = byte_level()
    tokenizer.model.dropout = 0.5
    return tokenizer


def cut_and_padded():
    tokenizer = llama(dropout=0.5)
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=20)
    return tokenizer


FOLDERS = KINDS | {
    "metaspace": (metaspace, "</s>"),
    "prefixed": (byte_level_with_prefix_space, "<|endoftext|>"),
    "added tokens": (with_added_tokens, "</s>"),
    "dropout": (with_dropout, "<|endoftext|>"),
    "dropout, truncation and padding": (cut_and_padded, "</s>"),
}


@pytest.fixture(params=[*FOLDERS, "bytes", "bpe"])
def pair(request, tmp_path):
    """The tokenizer of training, and the exported one after it was saved and opened twice."""
    if request.param in FOLDERS:
        make, end = FOLDERS[request.param]
        ours = load_tokenizer(f"hf-tokenizer:{write(tmp_path / 'model', make(), end)}")
    else:
        ours = Tokenizer() if request.param == "bytes" else train_bpe(["def main(): return <|endoftext|>\n" * 20], 270)
    fast_tokenizer(ours).save_pretrained(tmp_path / "once")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "once").save_pretrained(tmp_path / "twice")
    return ours, transformers.AutoTokenizer.from_pretrained(tmp_path / "twice")


def random_texts(count):
    draw = random.Random(0)
    parts = [lambda: draw.choice(SPELLED_TEXTS), lambda: draw.choice([" ", "  ", "\n", "\t", "\0", ""])]
    parts.append(lambda: "".join(draw.choices("the cat sat{}12'll", k=6)))
    parts.append(lambda: "".join(chr(draw.choice([draw.randint(0, 0xD7FF), 0x1F600])) for _ in range(3)))
    return ["".join(draw.choice(parts)() for _ in range(draw.randint(1, 8))) for _ in range(count)]


def test_the_exported_tokenizer_gives_the_ids_of_training(pair):
    ours, theirs = pair
    texts = [*ODD, *TEXTS, *random_texts(100)]
    expected = [ours.encode(text).tolist() for text in texts]
    assert theirs(texts).input_ids == expected
    for text, ids in zip(texts, expected):
        assert theirs(text).input_ids == theirs.encode(text) == ids
        assert theirs.decode(ids).lstrip(" ") == ours.decode(ids).lstrip(" ")
    assert set(itertools.chain(*expected)).isdisjoint(theirs.all_special_ids)
    assert (theirs.eos_token_id, len(theirs)) == (ours.end_of_text, ours.vocab_size)


def test_padding_and_truncation_follow_the_arguments_of_a_call(pair):
    ours, theirs = pair
    padded = theirs(["the cat", "the"], padding=True)
    assert [sum(mask) for mask in padded.attention_mask] == [len(ours.encode(text)) for text in ("the cat", "the")]
    assert padded.attention_mask[1] == sorted(padded.attention_mask[1], reverse=True)  # on the right
    assert theirs("the cat", truncation=True, max_length=2).input_ids == ours.encode("the cat").tolist()[:2]
