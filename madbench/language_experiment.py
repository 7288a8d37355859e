"""The language-model half of the main job: labels and a corpus in, trained runs out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import check_seeds
from madbench.errors import ConfigError, TrainingError
from madbench.execute.base import Executor, OnEvent, Policy, Summary, ignore_event
from madbench.experiment import check_choice
from madbench.jobs import Counting, Precision
from madbench.labels import expand, parse
from madbench.language_jobs import LanguageJob
from madbench.store.runs import Store
from madbench.suites.plan import check_budget
from madbench.suites.preset import Preset, load_preset
from madbench.text.corpus import Corpus, open_corpus
from madbench.text.prepare import default_corpus

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.language_table import LanguageTable
    from madbench.store.runs import Run


@dataclass(frozen=True)
class LanguageExperiment:
    """A checked plan: nothing has been trained yet."""

    labels: list[str]
    preset: Preset
    preset_name: str
    overrides: tuple[str, ...]
    corpus: Corpus
    jobs: list[LanguageJob]
    counting: Counting
    precision: Precision
    device: str
    results: Path

    @property
    def title(self) -> str:
        """The protocol in a line."""
        what = f"language model, preset {self.preset_name}, corpus {self.corpus.name}, {self.device}"
        return what if self.preset.comparable_with_paper else f"{what}; not comparable with the paper"

    def execute(
        self,
        on_event: OnEvent = ignore_event,
        slots: int | None = None,
        policy: Policy = Policy(),
        executor: Executor | None = None,
        micro_batch: int | None = None,
        compile: bool = False,
    ) -> Summary:
        """Trains what the store lacks, ``slots`` runs at a time sharing the cores of this machine, or where ``executor``
        does it; under torchrun, all processes as one.

        ``micro_batch`` windows go through the model at once; it and ``compile`` change the speed, not the result.
        """
        from madbench.execute.local import run_jobs
        from madbench.execute.torchrun import train_distributed
        from madbench.training.devices import available_cores
        from madbench.training.distributed import is_distributed
        from madbench.training.language_loop import train_language_job

        corpus = replace(self.corpus, folder=self.corpus.folder.absolute())  # workers have another working directory
        train = functools.partial(train_language_job, corpus=corpus, micro_batch=micro_batch, compile=compile)
        if is_distributed():
            if executor is not None:
                raise ConfigError("--executor has no effect under torchrun: all its processes train one run together")
            if slots is not None:
                raise ConfigError("--slots has no effect under torchrun: all its processes train one run together")
            return train_distributed(self.jobs, self.results, train, self.device, on_event, policy)
        store = Store.open(self.results)
        if executor is None:
            slots = min(slots or 1, max(1, len(self.jobs)))
            executor = functools.partial(run_jobs, slots=slots, threads_per_slot=max(1, available_cores() // slots))
        train = functools.partial(train, device=self.device)
        return executor(self.jobs, store, train, on_event=on_event, policy=policy)


def prepare_language(
    labels: Sequence[str],
    *,
    preset: str = "tiny",
    overrides: Sequence[str] = (),
    corpus: Path | str | None = None,
    tokenizer: str | None = None,
    seeds: Sequence[int] = (0,),
    counting: Counting = "strict",
    device: str = "auto",
    results: Path | str = "results",
    precision: Precision | None = None,
    is_remote: bool = False,
) -> LanguageExperiment:
    """Parses, budgets, plans and opens the corpus; raises a ``MadbenchError`` for anything that could not be trained.

    Args:
        labels: labels or sets of labels.
        preset: ``tiny``, ``mini``, ``gpt2`` or a YAML file.
        overrides: changes to the preset, such as ``"training.steps=1000"``.
        corpus: folder made by ``madbench lm prepare``, or one with nanoGPT's train.bin and val.bin; by default the
            preset's own, which is prepared on first use.
        tokenizer: what made the ids of nanoGPT's files, ``gpt2`` by default.
        seeds: each decides initialisation and batches.
        counting: ``strict`` or ``published`` parameter budget.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store; default corpora are below it.
        precision: stands in for a preset's ``auto``, which otherwise depends on the device.
        is_remote: whether the device is that of the machines of an executor, ``cpu`` or ``cuda``; ``auto`` precision is
            bfloat16 on the second.
    """
    from madbench.training.devices import resolve_device, resolve_precision

    canonical = expand(labels)
    overrides = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    seeds = check_seeds(seeds)
    check_choice("counting", counting, Counting)
    loaded = load_preset(str(preset), overrides)
    device = resolve_device(device, is_here=not is_remote)
    if precision is None or loaded.precision != "auto":
        precision = resolve_precision(loaded.precision, device, is_here=not is_remote)
    for label in canonical:
        check_budget(parse(label), loaded.model, loaded.model.seq_len, counting, "language_model")
    if not canonical or not seeds:
        raise ConfigError("nothing to train: give at least one label and one seed")
    training = loaded.training_config(precision)
    opened = _open(corpus, tokenizer, loaded, str(preset), Path(results))
    jobs = [
        LanguageJob(label, opened.digest, opened.padded_vocab_size, loaded.model, training, seed, counting)
        for label in canonical
        for seed in seeds
    ]
    return LanguageExperiment(
        canonical, loaded, str(preset), overrides, opened, jobs, counting, precision, device, Path(results)
    )


def _open(
    corpus: Path | str | None,
    tokenizer: str | None,
    preset: Preset,
    preset_name: str,
    results: Path,
) -> Corpus:
    if corpus is not None:
        return open_corpus(Path(corpus), tokenizer=tokenizer, cache=results / "corpora")
    if tokenizer is not None:
        raise ConfigError(f"--tokenizer {tokenizer}: has no effect without --corpus")
    if preset.corpus != "stdlib":
        raise ConfigError(
            f"preset {preset_name} has no corpus of its own: give --corpus FOLDER, made by madbench lm prepare, or with "
            "nanoGPT's train.bin and val.bin"
        )
    return default_corpus(results)


def stored_runs(experiment: LanguageExperiment) -> list[Run]:
    """The finished and diverged runs of the experiment, with their curves."""
    store = Store.open(experiment.results, create=False)
    return [store.read(job.id) for job in experiment.jobs if store.has(job)]


def tabulate_language(experiment: LanguageExperiment) -> LanguageTable:
    """The table of the experiment's runs, as far as they are in its store."""
    from madbench.analysis.language_table import language_table

    return language_table(stored_runs(experiment), experiment.labels)


def run_language_model(
    labels: str | Sequence[str],
    *,
    slots: int | None = None,
    force: bool = False,
    micro_batch: int | None = None,
    compile: bool = False,
    **choices: Any,
) -> pd.DataFrame:
    """Trains ``labels`` as language models and returns their curves; what the store has already is not trained again.

    Args:
        labels: labels or sets of labels (``"G-cg-q-12o"``, ``"{S,R}-c"``, ``"@table1"``).
        slots: runs at a time, which share the cores.
        force: train again what is already there.
        micro_batch: windows in memory at a time.
        compile: compile the model first.
        choices: those of :func:`prepare_language`: preset, overrides, corpus, tokenizer, seeds, counting, device,
            results, precision.

    Returns:
        One row a label, seed and logged step (:func:`madbench.analysis.loss_curves.loss_curves`).

    Jobs run in processes of their own: call this under ``if __name__ == "__main__":`` in a script.
    """
    from madbench.analysis.loss_curves import loss_curves

    experiment = prepare_language([labels] if isinstance(labels, str) else labels, **choices)
    summary = experiment.execute(slots=slots, policy=Policy(redo=force), micro_batch=micro_batch, compile=compile)
    if summary.failed:
        raise TrainingError(f"{summary.failed} of {len(experiment.jobs)} jobs failed; see {experiment.results}/runs")
    return loss_curves(stored_runs(experiment))
