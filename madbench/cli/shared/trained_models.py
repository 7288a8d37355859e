"""Trained models, found by label, id or file, and the corpora on which they were trained."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from madbench.cli.shared.options import open_stored
from madbench.config.options import argument, option
from madbench.errors import ConfigError, MadbenchError, StoreError, no_effect
from madbench.jobs import WEIGHTS
from madbench.labels.names import names_in_use, use_names
from madbench.store.runs import Store
from madbench.store.trained import stored_weights
from madbench.suites import suite_of
from madbench.text.options import CorpusOptions

if TYPE_CHECKING:
    from madbench.models.gpt import GPT
    from madbench.store.format import Measurement
    from madbench.text.corpus import Corpus

_RUN_HELP = (
    "A label with one run, the first digits of a run's id (madbench ls runs), or a file of weights: "
    "weights.safetensors or checkpoint.pt."
)
ModelArgument = Annotated[str, argument("RUN", _RUN_HELP)]
ModelsArgument = Annotated[list[str], argument("RUN", f"{_RUN_HELP} One or more.")]
TrustOption = Annotated[
    list[str] | None,
    option(
        "Label of your own module whose code may be imported, such as my:my_mixers.MyMixer; may be repeated.",
        "--trust",
        metavar="LABEL",
    ),
]


class TrainedModel:
    """A trained model with its weights, its job, and its store if it has one.

    ``name`` is a label, the first digits of a run's id, or a file of weights. By default only language models are
    found. With ``is_of_text=False`` models of any suite are found, or only those of ``tasks``, names of tasks or
    suites. ``trust`` has the labels whose code may be imported. Raises ``ConfigError`` for unknown tasks, and
    ``StoreError`` unless exactly one matching run has weights.
    """

    def __init__(
        self,
        name: str,
        results: Path,
        is_of_text: bool = True,
        tasks: Sequence[str] | None = None,
        trust: Sequence[str] | None = None,
    ):
        from madbench.training.checkpoints import load_model

        self.results = results
        is_file = os.path.isfile(name)
        if tasks and is_file:
            raise no_effect(f"--tasks {','.join(tasks)}", f"on {name}, a file of one run")
        self.weights = Path(name) if is_file else stored_weights(name, open_stored(results), is_of_text, tasks)
        self.model, self.job = load_model(self.weights, trust or ())
        if not is_file and not self.job.id.startswith(name):
            use_names(names_in_use().with_spelling(self.job.label, name))
        if is_of_text and not suite_of(self.job).corpus_of(self.job):
            raise ConfigError(f"{self.weights}: weights of task {self.job.task}; only language models can be used here")
        folder = self.weights.absolute().parent
        is_stored = folder.name == self.job.id and folder.parent.name == "runs" and self.weights.name == WEIGHTS
        self.store = Store.open(folder.parents[1], create=False) if is_stored else None
        self.not_stored = ""  # the reason why a measurement could not be stored

    @property
    def language_model(self) -> GPT:
        """The model as a ``GPT``. Only for a :class:`TrainedModel` that was made with ``is_of_text=True``."""
        return cast("GPT", self.model)

    def measure(self, measurement: Measurement) -> None:
        """Store a measurement with the model's run. No effect if the model is not in a store.

        If it cannot be written, for example to a read-only disk, the attribute ``not_stored`` becomes the reason.
        """
        if self.store:
            try:
                self.store.measure(self.job.id, **vars(measurement))
            except StoreError as error:
                self.not_stored = str(error)

    @property
    def where_stored(self) -> str:
        """A line that says if and where the measurements of the model are stored."""
        if self.not_stored:
            return "not stored"
        return f"stored with run {self.job.id}" if self.store else f"not stored: {self.weights} is not in a store"

    def corpus(self, corpus_options: CorpusOptions = CorpusOptions()) -> Corpus:
        """Open the corpus on which the model was trained.

        It is read from the folder that ``corpus_options`` names. If they name none, it is searched for in the folder
        that the run's record names, and in the folder ``corpora`` of the results.

        A folder without a manifest does not say how to read its files. The tokenizer and the type of ids are then those
        of ``corpus_options``, or else those of the run's record. A model in an exported file has no record.

        Raises ``ConfigError`` if the given folder does not have the model's corpus, if no corpus is found, and if a
        tokenizer or a type of ids is given without a folder.
        """
        from madbench.text.corpus import open_corpus
        from madbench.text.manifest import MANIFEST

        digest, cache = self.job.setting["corpus"], self.results / "corpora"
        details = self.store.read(self.job.id).record.details if self.store else {}
        description = details.get("corpus", {})
        options = {"tokenizer": corpus_options.tokenizer, "dtype": corpus_options.dtype}

        def open_as_recorded(folder: Path) -> Corpus:
            """Open the corpus in a folder.

            If the folder has no manifest, the record gives the tokenizer and the type of ids, unless the user did.
            """
            recorded = {} if (folder / MANIFEST).exists() else description
            tokenizer = options["tokenizer"] or recorded.get("tokenizer")
            return open_corpus(folder, tokenizer, cache, options["dtype"] or recorded.get("dtype"))

        if corpus_options.corpus is not None:
            corpus = open_as_recorded(corpus_options.corpus)
            if corpus.digest != digest:
                problem = f"corpus {corpus.digest}, but the model was trained on corpus {digest}"
                if corpus.manifest.recipe is None:
                    spec, type_ = corpus.manifest.tokenizer.spec, corpus.manifest.dtype
                    problem += f"; it was read as {spec} in {type_}, which --tokenizer and --dtype change"
                raise ConfigError(f"{corpus_options.corpus}: {problem}")
            return corpus
        for name, value in options.items():
            if value is not None:
                raise no_effect(f"--{name} {value}", "without --corpus, the folder of the files")
        recorded = [Path(description["folder"])] if "folder" in description else []  # not for imported runs
        problems = []
        for place in dict.fromkeys([*recorded, *(path.absolute() for path in sorted(cache.glob("*/")))]):
            try:
                corpus = open_as_recorded(place)
            except MadbenchError as error:  # missing, unfinished or damaged
                problems.append(f"\n{error}")
                continue
            if corpus.digest == digest:
                return corpus
        problem = f"its corpus {digest} is not in {cache}; name its folder with --corpus"
        raise ConfigError(f"{self.weights}: {problem}{''.join(problems)}")


def check_stored(reasons: Iterable[str]) -> None:
    """Raise ``StoreError`` if a measurement was printed but could not be stored.

    ``reasons`` are the models' attributes ``not_stored``, which are empty if there was no problem.
    """
    if problems := list(filter(None, reasons)):
        raise StoreError("\n".join(["printed above, but not stored with the run:", *problems]))
