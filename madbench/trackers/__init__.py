"""Trackers: curves and results of a sweep in tensorboard, wandb or trackio. Each is an extra, imported only on request.

Each job is a run of its own in the service. Its configuration is the job's content and ``varied``, the changes of its
row in the grid. All trackers use the same metric names: ``progress/...`` during training, and at the end the whole
curve as ``curve/...`` and the metrics as ``final/...``. The curve of a resumed run includes the part of an earlier
sweep. The store stays authoritative: a tracker that fails is left out of the rest of the sweep.
"""

from __future__ import annotations

import contextvars
import functools
import io
import json
import math
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from madbench.config import flatten, short_repr
from madbench.errors import ConfigError, did_you_mean, require

if TYPE_CHECKING:
    from madbench.execute.base import Event
    from madbench.jobs import Job, Record

FLUSH_SECONDS = 60.0  # longest wait for trackers at the end of a sweep
PROJECT = "madbench"
RUN_NAME = "{row} {task} seed {seed}"
_FIELDS = ("row", "label", "task", "seed", "id")


@dataclass(frozen=True)
class Naming:
    """The names of projects and runs in a tracking service, and the settings in which the rows of a grid differ.

    Raises ``ConfigError`` for a template with unknown fields, and for a project with characters that services refuse.
    """

    project: str = ""
    """The project. If empty: wandb uses ``WANDB_PROJECT`` if it is set, otherwise wandb and trackio use ``madbench``,
    and tensorboard needs none."""
    run_name: str = RUN_NAME
    """The template of a run's name. Its fields are ``{row}`` (the label with the changed settings of its row in the
    grid), ``{label}``, ``{task}``, ``{seed}`` and ``{id}``.
    """
    rows: Mapping[str, str] = field(default_factory=dict)
    """The name of each job's row in the grid, by job id. A job without an entry is named by its label."""
    varied: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The changed settings of each job's row in the grid, by job id and then by key."""

    def __post_init__(self) -> None:
        try:
            self.run_name.format(**dict.fromkeys(_FIELDS, ""))
        except (AttributeError, IndexError, KeyError, ValueError) as error:
            names = ", ".join(f"{{{name}}}" for name in _FIELDS)
            raise ConfigError(
                f"--track-name {short_repr(self.run_name)}: expected a text with {names} in it"
            ) from error
        if self.project and not re.fullmatch(r"[\w.-]{1,128}", self.project):
            raise ConfigError(
                f"--track-project {short_repr(self.project)}: expected letters, digits, '.', '-' and '_' only"
            )

    def title(self, job: Job) -> str:
        """The name of a job's run in the service, made from the template :attr:`run_name`."""
        names = {"label": job.label, "task": job.task, "seed": job.seed, "id": job.id}
        return self.run_name.format(row=" ".join(self.rows.get(job.id, job.label).split()), **names)

    def settings(self, job: Job) -> dict[str, Any]:
        """The configuration to send to the service: the id and the content of ``job``, nested as in ``job.json``.

        The key ``varied`` has the changed settings of the job's row in the grid.
        """
        return {"id": job.id, **job.to_dict(), "varied": dict(self.varied.get(job.id, {}))}


class TensorboardTracker:
    """A tracker that writes the folder ``<results>/tensorboard/<name of the run>_<job id>/`` for each job.

    If ``naming`` has a project, the folder is ``<results>/tensorboard/<project>/<name of the run>_<job id>/``. Raises
    ``MissingExtraError`` if tensorboard is not installed.
    """

    def __init__(self, results: Path, naming: Naming = Naming()):
        self.tensorboard = require("torch.utils.tensorboard", "tracker tensorboard", "tensorboard")
        self.folder, self.naming = results / "tensorboard" / naming.project, naming

    def begin(self, job: Job) -> Any:
        name = re.sub(r"[^A-Za-z0-9!.=-]+", "_", self.naming.title(job))
        return self.tensorboard.SummaryWriter(str(self.folder / f"{name}_{job.id}"), flush_secs=10)

    def log(self, run: Any, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            run.add_scalar(name, value, step)

    def end(self, run: Any, job: Job, record: Record | None, metrics: Mapping[str, float]) -> None:
        if record is not None:
            settings = self.naming.settings(job)
            run.add_text("job", f"```\n{json.dumps(settings, indent=2)}\n```")
            run.add_text("status", f"{record.status} {record.error}".strip())
            plain = {
                name: value if isinstance(value, int | float | str) else str(value)
                for name, value in flatten(settings).items()
            }
            run.add_hparams(plain, dict(metrics), run_name=".")
        run.close()


class WandbTracker:
    """A tracker that makes one wandb run per job, grouped by label, with files in ``<results>/wandb``.

    The project is the one in ``naming``, or else that in the environment variable ``WANDB_PROJECT``, or else
    ``madbench``. Other variables of wandb also apply, such as ``WANDB_MODE=offline``. Raises ``ConfigError`` if wandb
    would ask for a key, since nobody may be there to answer, and ``MissingExtraError`` if it is not installed.
    """

    def __init__(self, results: Path, naming: Naming = Naming()):
        self.wandb, self.folder = require("wandb", "tracker wandb", "wandb"), results
        self.naming = naming
        mode = self.wandb.setup().settings.mode
        if mode not in ("offline", "disabled", "dryrun") and not self.wandb.api.api_key:
            raise ConfigError("tracker wandb: no API key; run wandb login, or set WANDB_MODE=offline")

    def begin(self, job: Job) -> Any:
        self.folder.mkdir(parents=True, exist_ok=True)  # wandb replaces a missing folder by another
        names = {"name": self.naming.title(job), "group": job.label, "job_type": job.task}
        project = self.naming.project or os.environ.get("WANDB_PROJECT", PROJECT)
        places = {"project": project, "dir": str(self.folder)}
        quiet = self.wandb.Settings(silent=True, console="off")
        # A resumed job continues its run, and several jobs train at a time.
        run = self.wandb.init(
            **names,
            **places,
            config=self.naming.settings(job),
            id=job.id,
            resume="allow",
            reinit="create_new",
            settings=quiet,
        )
        run.define_metric("*", step_metric="step")  # the curve comes after the progress, but wandb's own step must rise
        return run

    def log(self, run: Any, step: int, values: Mapping[str, float]) -> None:
        run.log({"step": step, **values})

    def end(self, run: Any, job: Job, record: Record | None, metrics: Mapping[str, float]) -> None:
        run.summary.update({**metrics, "status": record.status if record else "interrupted"})
        if record is not None and record.error:
            run.summary["error"] = record.error
        run.finish(exit_code=0 if record and record.status == "finished" else 1)


class TrackioTracker:
    """A tracker that makes one trackio run per job, grouped by label, and hides what trackio prints.

    The files are in the folder that the environment variable ``TRACKIO_DIR`` names, or in trackio's default folder.
    ``results`` is not used. Raises ``MissingExtraError`` if trackio is not installed.
    """

    def __init__(self, results: Path, naming: Naming = Naming()):
        self.trackio, self.naming = require("trackio", "tracker trackio", "trackio"), naming

    def begin(self, job: Job) -> Any:
        begin = functools.partial(
            self.trackio.init,
            project=self.naming.project or PROJECT,
            name=f"{self.naming.title(job)} {job.id}",  # trackio uses the name as key
            group=job.label,
            config=self.naming.settings(job),
            resume="allow",
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        with redirect_stdout(io.StringIO()):
            # In its own context, init finds no earlier run that it would end: several jobs train at a time.
            return contextvars.copy_context().run(begin)

    def log(self, run: Any, step: int, values: Mapping[str, float]) -> None:
        run.log(dict(values), step=step)

    def end(self, run: Any, job: Job, record: Record | None, metrics: Mapping[str, float]) -> None:
        with redirect_stdout(io.StringIO()):
            if metrics:
                run.log(dict(metrics))
            run.finish()


SERVICES = {"tensorboard": TensorboardTracker, "wandb": WandbTracker, "trackio": TrackioTracker}
NAMES = tuple(SERVICES)


def parse_names(values: Sequence[str] | None) -> list[str]:
    """Parse the values of ``--track``, each with one or more names of trackers separated by commas.

    Return the names. Empty if ``values`` is None. Raises ``ConfigError`` for values without any name, and for unknown
    or repeated names.
    """
    names = [part.strip() for value in values or () for part in value.split(",") if part.strip()]
    if values and not names:
        raise ConfigError(
            f"--track {short_repr(','.join(values))}: no tracker named; expected one of: {', '.join(NAMES)}"
        )
    for name in names:
        if name not in SERVICES:
            raise ConfigError(f"tracker {short_repr(name)} is not known{did_you_mean(name, SERVICES)}")
        if names.count(name) > 1:
            raise ConfigError(f"tracker {short_repr(name)} is given twice; once is enough")
    return names


def open_trackers(names: Iterable[str], results: Path, naming: Naming = Naming()) -> dict[str, Any]:
    """Open the trackers with these ``names``, and return them by name.

    ``results`` is the folder of the run store. ``naming`` has the names of projects and runs in the services.

    Raises ``MissingExtraError`` for a tracker that is not installed, and ``ConfigError`` for a tracker that cannot be
    imported or, for wandb, has no key.
    """
    return {name: SERVICES[name](results, naming) for name in names}


class Tracking:
    """A context that passes the events of jobs to trackers, in a thread of its own, since a network may be slow.

    ``trackers`` has objects with three methods, by the name of the service. Several runs can be open at the same time.

    - ``begin(job)`` returns an object for the service's run of the job, the argument ``run`` of the other methods.
    - ``log(run, step, values)`` adds numbers at a step. The step may be below an earlier one.
    - ``end(run, job, record, metrics)`` gets the record of the job, or None if the job was interrupted, and the metrics
      of the record by name.

    A tracker that raises an error is left out from then on, and ``warn`` is called with a sentence.
    """

    def __init__(self, trackers: Mapping[str, Any], warn: Callable[[str], None]):
        self.trackers, self.warn = dict(trackers), warn
        self._runs: dict[str, tuple[Job, dict[str, Any]]] = {}  # by job id, then by tracker
        self._last: dict[str, dict[str, float]] = {}  # progress by job id
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="madbench-trackers", daemon=True)

    def __enter__(self) -> Self:
        self._stdout = sys.stdout
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.put(None)
        self._thread.join(FLUSH_SECONDS)
        if self._thread.is_alive():
            sys.stdout = self._stdout  # a tracker may have replaced it
            waiting = ", ".join(self.trackers)
            self.warn(f"{waiting}: not done after {FLUSH_SECONDS:.0f} s; the end of the sweep may be missing there")

    def on_event(self, event: Event) -> None:
        """Queue an event of the executor for the trackers and return immediately. Skipped jobs are not passed on."""
        if self.trackers and event["event"] != "skipped":
            self._events.put(event)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            self._handle(event["job"], event)
        for job, _ in list(self._runs.values()):
            self._call_trackers(job, "end", job, None, {})

    def _handle(self, job: Job, event: Event) -> None:
        if job.id not in self._runs:
            self._runs[job.id] = job, {name: self._call(name, "begin", job) for name in list(self.trackers)}
        if event["event"] == "progress":
            values = _numbers(event["progress"], "progress/", left_out=("step", "total_steps"))
            # the same values are reported several times between evaluations
            if values and values != self._last.get(job.id):
                self._last[job.id] = values
                self._call_trackers(job, "log", event["progress"]["step"], values)
        elif record := event.get("record"):
            for row in record.curve:
                self._call_trackers(job, "log", int(row["step"]), _numbers(row, "curve/", left_out=("step",)))
            self._call_trackers(job, "end", job, record, _numbers(record.metrics, "final/"))
            del self._runs[job.id]
            self._last.pop(job.id, None)

    def _call_trackers(self, job: Job, method: str, *arguments: Any) -> None:
        for name, run in self._runs[job.id][1].items():
            self._call(name, method, run, *arguments)

    def _call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of the tracker ``name`` and return its result. None if the tracker fails, or failed before."""
        try:
            return getattr(self.trackers[name], method)(*arguments) if name in self.trackers else None
        except (Exception, SystemExit) as error:  # the sweep continues after any error of a service
            del self.trackers[name]
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.warn(f"tracker {name} failed and is left out of the rest of the sweep: {reason}")


def _numbers(values: Mapping[str, Any], prefix: str, left_out: tuple[str, ...] = ()) -> dict[str, float]:
    return {
        prefix + name: value
        for name, value in values.items()
        if name not in left_out and isinstance(value, (int, float)) and math.isfinite(value)
    }
