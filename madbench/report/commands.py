"""The commands that make stored results again, as words of a shell."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from madbench.analysis.language_runs import LanguageProtocol, corpus_of
from madbench.config import seed_list
from madbench.experiment import Experiment
from madbench.jobs import Job
from madbench.language_jobs import LanguageJob
from madbench.store.runs import Run
from madbench.suites.preset import Preset, load_preset, preset_names
from madbench.tasks.protocol import load_task

RESULTS = "results"  # the folder that a command needs no option for


def run_command(
    experiment: Experiment, labels: Sequence[str], seeds: Collection[int], tasks: Sequence[str] | None = None
) -> list[str]:
    """``madbench run`` of these labels and seeds on the MAD tasks of ``experiment``, or on ``tasks``, as it trains them."""
    words = ["madbench", "run", *labels, "--seeds", seed_list(seeds), "-t", ",".join(tasks or experiment.tasks)]
    return [*words, *protocol_words(experiment)]


def protocol_words(experiment: Experiment) -> list[str]:
    """What ``madbench run`` is told of the protocol of ``experiment``."""
    return [*experiment.overrides, *_precision(experiment), *_options(experiment)]


def job_words(experiment: Experiment, job: Job) -> list[str]:
    """What ``madbench run LABEL`` needs beyond the seed to train this very job and no other, whatever the label."""
    profile, training, of_task = experiment.profile, job.training, f"tasks.{job.task}."
    instead = []
    if profile.difficulty == "all":
        baseline = dataclasses.asdict(load_task(job.task).baseline)
        changes = [f"{of_task}setting.{name}={value}" for name, value in job.setting.items() if value != baseline[name]]
        instead += ["difficulty=baseline", *changes]
    if profile.rates(job.task) != (training.learning_rate,):
        instead.append(f"learning_rates=[{training.learning_rate}]")
    if profile.weight_decays != (training.weight_decay,):
        instead.append(f"weight_decays=[{training.weight_decay}]")
    replaced = {override.partition("=")[0] for override in instead}
    if "learning_rates" in replaced:
        replaced.add(f"{of_task}learning_rates")
    kept = [
        override
        for override in experiment.overrides
        if override.partition("=")[0] not in replaced and override.startswith(of_task) >= override.startswith("tasks.")
    ]
    return ["-t", job.task, *kept, *instead, *_precision(experiment), *_options(experiment)]


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
    parts = {
        "model": (job.model, preset.model),
        "training": (job.training, preset.training_config(job.training.precision)),
    }
    return [
        f"{part}.{name}={value}"
        for part, (ours, theirs) in parts.items()
        for name, value in vars(ours).items()
        if value != getattr(theirs, name)
    ]


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
