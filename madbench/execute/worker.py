"""The worker side of the local executor: one process that trains one job after the other.

It gets jobs over a pipe, and anything that arrives while it trains means stop. It sends ``(kind, value)`` pairs:
``ready``, ``started``, ``progress`` (a dict), ``finished`` (a ``Record``), ``skipped`` (why) and ``broken`` (the
message of a ``StoreError``, which concerns every job).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.base import Policy, Train
from madbench.execute.failure import failure_text
from madbench.jobs import JobBase, Record, StopTraining
from madbench.store.runs import Store, StoreBusyError


def work(connection: Connection, root: Path, train: Train, policy: Policy) -> None:
    """Serves jobs until told to stop or the parent is gone; ``policy`` says what becomes of those that are stored.

    It also ends after a failed run, so that the next one gets a process with sound memory and a sound device.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    store = Store(root)
    try:
        connection.send(("ready", None))
        while (job := connection.recv()) is not None:
            kind, value = _do(job, store, train, policy, connection)
            connection.send((kind, value))
            if kind == "broken" or kind == "finished" and value.status == "failed":
                return
    except (EOFError, OSError, StopTraining):
        return


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _do(job: JobBase, store: Store, train: Train, policy: Policy, connection: Connection) -> tuple[str, Any]:
    def report(progress: dict[str, Any]) -> None:
        try:
            if connection.poll():
                raise StopTraining
            connection.send(("progress", progress))
        except OSError as error:
            raise StopTraining from error

    try:
        with store.claim(job, afresh=policy.redo) as folder:
            if skipped := policy.skips(store.status(job)):
                return "skipped", skipped
            connection.send(("started", None))
            try:
                record = train(job, folder, report)
                store.finish(job, record, replace=policy.redo)
            except StoreError:
                raise
            except (Exception, SystemExit) as error:
                record = Record("failed", error=failure_text(error))
                store.finish(job, record)
            return "finished", record
    except StoreBusyError:
        return "skipped", "busy"
    except StoreError as error:
        return "broken", str(error)
