"""From what a user calls a trained language model to its weights, its job, its run and its corpus."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.cli.options import argument
from madbench.cli.stored_runs import opened, setting_change
from madbench.errors import ConfigError, MadbenchError, StoreError

if TYPE_CHECKING:
    from madbench.jobs import Job
    from madbench.store.runs import Store
    from madbench.text.corpus import Corpus

WEIGHTS = "weights.safetensors"

ModelArgument = argument(
    str,
    "RUN",
    "A label with one run, the first digits of a run's id (madbench ls runs), or a file of weights: "
    "weights.safetensors or checkpoint.pt.",
)


@dataclass(frozen=True)
class TrainedModel:
    """A language model with its weights, and the job that made it."""

    weights: Path
    results: Path
    model: Any
    job: Job

    @classmethod
    def find(cls, name: str, results: Path) -> TrainedModel:
        """The model that ``name`` means; raises ``StoreError`` for no finished one of the store, and for several."""
        from madbench.suites import LANGUAGE
        from madbench.training.weights import load_model

        weights = Path(name) if Path(name).is_file() else _stored_weights(name, results)
        model, job = load_model(weights)
        if job.suite != LANGUAGE.name:
            raise ConfigError(f"{weights}: weights of task {job.task}; only language models can be used here")
        return cls(weights, results, model, job)

    @functools.cached_property
    def store(self) -> Store | None:
        """The store that the run is in; None for other files."""
        from madbench.store.runs import Store

        folder = self.weights.absolute().parent
        is_stored = folder.name == self.job.id and folder.parent.name == "runs" and self.weights.name == WEIGHTS
        return Store.open(folder.parents[1], create=False) if is_stored else None

    def corpus(self, given: Path | None) -> Corpus:
        """The corpus it was trained on: the given one, else where its run or the results folder has it.

        Raises ``ConfigError`` where the given one is another, and where none is found.
        """
        from madbench.text.corpus import open_corpus

        digest, cache = self.job.setting["corpus"], self.results / "corpora"
        if given is not None:
            corpus = open_corpus(given, cache=cache)
            if corpus.digest != digest:
                raise ConfigError(f"{given}: corpus {corpus.digest}, but the model was trained on corpus {digest}")
            return corpus
        details = self.store.read(self.job.id).record.details if self.store else {}
        recorded = [Path(details["corpus"]["folder"])] if "corpus" in details else []
        for place in [*recorded, *sorted(cache.glob("*/"))]:
            try:
                corpus = open_corpus(place, cache=cache)
            except MadbenchError:  # gone, unfinished or damaged: not the one
                continue
            if corpus.digest == digest:
                return corpus
        raise ConfigError(f"{self.weights}: its corpus {digest} is not in {cache}; name its folder with --corpus")


def _stored_weights(name: str, results: Path) -> Path:
    from madbench.labels import parse
    from madbench.suites import LANGUAGE

    store = opened(results)
    stored = list(store.runs(with_curves=False, suite=LANGUAGE.name))
    found = [run for run in stored if run.job.id.startswith(name)]
    if not found:
        label = str(parse(name))
        found = [run for run in stored if run.job.label == label]
    found = [run for run in found if (run.folder / WEIGHTS).is_file()]
    if not found:
        raise StoreError(
            f"{results}: no finished language model {name!r}; madbench lm trains one, and an unfinished one is in "
            f"{results}/work/ID/checkpoint.pt"
        )
    if len(found) > 1:
        lines = [f"  {run.job.id}  {setting_change(run.job)}, seed {run.job.seed}" for run in found]
        raise StoreError(f"{results}: {len(found)} runs are {name!r}; name one by its id:\n" + "\n".join(lines))
    return store.kept_file(found[0].job.id, WEIGHTS)
