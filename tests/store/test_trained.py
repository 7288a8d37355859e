"""``madbench.load`` returns a trained model by label, id or file."""

from __future__ import annotations

import pytest
import torch

import madbench
from madbench.errors import ConfigError, StoreError
from madbench.jobs import KEEP, WEIGHTS, Record
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.training.checkpoints import save_weights
from sample_jobs import language_job, mad_job

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


def store_trained_model(store, job):
    """The model of a stored run of ``job``, with weights that differ from all initial weights."""
    model = suite_of(job).Trial.build(job).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    with store.lock(job) as work:
        (work / KEEP).mkdir()
        save_weights(work / KEEP / WEIGHTS, model, job)
        store.finish(job, Record("finished"))
    return model


@pytest.mark.parametrize("job", [language_job("R-q-12o"), mad_job("R-q-12o", "in_context_recall")], ids=["text", "mad"])
def test_the_model_of_a_label_an_id_or_a_file_gives_the_same_logits(store, job):
    model = store_trained_model(store, job)
    for name in ("R-q-12o", job.id[:6], store.root / "runs" / job.id / WEIGHTS):
        loaded = madbench.load(name, results=store.root)
        assert isinstance(loaded, torch.nn.Module) and not loaded.training
        with torch.inference_mode():
            assert torch.equal(loaded(IDS), model(IDS))


def test_the_argument_tasks_chooses_among_the_runs_of_a_label(store):
    jobs = [mad_job("S", task) for task in ("in_context_recall", "selective_copying")]
    models = [store_trained_model(store, job) for job in jobs]
    with pytest.raises(StoreError, match=r"(?s)2 runs are .S.; name one by its id:\n  .*in_context_recall"):
        madbench.load("S", results=store.root)
    loaded = madbench.load("S", tasks="selective_copying", results=store.root)
    assert torch.equal(loaded(IDS), models[1](IDS)) and not torch.equal(loaded(IDS), models[0](IDS))
    with pytest.raises(StoreError, match="a file of one run"):
        madbench.load(store.root / "runs" / jobs[0].id / WEIGHTS, tasks="selective_copying")


def test_a_run_without_weights_says_how_to_get_them(store):
    store.finish(mad_job("S"), Record("finished"))
    with pytest.raises(StoreError, match="stored without weights; .* --keep-weights --force"):
        madbench.load("S", results=store.root)
    with pytest.raises(StoreError, match="no finished run 'R'"):
        madbench.load("R", results=store.root)


def test_labels_to_trust_are_texts_or_classes(tmp_path):
    with pytest.raises(ConfigError, match=r"trust\[1\]: expected text or a type, got 3"):
        madbench.load("S", results=tmp_path, trust=["my:my_mixers.MyMixer", 3])
