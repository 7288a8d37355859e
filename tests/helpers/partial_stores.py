"""Random incomplete stores of every suite, like those of a sweep that was stopped at any moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from madbench.details import CorpusDetails, Details, EvaluationDetails, SplitDetails
from madbench.jobs import Job, Record, Status
from madbench.papers.interactions.profile import InteractionProfile, world_of
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.store.runs import Store
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from sample_jobs import language_job
from small_profiles import profile_text

LABELS = ("S", "R", "S-c", "R-c", "R-cg-q-12o", "G-cg-q-12o", "R-12!", "R-12o!", "cd:softmax", "hfa:2")
STATES: tuple[dict[Status | Literal["missing"], int], ...] = (
    {"finished": 1},
    {"finished": 5, "missing": 2},
    {"finished": 1, "missing": 12},
    {"diverged": 1, "missing": 1},
    {"failed": 1, "missing": 3},
    {"finished": 3, "diverged": 2, "failed": 1, "missing": 2},
    {"diverged": 1},
    {"failed": 1},
    {"missing": 1},
)
"""The weights with which the state of each job is drawn. Each entry is for one kind of store."""
ERRORS = (
    "out of memory",
    "over the time limit of 1 s",
    "crashed: signal 9",
    "loss was not finite at step 4",
)


@dataclass(frozen=True)
class Partial:
    """An incomplete store with a description: ``words`` are the options with which commands read its runs."""

    about: str
    store: Store
    words: tuple[str, ...]
    labels: tuple[str, ...]


def mad_record(job: Job, status: Status, chance: random.Random) -> Record:
    """A random record of a MAD job with the given status, like that of a training.

    A diverged run has no metrics, and its curve is empty or ends with NaN.
    """
    of_selection = "test" if job.fidelity == "published" else "validation"
    accuracy = chance.choice((0.0, 1.0, chance.random(), chance.random()))
    nan = float("nan")
    curve = [
        {"epoch": i, "step": 4 * i, "train_loss": 2.0 / i, f"{of_selection}_loss": 2.1 / i}
        | dict.fromkeys((f"{of_selection}_{one}_accuracy" for one in ("token", "macro", "batch_macro")), accuracy)
        for i in range(1, chance.choice((2, 5)))
    ]
    device = chance.choice(("an abacus", "a slide rule"))
    details: Details = {"budget_ratio": 0.99, "mixer_parameters": 1000, "device": device}
    if status == "failed":
        return Record("failed", error=chance.choice(ERRORS), details=chance.choice((Details(), details)))
    if status == "diverged":
        curve = chance.choice(([], curve[:1] + [curve[-1] | {"train_loss": nan, f"{of_selection}_loss": nan}]))
        return Record("diverged", {}, curve, details, ERRORS[-1])
    metrics = {"accuracy": accuracy, "selection_accuracy": accuracy, "test_loss": 0.5, "ceiling": 0.95}
    return Record("finished", metrics, curve, details)


def language_record(job: Job, status: Status, chance: random.Random) -> Record:
    splits: dict[str, SplitDetails] = {"train": {"tokens": 9000, "bytes": 8990}, "val": {"tokens": 1000, "bytes": 999}}
    corpus: CorpusDetails = {"name": "shelf", "digest": job.setting["corpus"], "tokenizer": "bytes", "splits": splits}
    evaluation: EvaluationDetails = {"windows": 4, "seq_len": 16, "train": "drawn anew", "val": "evenly spread"}
    details: Details = {"corpus": corpus, "evaluation": evaluation, "budget_ratio": 0.99, "mixer_parameters": 900}
    details |= {"device": "a slide rule"}
    if status == "failed":
        return Record("failed", error=chance.choice(ERRORS))
    curve = []
    for i in range(1, chance.choice((1, 2, 9)) + 1):
        loss = 3.0 / i + chance.random() / 10
        curve.append({"step": 10 * i, "tokens": 640 * i, "seconds": 2.0 * i, "step_loss": loss, "evaluation": i})
        curve[-1] |= {"train_loss": loss, "validation_loss": loss + 0.1, "validation_bits_per_byte": 2 * loss}
    if status == "diverged":
        nan = float("nan")
        curve = chance.choice(([], curve, [{"step": 1, "tokens": 64, "seconds": 0.1, "step_loss": nan}]))
        return Record("diverged", {}, curve, details, ERRORS[-1])
    return Record("finished", {"loss_l5": curve[-1]["train_loss"]}, curve, details)


def interaction_record(job: Job, status: Status, chance: random.Random) -> Record:
    if status == "failed":
        return Record("failed", error=chance.choice(ERRORS))
    details: Details = {"model_parameters": 600, "steps": 1, "seconds": 1.0}
    lengths = world_of(job).lengths
    metrics = {f"variance_{n}": 5.0 for n in lengths}
    metrics |= {f"mse_{n}": chance.choice((0.0, 1e-9, 2.0)) for n in lengths}
    metrics |= {"effects_error": 1e-10, "diagonal_error": 0.0}
    return Record(status, metrics if status == "finished" else {}, [], details)


def fill(
    store: Store, jobs: Iterable[Job], record: Callable[[Job, Status, random.Random], Record], chance: random.Random
) -> list[Job]:
    """Store runs of ``jobs`` in random states, with some jobs left out. Return the jobs that were stored.

    ``record(job, status, chance)`` makes the record of a run.
    """
    shares, stored = chance.choice(STATES), []
    for job in jobs:
        (status,) = chance.choices([*shares], [*shares.values()])
        if status != "missing":
            store.finish(job, record(job, status, chance))
            stored.append(job)
    return stored


def mad_store(root: Path, chance: random.Random) -> Partial:
    """A random store of runs of MAD tasks, with one or several task settings and learning rates, in either fidelity."""
    store = Store.open(root / "results")
    name = chance.choice(("quick", "quick", "full", "rates", "settings"))
    if name in ("rates", "settings"):
        path = root / f"{name}.yaml"
        rates = {"learning_rates": [1e-3, 1e-2], "weight_decays": [0.0, 0.1], "model": {"d_model": 64}}
        difficulty = "baseline" if name == "rates" else "all"
        path.write_text(profile_text(difficulty=difficulty, training={"batch_size": 16, "epochs": 2}, **rates))
        name = str(path)
    tasks = MAD_TASKS if name == "quick" and chance.random() < 0.5 else chance.sample(MAD_TASKS, chance.choice((1, 2)))
    labels = tuple(chance.sample(LABELS, chance.choice((1, 2, 3, 5))))
    fidelity, budget = chance.choice(("corrected", "corrected", "published")), chance.choice(("strict", "paper"))
    how: dict[str, Any] = {
        "tasks": tasks,
        "seeds": range(chance.choice((1, 2, 3))),
        "fidelity": fidelity,
        "budget": budget,
    }
    profile = MAD.Profile.load(name)
    if name == "quick":
        how["precision"] = "float32"
    fill(store, MAD.jobs(labels, profile, **how), mad_record, chance)
    words = ("-p", name, "--fidelity", fidelity, "--budget", budget)
    if chance.random() < 0.5:
        words += ("-t", ",".join(tasks))
    return Partial(f"MAD {name}", store, words, labels)


def language_store(root: Path, chance: random.Random) -> Partial:
    """A random store of runs of language models, of one or two profiles."""
    store = Store.open(root / "results")
    labels = tuple(chance.sample(LABELS[:5], chance.choice((1, 2, 4))))
    profiles = [chance.choice(LANGUAGE.Profile.names()) for _ in range(chance.choice((1, 1, 2)))]
    jobs = [language_job(label, seed=seed) for label in labels for seed in range(chance.choice((1, 2, 3)))]
    for profile in profiles[1:]:
        profile = LANGUAGE.Profile.load(profile)
        training = profile.training_config("float32")
        jobs += [replace(job, model=profile.model_config(), training=training) for job in jobs]
    fill(store, jobs, language_record, chance)
    return Partial("language models", store, ("-t", "language_model", "--budget", "strict"), labels)


def interaction_store(root: Path, chance: random.Random) -> Partial:
    """A random store of runs of the suite of interactions, under its quick profile."""
    store = Store.open(root / "results")
    tasks = chance.sample(("colliding", "hunters", "alliances"), chance.choice((1, 2, 3)))
    jobs = INTERACTIONS.jobs((), InteractionProfile.load("quick"), tasks=tasks, seeds=(0, 1))
    fill(store, jobs, interaction_record, chance)
    return Partial("interactions", store, (), ())


def damage(store: Store, chance: random.Random) -> None:
    """Cut, empty, alter or remove a random file of a random stored run. Does nothing if the store is empty."""
    names = store.job_ids()
    if names:
        path = store.root / "runs" / chance.choice(names) / chance.choice(("record.json", "job.json", "curve.csv"))
        how = chance.choice(("cut", "empty", "gone", "altered"))
        if how == "gone":
            path.unlink()
        else:
            content = path.read_bytes()
            changed = {"cut": content[: len(content) // 2], "empty": b"", "altered": content.replace(b"1", b"2")}
            path.write_bytes(changed[how])


def partial_store(root: Path, seed: int) -> Partial:
    """A random incomplete store of one or two suites, determined by ``seed``. One in four stores has a damaged run."""
    chance = random.Random(seed)
    made = chance.choice((mad_store, mad_store, mad_store, language_store, interaction_store))(root, chance)
    if made.words and chance.random() < 0.25:
        chance.choice((language_store, interaction_store, mad_store))(root, chance)
    if chance.random() < 0.25:
        damage(made.store, chance)
    return made
