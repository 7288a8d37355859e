"""Tests that need a CUDA device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from madbench.mixers import build
from madbench.mixers.srg.reference import reference
from madbench.models.shapes import ModelConfig
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.suites.mad.suite import MAD
from madbench.suites.tokens import TrainingConfig
from madbench.text.corpus import open_corpus
from madbench.training.optimizer import make_optimizer
from sample_jobs import language_job, mad_job, train_job
from waiting import forbid_waiting

pytestmark = pytest.mark.gpu

LABELS = ("S-pc", "S-cg-q-12", "R-12o!", "R-pcg-v-12o", "G-cg-q-12o")


@pytest.fixture
def job():
    counts = {"num_train_examples": 256, "num_validation_examples": 64, "num_test_examples": 64}
    training = TrainingConfig(epochs=2, batch_size=32, precision="bfloat16")
    how = {"setting": {"seq_len": 64, **counts}, "model": ModelConfig(d_model=64), "training": training}
    return mad_job("G-cg-q-12o", "in_context_recall", **how)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("path", ["dense", "chunked"])
def test_the_paths_agree_with_the_reference_on_the_device(label, path):
    torch.manual_seed(0)
    mixer = build(label, 32, 130, budget="paper", path=path).cuda()
    x = torch.randn(2, 129, 32, device="cuda")
    expected = reference(dict(mixer.named_parameters()), mixer.label, mixer.n_head, x, mixer.rope)
    assert (mixer(x).double() - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("label", LABELS)
@torch.inference_mode()
def test_a_prompt_and_steps_agree_with_the_reference_and_never_wait_for_the_device(label, precision):
    torch.manual_seed(0)
    mixer = build(label, 32, 130, budget="paper").cuda()
    x = torch.randn(2, 129, 32, device="cuda")
    expected = reference(dict(mixer.named_parameters()), mixer.label, mixer.n_head, x, mixer.rope)
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
        y, cache = mixer.prefill(x[:, :100])
        rows = [y]
        with forbid_waiting():
            for token in x[:, 100:].unbind(1):
                row, cache = mixer.step(token, cache)
                rows.append(row[:, None])
    given, tolerance = torch.cat(rows, dim=1).double(), 1e-3 if precision == "float32" else 0.05
    for part in (slice(0, 100), slice(100, None)):
        assert (given - expected)[:, part].norm() < tolerance * expected[:, part].norm()


def test_a_training_step_never_waits_for_the_device(job):
    model = MAD.Trial.build(job).cuda()
    optimizer = make_optimizer(model, job.training)
    tokens = torch.randint(16, (32, 63), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten(), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    step()
    with forbid_waiting():
        step()


def test_a_job_trains_in_bfloat16_on_the_device(job, tmp_path):
    record = train_job(job, tmp_path, lambda progress: None, device="cuda")
    assert record.status == "finished"
    assert record.details["device"] == torch.cuda.get_device_name()
    assert record.curve[-1]["train_loss"] < record.curve[0]["train_loss"]


@pytest.mark.parametrize("label", ["S-p", "G-cg-q-12o"])
def test_a_language_model_trains_in_bfloat16_on_the_device(label, tmp_path):
    ids = np.tile(np.frombuffer(b"the old brown hen sat by the mill. ", np.uint8), 200).astype("<u2")
    for split in ("train", "val"):
        ids.tofile(tmp_path / f"{split}.bin")
    corpus = open_corpus(tmp_path, tokenizer="bytes")
    training = LanguageTraining(
        steps=30, tokens_per_step=1024, eval_every=10, eval_sequences=4, warmup_steps=2, precision="bfloat16"
    )
    model = GPTConfig(64, 2, 2, seq_len=64)
    job = language_job(label, corpus.digest, model=model, mixer={"mix_rank": 4}, training=training)
    how = {"corpora": {corpus.digest: corpus}, "device": "cuda", "micro_batch": 4}
    record = train_job(job, tmp_path, lambda progress: None, **how)
    evaluations = [row["validation_loss"] for row in record.curve if "evaluation" in row]
    assert record.status == "finished" and evaluations[-1] < evaluations[0]
    assert record.curve[-1]["memory_bytes"] > 0
