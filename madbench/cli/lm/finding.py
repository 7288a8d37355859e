"""From what a user calls a trained model to its weights, its job and its corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from madbench.language_jobs import LanguageJob
    from madbench.text.corpus import Corpus

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A label with one run, the first digits of a run's id (madbench ls runs), or a file of weights: "
        "weights.safetensors or checkpoint.pt.",
    ),
]


def find_weights(name: str, results: Path) -> Path:
    """The file of weights that ``name`` means.

    Raises ``StoreError`` where it means no finished language model of the store, or several, which it lists.
    """
    if Path(name).is_file():
        return Path(name)
    from madbench.cli.stored_runs import opened
    from madbench.labels import parse
    from madbench.language_jobs import LanguageJob

    store = opened(results)
    stored = list(store.runs(with_curves=False, kind=LanguageJob))
    found = [run for run in stored if run.job.id.startswith(name)]
    if not found:
        label = str(parse(name))
        found = [run for run in stored if run.job.label == label]
    found = [run for run in found if (run.folder / "weights.safetensors").is_file()]
    if not found:
        raise StoreError(
            f"{results}: no finished language model {name!r}; madbench lm trains one, and an unfinished one is in "
            f"{results}/work/ID/checkpoint.pt"
        )
    if len(found) > 1:
        from madbench.analysis.language_runs import LanguageProtocol

        lines = [f"  {run.job.id}  {LanguageProtocol.of(run.job).preset}, seed {run.job.seed}" for run in found]
        raise StoreError(f"{results}: {len(found)} runs are {name!r}; name one by its id:\n" + "\n".join(lines))
    return found[0].folder / "weights.safetensors"


def find_corpus(job: LanguageJob, weights: Path, given: Path | None, results: Path) -> Corpus:
    """The corpus the model was trained on: the one that was given, else where its run or ``results`` has it.

    Raises ``ConfigError`` where the given one is another, and where none is found.
    """
    from madbench.errors import MadbenchError
    from madbench.store.runs import Store
    from madbench.text.corpus import open_corpus

    if given is not None:
        corpus = open_corpus(given, cache=results / "corpora")
        if corpus.digest != job.corpus:
            raise ConfigError(f"{given}: corpus {corpus.digest}, but the model was trained on corpus {job.corpus}")
        return corpus
    places = sorted((results / "corpora").glob("*/"))
    if weights.parent.name == job.id and weights.parent.parent.name == "runs":
        recorded = Store(weights.parents[2]).read(job.id).record.details.get("corpus", {})
        places = [Path(recorded["folder"]), *places] if "folder" in recorded else places
    for place in places:
        try:
            corpus = open_corpus(place, cache=results / "corpora")
        except MadbenchError:  # gone, unfinished or damaged: not the one
            continue
        if corpus.digest == job.corpus:
            return corpus
    raise ConfigError(f"{weights}: its corpus {job.corpus} is not in {results}/corpora; name its folder with --corpus")
