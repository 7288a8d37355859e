"""The program of the torchrun tests: groups of two fake jobs, trained by ``train_distributed``.

``torchrun_pairs.py ROOT STEPS``: without steps, the groups are those of ``fake_sweep.pairs``. The first process prints
progress.
"""

from __future__ import annotations

import sys

import fake_sweep as fake

from madbench.execute.torchrun import train_distributed
from madbench.jobs import StopTraining
from madbench.store.runs import Store
from madbench.training.distributed import agree
from madbench.training.processes import is_first


def train(jobs, works, report, device):
    def report_together(job, progress):
        try:
            report(job, progress)
            is_stopped = False
        except StopTraining:
            is_stopped = True
        if agree(is_stopped):
            raise StopTraining

    return fake.train(jobs, works, report_together)


def tell(event):
    print(event["event"], event["job"].seed, event.get("progress", {}).get("step"), flush=True)


if __name__ == "__main__":
    root, *steps = sys.argv[1:]
    store = Store.open(root) if is_first() else Store(root)
    slow = [fake.make_job(seed, steps=int(count), pause=0.02) for count in steps for seed in range(2)]
    train_distributed([slow] if slow else fake.pairs(), store, train, on_event=tell)
