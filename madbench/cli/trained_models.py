"""Which trained model a word means, and the corpus that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from madbench.cli.listings import setting_change
from madbench.cli.options import open_stored
from madbench.cli.parameters import argument
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.jobs import WEIGHTS
from madbench.labels import parse
from madbench.store.runs import Store
from madbench.suites import suite_of

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

ModelArgument = argument(
    str,
    "RUN",
    "A label with one run, the first digits of a run's id (madbench ls runs), or a file of weights: "
    "weights.safetensors or checkpoint.pt.",
)


class TrainedModel:
    """The model that ``name`` means, with its weights, the job that made it, and the store it is in, if any.

    Only models of text by default; otherwise of any suite and, where it is given, of one ``task``. Raises
    ``StoreError`` for no finished one of the store, for one whose weights were not kept, and for several.
    """

    def __init__(self, name: str, results: Path, is_of_text: bool = True, task: str | None = None):
        from madbench.training.checkpoints import load_model

        self.results = results
        is_file = Path(name).is_file()
        if task and is_file:
            raise ConfigError(f"--task {task}: has no effect on {name}, a file of one run")
        self.weights = Path(name) if is_file else _stored_weights(name, results, is_of_text, task)
        self.model, self.job = load_model(self.weights)
        if is_of_text and not suite_of(self.job).takes_corpus:
            raise ConfigError(f"{self.weights}: weights of task {self.job.task}; only language models can be used here")
        folder = self.weights.absolute().parent
        is_stored = folder.name == self.job.id and folder.parent.name == "runs" and self.weights.name == WEIGHTS
        self.store = Store.open(folder.parents[1], create=False) if is_stored else None

    def corpus(self, given: Path | None, tokenizer: str | None = None, dtype: str | None = None) -> Corpus:
        """The corpus it was trained on: the given one, else where its run or the results folder has it.

        ``tokenizer`` and ``dtype`` are those of a given one without a manifest; else its run says them, and an exported
        file does not. Raises ``ConfigError`` where the given one is another, and where none is found.
        """
        from madbench.text.corpus import open_corpus
        from madbench.text.manifest import MANIFEST

        digest, cache = self.job.setting["corpus"], self.results / "corpora"
        details = self.store.read(self.job.id).record.details if self.store else {}
        described = details.get("corpus", {})
        asked = {"tokenizer": tokenizer, "dtype": dtype}

        def opened(folder: Path) -> Corpus:
            """The corpus in a folder; one without a manifest as the run had it, unless something else is asked for."""
            recorded = {} if (folder / MANIFEST).exists() else described
            return open_corpus(folder, cache=cache, **{name: asked[name] or recorded.get(name) for name in asked})

        if given is not None:
            corpus = opened(given)
            if corpus.digest != digest:
                problem = f"corpus {corpus.digest}, but the model was trained on corpus {digest}"
                if corpus.manifest.recipe is None:
                    spec, type_ = corpus.manifest.tokenizer.spec, corpus.manifest.dtype
                    problem += f"; read as {spec} in {type_}: --tokenizer and --dtype say otherwise"
                raise ConfigError(f"{given}: {problem}")
            return corpus
        if useless := [f"--{name} {value}" for name, value in asked.items() if value is not None]:
            raise ConfigError(f"{', '.join(useless)}: no effect without --corpus, the folder whose files it is of")
        recorded = [Path(described["folder"])] if described else []
        problems = []
        for place in dict.fromkeys([*recorded, *(path.absolute() for path in sorted(cache.glob("*/")))]):
            try:
                corpus = opened(place)
            except MadbenchError as error:  # gone, unfinished or damaged: not the one
                problems.append(f"\n{error}")
                continue
            if corpus.digest == digest:
                return corpus
        problem = f"its corpus {digest} is not in {cache}; name its folder with --corpus"
        raise ConfigError(f"{self.weights}: {problem}{''.join(problems)}")


def _stored_weights(name: str, results: Path, is_of_text: bool, task: str | None) -> Path:
    store = open_stored(results)
    stored = [run for run in store.runs(with_curves=False) if task in (None, run.job.task)]
    stored = [run for run in stored if not is_of_text or suite_of(run.job).takes_corpus]
    named = [run for run in stored if run.job.id.startswith(name)]
    named = named or [run for run in stored if run.job.label == str(parse(name))]
    found = [run for run in named if store.has_weights(run.job.id)]
    if not found and named and not is_of_text:
        again = "the command that trained it trains it again, and keeps them, with --keep-weights --force"
        raise StoreError(f"{results}: {name!r} is stored without weights; {again}")
    if not found:
        of_any = "madbench lm" if is_of_text else "madbench run LABEL -t TASK --keep-weights"
        elsewhere = f"{of_any} trains one, and an unfinished one is in {results}/work/ID/checkpoint.pt"
        raise StoreError(f"{results}: no finished {'language model' if is_of_text else 'run'} {name!r}; {elsewhere}")
    if len(found) > 1:
        lines = [f"  {run.job.id}  {run.job.task} {setting_change(run.job)}, seed {run.job.seed}" for run in found]
        raise StoreError(f"{results}: {len(found)} runs are {name!r}; name one by its id:\n" + "\n".join(lines))
    return store.kept_file(found[0].job.id, WEIGHTS)
