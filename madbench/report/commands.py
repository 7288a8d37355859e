"""The commands that make stored results again, as words of a shell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from madbench.analysis.language_runs import LanguageProtocol, corpus_of
from madbench.experiment import Experiment
from madbench.jobs import Job
from madbench.language_jobs import LanguageJob
from madbench.runs import Run
from madbench.sweeps.preset import Preset, load_preset, preset_names
from madbench.tasks import TASK_NAMES
from madbench.tasks.protocol import load_task

RESULTS = "results"  # the folder that a command needs no option for

_CHOSEN = ("learning_rates", "weight_decays", "difficulty")
"""Keys of the profile of which a job has one value."""


def run_command(experiment: Experiment, labels: Sequence[str], seeds: Iterable[int]) -> list[str]:
    """``madbench run`` of these labels and seeds under the protocol of ``experiment``."""
    tasks = [] if len(experiment.tasks) == len(TASK_NAMES) else ["-t", ",".join(experiment.tasks)]
    words = ["madbench", "run", *labels, *experiment.overrides, *_precision(experiment), *tasks]
    return [*words, "--seeds", seed_list(seeds), *_options(experiment)]


def job_words(experiment: Experiment, job: Job) -> list[str]:
    """What ``madbench run LABEL`` needs beyond the seed to train this very job and no other, whatever the label."""
    of_task = f"tasks.{job.task}."
    kept, named = [], []
    for override in experiment.overrides:
        key = override.partition("=")[0]
        if key.startswith(f"{of_task}setting."):
            named.append(key.removeprefix(f"{of_task}setting."))
        elif not (key in _CHOSEN or key == f"{of_task}learning_rates") and key.startswith(of_task) == key.startswith("tasks."):
            kept.append(override)
    if experiment.profile.difficulty == "all":
        kept.append("difficulty=baseline")
        baseline = dataclasses.asdict(load_task(job.task).baseline)
        named = [name for name, value in job.setting.items() if value != baseline[name]]
    kept += [f"{of_task}setting.{name}={job.setting[name]}" for name in named]
    training = job.training
    rates = [f"learning_rates=[{training.learning_rate}]", f"weight_decays=[{training.weight_decay}]"]
    return ["-t", job.task, *kept, *rates, *_precision(experiment), *_options(experiment)]


def language_words(run: Run, results: str) -> list[str]:
    """What ``madbench lm LABEL`` needs beyond the seed to train the job of ``run``, whatever the label."""
    job = run.job
    preset, *overrides = LanguageProtocol.of(job).preset.split()
    if preset not in preset_names():
        preset, overrides = "tiny", _changes(job, load_preset("tiny"))
    words = [*overrides, f"precision={job.training.precision}", "--preset", preset]
    folder = corpus_of(run).get("folder")
    words += ["--corpus", folder] if folder else []
    words += ["--budget", job.counting] if job.counting != "strict" else []
    return [*words, *(["--results", results] if results != RESULTS else [])]


def _changes(job: LanguageJob, preset: Preset) -> list[str]:
    parts = {"model": (job.model, preset.model), "training": (job.training, preset.training_config(job.training.precision))}
    return [
        f"{part}.{name}={value}"
        for part, (ours, theirs) in parts.items()
        for name, value in vars(ours).items()
        if value != getattr(theirs, name)
    ]


def seed_list(seeds: Iterable[int]) -> str:
    """``0-2`` for neighbours, else ``0,2,5``."""
    seeds = sorted(seeds)
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))


def _precision(experiment: Experiment) -> list[str]:
    return [f"precision={experiment.precision}"] if experiment.profile.precision == "auto" else []


def _options(experiment: Experiment) -> list[str]:
    given = {
        "--profile": (experiment.profile_name, "quick"),
        "--fidelity": (experiment.fidelity, "corrected"),
        "--budget": (experiment.counting, "strict"),
        "--results": (str(experiment.results), RESULTS),
    }
    return [word for name, (value, usual) in given.items() if value != usual for word in (name, value)]
