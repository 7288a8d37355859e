"""A model trained on a rhyme of hens, in a store, and tasks of lm-evaluation-harness about them with their data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from madbench.store.runs import Store
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.text.corpus import open_corpus
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare
from sample_jobs import language_job, train_job

HERE = Path(__file__).parent
RHYME = "The brown hen sat by the mill and counted every grain.\n"


@pytest.fixture(scope="session")
def hens(tmp_path_factory) -> Path:
    """A folder with a store ``results`` of two trained models, their corpus ``corpora/hens`` and ``tasks``."""
    folder = tmp_path_factory.mktemp("lm_eval")
    (folder / "hen.txt").write_text(RHYME * 60)
    corpus = open_corpus(
        prepare(
            [str(folder / "hen.txt")], folder / "results" / "corpora" / "hens", PrepareOptions(validation=0.2)
        ).folder
    )
    store = Store.open(folder / "results")
    training = LanguageTraining(
        steps=150, tokens_per_step=256, eval_every=75, eval_sequences=4, learning_rate=1e-2, warmup_steps=5
    )
    for label in ("G-cg-q-12o", "S-p"):
        job = language_job(label, corpus.digest, corpus.padded_vocab_size, model=GPTConfig(32, 2, 1, seq_len=32))
        job = replace(job, training=replace(training, precision="float32"))
        with store.lock(job) as work:
            store.finish(job, train_job(job, work, lambda progress: None, corpora={corpus.digest: corpus}))
    (folder / "tasks").mkdir()
    for path in (HERE / "tasks").iterdir():
        text = path.read_text().replace("HENS", str(folder / "tasks" / "hens.jsonl"))
        (folder / "tasks" / path.name).write_text(text)
    return folder
