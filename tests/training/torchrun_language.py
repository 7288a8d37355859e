"""The program of the torchrun tests: a tiny job trained by ``train_distributed``, in one of several modes."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from pathlib import Path

from tiny_language import make_job

from madbench.execute.torchrun import train_distributed
from madbench.store.runs import Store
from madbench.text.corpus import open_corpus
from madbench.training import loop
from madbench.training.options import LoopOptions
from madbench.training.processes import is_first

RANK = os.environ["RANK"]


def train(jobs, works, report, *, mode, results, **how):
    def moody_report(job, progress):
        if mode == f"fail-{RANK}" and progress["step"] == 3:
            raise RuntimeError("a process breaks")
        if mode == "wait" and progress["step"] >= 7:
            (results / "at-step-7").touch()
            time.sleep(0.5)
        report(job, progress)

    return loop.train(jobs, works, moody_report, **how)


def main(corpus_folder: str, root: str, mode: str) -> None:
    loop.REPORT_SECONDS = -1
    results, events = Path(root), []
    store = Store.open(results) if is_first() else Store(results)
    corpus = open_corpus(corpus_folder, tokenizer="bytes")
    job = make_job(corpus)
    bound = functools.partial(
        train, corpora={corpus.digest: corpus}, options=LoopOptions(micro_batch=2), mode=mode, results=results
    )

    def on_event(event):
        events.append([event["event"], event.get("progress", {}).get("step")])

    try:
        summary = train_distributed([[job]], store, bound, on_event=on_event)
        assert (summary.finished, summary.skipped) == (1, 0)
        again = train_distributed([[job]], store, bound, on_event=on_event)
        assert (again.finished, again.skipped) == (0, 1 if is_first() else again.skipped)
    except KeyboardInterrupt:
        sys.exit("stopped by request")
    finally:
        (results / f"events-{RANK}.json").write_text(json.dumps(events))


if __name__ == "__main__":
    main(*sys.argv[1:])
