"""Every argument of the exported model has an effect, is harmless, or is refused."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 257, (2, 10), generator=torch.Generator().manual_seed(0))
AGAIN = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])  # positions of two packed documents


@pytest.fixture
def model(make_model):
    return make_model()


@pytest.mark.parametrize(
    "arguments",
    [
        {"position_ids": AGAIN},
        {"position_ids": torch.arange(1, 11)},
        {"position_ids": torch.arange(9)},
        {"cache_position": torch.arange(1, 11)},
        {"attention_mask": torch.ones(2, 1, 10, 10)},
        {"attention_mask": torch.ones(2, 9)},
        {"attention_mask": torch.tensor([[1] * 5 + [2] * 5] * 2)},  # numbers of documents
        {"attention_mask": torch.tensor([[1] * 5 + [0] + [1] * 4] * 2)},
        {"inputs_embeds": torch.zeros(2, 10, 24)},
        {"past_key_values": transformers.DynamicCache()},
        {"token_type_ids": torch.ones(2, 10)},
        {"output_attentions": True},
        {"output_hidden_states": True},
        {"cu_seq_lens_q": torch.tensor([0, 5, 10])},
        {"seq_idx": torch.zeros(1, 10)},
        {"is_causal": False},
        {"typo": 0},
        {"shift_labels": IDS},
        {"use_cache": True, "labels": IDS},
        {"use_cache": True, "logits_to_keep": 3},
        {"logits_to_keep": 3, "labels": IDS},
    ],
    ids=lambda arguments: "-".join(arguments),
)
def test_an_argument_without_effect_is_refused_by_its_name(model, arguments):
    with pytest.raises(ValueError, match="|".join(name.replace("_", "[_ ]") for name in arguments)):
        model(IDS, **arguments)


def test_forward_accepts_arguments_at_their_default_values(model):
    harmless = {"position_ids": torch.arange(10), "token_type_ids": torch.zeros(2, 10), "attention_mask": None}
    harmless |= {"output_attentions": False, "output_hidden_states": None, "past_key_values": None, "is_causal": True}
    expected = model(IDS)
    assert torch.equal(model(IDS, **harmless, cache_position=torch.arange(10)).logits, expected.logits)
    assert torch.equal(model(IDS, position_ids=torch.arange(10).expand(2, 10)).logits, expected.logits)
    assert torch.equal(model(IDS, return_dict=False)[0], expected.logits)
    assert torch.equal(model(IDS, logits_to_keep=torch.tensor([2, 5])).logits, expected.logits[:, [2, 5]])


def test_forward_ignores_position_ids_of_padding(model):
    mask = torch.ones_like(IDS)
    mask[0, 7:] = 0
    positions = mask.cumsum(1) - 1
    assert torch.equal(model(IDS, attention_mask=mask, position_ids=positions).logits, model(IDS).logits)


def test_unsupported_outputs_in_the_configuration_are_refused(make_folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(make_folder(), output_hidden_states=True)
    with pytest.raises(ValueError, match="output_hidden_states"):
        model(IDS)


def test_padding_is_refused_by_a_mixer_whose_rows_depend_on_the_length(make_model):
    model = make_model("R-q-12", position_rows="from_end")
    mask = torch.ones_like(IDS)
    assert model(IDS, attention_mask=mask).logits.shape == (2, 10, 320)
    mask[0, 7:] = 0
    with pytest.raises(ValueError, match="one length"):
        model(IDS, attention_mask=mask)


@pytest.mark.parametrize("ids", [None, [[1, 2]], torch.arange(3), torch.zeros(1, 2, 3)])
def test_input_ids_of_another_shape_are_refused(model, ids):
    with pytest.raises(ValueError, match="input_ids: expected a tensor"):
        model(ids)


def test_generate_accepts_streamers_and_stop_strings(model, tmp_path, capsys):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    options = {"max_new_tokens": 16, "do_sample": False, "eos_token_id": None}
    text = model.generate(IDS[:1], **options)
    assert torch.equal(model.generate(IDS[:1], streamer=transformers.TextStreamer(tokenizer), **options), text)
    assert capsys.readouterr().out
    at, stop = next((i, chr(token)) for i, token in enumerate(text[0].tolist()) if i >= 10 and 32 < token < 127)
    stopped = model.generate(IDS[:1], stop_strings=[stop], tokenizer=tokenizer, **options)
    assert torch.equal(stopped, text[:, : at + 1])


@pytest.mark.parametrize("use_cache", [True, False])
def test_generate_refuses_padding_on_either_side(model, use_cache):
    mask = torch.ones_like(IDS)
    mask[0, 7:] = 0
    for each in (mask, mask.flip(1)):
        with pytest.raises(ValueError, match="prompts of one length"):
            model.generate(IDS, attention_mask=each, max_new_tokens=2, use_cache=use_cache)
    assert model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2).shape[0] == 2


@pytest.mark.parametrize(
    "arguments", [{"position_ids": AGAIN}, {"output_hidden_states": True, "return_dict_in_generate": True}, {"typo": 1}]
)
def test_generate_refuses_arguments_without_effect(model, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        model.generate(IDS, max_new_tokens=3, **arguments)


def train(model, tmp_path, rows, collator=None, **how):
    pytest.importorskip("accelerate")
    options = {"max_steps": 2, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True} | how
    arguments = transformers.TrainingArguments(str(tmp_path / "trainer"), per_device_train_batch_size=2, **options)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, data_collator=collator)
    return trainer.train()


ROWS = [{"input_ids": row, "labels": row} for row in IDS.tolist()] * 2


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers itself
def test_packed_documents_are_refused_by_trainer(model, tmp_path):
    with pytest.raises(ValueError, match="packed documents"):
        train(model, tmp_path, ROWS, transformers.DataCollatorWithFlattening())
    with pytest.raises(ValueError, match="packed documents"):
        train(model, tmp_path, [row | {"position_ids": AGAIN[0].tolist()} for row in ROWS])


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", [{"gradient_accumulation_steps": 2}, {"label_smoothing_factor": 0.1}])
def test_trainer_accepts_accumulation_and_label_smoothing(model, tmp_path, how):
    assert train(model, tmp_path, ROWS, **how).global_step == 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_trainer_accepts_padding_on_the_right(model, make_folder, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    rows = [dict(tokenizer(text)) for text in ("abc", "abcdefg", "a", "abcde")]
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    assert train(model, tmp_path, rows, collator).global_step == 2


def test_a_pipeline_writes_text(model, tmp_path):
    writes = transformers.pipeline("text-generation", model=str(tmp_path / "exported"))
    (text,) = writes("def ", max_new_tokens=20, return_full_text=False)
    assert isinstance(text["generated_text"], str)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_adapter_of_peft_trains_writes_and_is_merged(make_folder, tmp_path):
    peft = pytest.importorskip("peft")
    opened = transformers.AutoModelForCausalLM.from_pretrained
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["o", "up", "down"], init_lora_weights=False)
    adapted = peft.get_peft_model(opened(make_folder()), config)
    adapted(input_ids=IDS, labels=IDS).loss.backward()
    assert any(parameter.grad is not None for parameter in adapted.parameters())
    logits = adapted.eval()(input_ids=IDS).logits
    assert adapted.generate(input_ids=IDS, max_new_tokens=6, do_sample=False).shape == (2, 16)
    adapted.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(opened(tmp_path / "exported"), tmp_path / "adapter")
    torch.testing.assert_close(again(input_ids=IDS).logits, logits)
    by_transformers = opened(tmp_path / "exported")
    by_transformers.load_adapter(str(tmp_path / "adapter"))
    torch.testing.assert_close(by_transformers(input_ids=IDS).logits, logits)
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(opened(tmp_path / "merged")(IDS).logits, logits, rtol=1e-4, atol=1e-4)
