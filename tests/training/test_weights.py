"""Saved weights load as the same model, and other files are refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from safetensors.torch import save_file

from madbench.errors import StoreError, TrainingError
from madbench.jobs import Job
from madbench.suites import suite_of
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.suites.language.trial import LanguageTrial
from madbench.training import distributed
from madbench.training.checkpoints import TrainingState, load_model, save_checkpoint, save_weights
from madbench.training.optimizer import make_optimizer
from sample_jobs import language_job

MODEL = GPTConfig(d_model=16, n_layer=1, seq_len=8, positions="learned")
TRAINING = LanguageTraining(tokens_per_step=8, steps=10, eval_every=10)
JOB = language_job("R-cg-q-12o", "0" * 16, 64, model=MODEL, training=TRAINING, budget="paper")


class TrialOf:
    def __init__(self, model):
        self.model, self.state = model, {}


@pytest.fixture
def model():
    model = LanguageTrial.build(JOB)
    with torch.no_grad():
        model.embedding.weight.add_(1)
    return model


@pytest.fixture(params=["weights.safetensors", "checkpoint.pt"])
def saved(request, model, tmp_path):
    if request.param.endswith(".pt"):
        save_checkpoint(
            tmp_path, JOB, TrialOf(model), make_optimizer(model, TRAINING), TrainingState("cpu"), seconds=1.0
        )
    else:
        save_weights(tmp_path / request.param, model, JOB)
    return tmp_path / request.param


def test_weights_come_back_bit_for_bit_with_their_job(saved, model):
    loaded, job = load_model(saved)
    assert job == JOB and job.id == JOB.id and not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_a_truncated_file_is_refused(saved):
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(TrainingError, match=f"{saved.name}: cannot be read: "):
        load_model(saved)


@pytest.mark.slow
def test_no_flipped_bit_of_weights_is_loaded(saved, model):
    content, random = saved.read_bytes(), Random(0)
    for _ in range(200):
        place, bit = random.randrange(len(content)), 1 << random.randrange(8)
        saved.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        try:
            loaded, job = load_model(saved)
        except TrainingError as error:
            assert str(error).startswith(f"{saved}: cannot be read: ") and "weights_only" not in str(error)
            continue
        assert job == JOB and saved.suffix != ".pt"  # a space of the header became another
        torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["weights.safetensors", "checkpoint.pt"])
def test_loading_a_missing_file_of_weights_is_an_error(tmp_path, name):
    with pytest.raises(TrainingError, match="there is no such file"):
        load_model(tmp_path / name)


def test_weights_of_another_program_are_refused(tmp_path):
    save_file({"x": torch.ones(2)}, tmp_path / "foreign.safetensors")
    torch.save({"model": {}}, tmp_path / "foreign.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("foreign.safetensors", "foreign.pt", "list.pt"):
        with pytest.raises(
            TrainingError, match=f"{name}: cannot be read: damaged, or not .* that this madbench saved$"
        ):
            load_model(tmp_path / name)


def test_a_checkpoint_of_another_kind_of_job_is_refused(tmp_path):
    class Other(Job):
        def to_dict(self):
            return {"label": "S", "task": "compression"}

    save_weights(tmp_path / "w.safetensors", torch.nn.Linear(1, 1), Other(**vars(replace(JOB))))
    with pytest.raises(TrainingError, match="its job is not one of this madbench"):
        load_model(tmp_path / "w.safetensors")


def test_weights_that_do_not_fit_their_job_are_refused(tmp_path, model):
    save_weights(tmp_path / "w.safetensors", model, replace(JOB, model=replace(MODEL, n_layer=2)))
    with pytest.raises(TrainingError, match="do not fit the job in the same file"):
        load_model(tmp_path / "w.safetensors")


HUGE = GPTConfig(d_model=65_536, n_layer=400, seq_len=8, n_head=1)  # 80 TB
FORGED_JOBS = {
    "a model of terabytes": replace(JOB, label="S", model=HUGE),
    "terabytes of embeddings": replace(JOB, setting={"corpus": "0" * 16, "vocab_size": 10**12}),
    "a thousand layers": replace(JOB, model=replace(MODEL, n_layer=1000)),
    "a wider MLP": replace(JOB, model=replace(MODEL, mlp_width=65)),
    "parameters as a string": replace(JOB, mixer={"mix_rank": "many"}),
    "no vocabulary": replace(JOB, setting={"corpus": "0" * 16}),
    "a vocabulary in words": replace(JOB, setting={"corpus": "0" * 16, "vocab_size": "64"}),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", FORGED_JOBS)
@pytest.mark.parametrize("name", ["weights.safetensors", "checkpoint.pt"])
def test_a_forged_job_is_refused_before_its_model_is_built(tmp_path, model, monkeypatch, name, kind):
    if name.endswith(".pt"):
        optimizer = make_optimizer(model, TRAINING)
        save_checkpoint(tmp_path, FORGED_JOBS[kind], TrialOf(model), optimizer, TrainingState("cpu"), seconds=1.0)
    else:
        save_weights(tmp_path / name, model, FORGED_JOBS[kind])
    monkeypatch.setattr(LanguageTrial, "build", None)
    with pytest.raises(TrainingError, match="do not fit the job in|its job has no model|its job is not one of"):
        load_model(tmp_path / name)


def test_a_forged_job_without_a_model_is_refused(tmp_path, model):
    save_weights(tmp_path / "w.safetensors", model, replace(JOB, setting={"corpus": "0" * 16, "vocab_size": -64}))
    with pytest.raises(TrainingError, match="its job is not one of"):
        load_model(tmp_path / "w.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("task, fidelity", [("in_context_recall", "published"), ("compression", "corrected")])
def test_kept_weights_of_a_mad_run_reproduce_its_numbers(task, fidelity, make_job, train, tmp_path):
    job = make_job(task, fidelity=fidelity)
    assert train(job).metrics == (record := train(job, keep_weights=True)).metrics
    model, loaded = load_model(tmp_path / "keep" / "weights.safetensors")
    assert loaded == job
    trial = suite_of(job).Trial(job, "cpu", distributed)
    trial.model.load_state_dict(model.state_dict())
    assert trial._scores("test")["test_loss"] == pytest.approx(record.metrics["test_loss"], rel=1e-6)


def test_a_mad_run_keeps_no_weights_by_default(make_job, train, tmp_path):
    train(make_job())
    assert not (tmp_path / "keep").exists()


def test_saving_weights_in_a_missing_folder_is_an_error(tmp_path, model):
    with pytest.raises(StoreError):
        save_weights(tmp_path / "no such folder" / "w.safetensors", model, JOB)
