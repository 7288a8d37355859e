"""A corpus and jobs that train in a fraction of a second; as a script, a process that trains one."""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path

import numpy as np

from madbench.jobs import Job
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.text.corpus import Corpus, open_corpus
from sample_jobs import language_job, train_job

RHYME = "The old brown hen sat by the mill and counted every grain until the miller's \u00e9clair was still. "
SEQ_LEN, WINDOWS = 16, 8


def make_corpus(folder: Path, tokenizer: str = "bytes") -> Corpus:
    """Write bytes of a rhyme as nanoGPT's two files, with 256 at the end of each document."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.frombuffer(RHYME.encode(), np.uint8).astype("<u2")
    document = np.append(ids, np.uint16(256))
    for split, copies in (("train", 40), ("val", 9)):
        np.tile(document, copies).astype("<u2").tofile(folder / f"{split}.bin")
    return open_corpus(folder, tokenizer=tokenizer)


def make_job(corpus: Corpus, label: str = "S-cg-q-12o", seed: int = 0, positions: str = "none", **training) -> Job:
    """A job of 20 steps of 8 windows of 16 tokens, evaluated every 5 steps.

    The label has every kind of parameter, and no ReLU, at whose kink rounding errors grow.
    """
    config = {"steps": 20, "tokens_per_step": SEQ_LEN * WINDOWS, "eval_every": 5, "eval_sequences": 10}
    config |= {"learning_rate": 1e-2, "min_learning_rate": 1e-3, "warmup_steps": 4} | training
    model = GPTConfig(d_model=16, n_layer=2, seq_len=SEQ_LEN, positions=positions)
    how = {"model": model, "mixer": {"mix_rank": 2}, "training": LanguageTraining(**config)}
    return language_job(label, corpus.digest, corpus.padded_vocab_size, seed, **how)


def die_at_step(step: int, progress: dict) -> None:
    if progress["step"] == step:
        os.kill(os.getpid(), signal.SIGKILL)


def train_and_die(corpus_folder: str, work: str, step: str) -> None:
    """Train the job with a checkpoint at every step, and kill this process at ``step``."""
    from madbench.training import loop

    loop.CHECKPOINT_SECONDS = loop.REPORT_SECONDS = -1
    loop.CHECKPOINT_SHARE = float("inf")
    corpus = make_corpus(Path(corpus_folder))
    report = functools.partial(die_at_step, int(step))
    train_job(make_job(corpus), Path(work), report, corpora={corpus.digest: corpus})


if __name__ == "__main__":
    train_and_die(*sys.argv[1:])
