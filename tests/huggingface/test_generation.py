"""``generate`` with caches and without: the same logits and text, within the context and past it."""

from __future__ import annotations

import logging

import pytest
import torch

from madbench.errors import TrainingError
from madbench.models.gpt import generate

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")

CONTEXT = 12
CASES = [
    ("S-p", {}),
    ("D-p", {}),
    ("S-pmhe", {"kv_heads": 2}),
    ("D-pm", {"differential": "v2", "rope_share": 0.5}),
    ("S-pwsn", {"window": 3}),
    ("R-w-q-12", {"window": 3}),  # slots count tokens that have left the window
    ("R-cg-q-12o", {}),
    ("G-cgk-q-12o", {}),  # registers
    ("R-q-12", {"position_rows": "from_end"}),  # rows depend on the length of the input
    ("cd:gdn", {}),
    ("Mamba-3", {}),
    ("RWKV-7", {}),  # later layers read values of the first
    ("cd:exp-sum", {}),
    ("hfa:2", {}),
]


def ids(length, batch=3):
    return torch.randint(0, 257, (batch, length), generator=torch.Generator().manual_seed(1))


def logits_of(model, prompt, count, **how):
    """Logits (B, count, V) of greedy text, and the text."""
    options = {"do_sample": False, "eos_token_id": None, "output_logits": True, "return_dict_in_generate": True}
    written = model.generate(prompt, max_new_tokens=count, **options, **how)
    return torch.stack(written.logits, dim=1), written.sequences


@pytest.mark.parametrize("label, mixer", CASES)
def test_logits_with_and_without_caches_agree_within_and_past_the_context(make_model, label, mixer):
    model = make_model(label, seq_len=CONTEXT, **mixer)
    cached, text = logits_of(model, ids(5), 16)
    computed, same_text = logits_of(model, ids(5), 16, use_cache=False)
    assert torch.equal(text, same_text)
    torch.testing.assert_close(cached, computed, rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        for i in range(16):
            window = text[:, : 5 + i][:, -CONTEXT:]
            torch.testing.assert_close(cached[:, i], model.model(window)[:, -1], rtol=1e-4, atol=1e-4)


def test_generation_without_decoding_steps_gives_the_same_text(make_model, monkeypatch):
    model = make_model("cd:gdn", seq_len=CONTEXT)
    _, with_steps = logits_of(model, ids(5), 16)
    monkeypatch.delattr(type(model.model.blocks[0].mixer), "step")
    without = type(model)(model.config)
    without.load_state_dict(model.state_dict())
    without.generation_config = model.generation_config
    assert not without.decodes
    assert torch.equal(logits_of(without.eval(), ids(5), 16)[1], with_steps)


@pytest.mark.parametrize("label, mixer", CASES)
def test_text_past_the_context_equals_that_of_lm_sample(make_model, label, mixer):
    model = make_model(label, seq_len=CONTEXT, **mixer)
    _, text = logits_of(model, ids(20, batch=1), 5)
    drawn = {"generator": torch.Generator(), "temperature": 0, "vocab_size": 257}
    assert text[0, 20:].tolist() == list(generate(model.model, ids(20, batch=1)[0].tolist(), 5, **drawn))


@pytest.mark.parametrize("label, mixer", CASES)
@torch.inference_mode()
def test_a_forward_pass_with_caches_gives_the_last_logits_of_one_without(make_model, label, mixer):
    model = make_model(label, seq_len=CONTEXT, **mixer)
    whole = model(ids(9)).logits
    out = model(ids(9)[:, :6], use_cache=True)
    torch.testing.assert_close(out.logits, model(ids(9)[:, :6]).logits[:, -1:], rtol=1e-4, atol=1e-4)
    out = model(ids(9)[:, 6:], decoded=out.decoded, position_ids=torch.arange(6, 9))
    torch.testing.assert_close(out.logits, whole[:, -1:], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_forward_pass_past_the_context_is_the_same_with_caches(make_model):
    model = make_model("S-p", seq_len=CONTEXT)
    torch.testing.assert_close(model(ids(20), use_cache=True).logits, model(ids(20)).logits[:, -1:])


def test_beams_are_the_same_with_caches_past_the_context(make_model):
    model = make_model("R-cg-q-12o", seq_len=CONTEXT)
    options = {"max_new_tokens": 12, "num_beams": 3, "do_sample": False, "eos_token_id": None}
    assert torch.equal(model.generate(ids(5), **options), model.generate(ids(5), use_cache=False, **options))


def test_text_past_the_context_warns_once(make_model, caplog):
    model = make_model("S-p", seq_len=11)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            model.generate(ids(5), max_new_tokens=12, do_sample=False, eos_token_id=None)
    assert sum("context of 11 tokens" in record.message for record in caplog.records) == 1


def test_generation_with_learned_positions_ends_at_seq_len_with_and_without_caches(make_model):
    model = make_model("S", seq_len=CONTEXT, positions="learned")
    options = {"do_sample": False, "eos_token_id": None}
    for use_cache in (True, False):
        assert model.generate(ids(5), max_new_tokens=8, use_cache=use_cache, **options).shape == (3, 13)
        with pytest.raises(TrainingError, match="learned positions for seq_len = 12"):
            model.generate(ids(5), max_new_tokens=9, use_cache=use_cache, **options)
