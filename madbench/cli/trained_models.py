"""Verbs for one trained language model: ``madbench lm sample``, ``lm evaluate`` and ``lm export``."""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from madbench.cli import options
from madbench.cli.ls import setting_change
from madbench.cli.options import argument, open_stored, option, output_option
from madbench.cli.printing import print_json, quantity
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.jobs import WEIGHTS
from madbench.labels import parse
from madbench.mixers import label_traits
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.training.devices import device_name, git_state, resolve_device, versions

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

ModelArgument = argument(
    str,
    "RUN",
    "A label with one run, the first digits of a run's id (madbench ls runs), or a file of weights: "
    "weights.safetensors or checkpoint.pt.",
)


def sample(
    run: ModelArgument,
    prompt: option(str, "Text to continue.", show_default="the beginning of a document") = "",
    tokens: option(int, "Tokens to write at most; the end of a document ends it.", min=1, max=1_000_000) = 200,
    temperature: option(float, "Below 1 likelier, above 1 bolder; 0 the likeliest.", min=0) = 0.8,
    top_k: option(int | None, "Choose among this many likeliest tokens only.", min=1) = None,
    seed: option(int, "Seed of the draws.", min=0) = 0,
    corpus: option(Path | None, "Folder of the corpus, for its tokenizer, where it has been moved.") = None,
    tokenizer: options.TokenizerOption = None,
    dtype: options.DtypeOption = None,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Write text with a trained language model, token by token through the mixers' caches.

    Text goes to standard output as it is made; the speed follows at the end.

    [bold]Examples[/bold]

      madbench lm sample G-cg-q-12o
      madbench lm sample 3f9a --prompt 'def main(' --tokens 400 --temperature 0.5
      madbench lm sample results/work/3f9a/checkpoint.pt
    """
    import torch

    from madbench.models.gpt import generate
    from madbench.text.documents import valid_unicode

    if top_k and not temperature:
        raise ConfigError(f"--top-k {top_k}: has no effect with --temperature 0, which takes the likeliest token")
    device = resolve_device(device)
    trained = TrainedModel(run, results)
    known, prompt = trained.corpus(corpus, tokenizer, dtype).tokenizer(), valid_unicode(prompt)
    if top_k and top_k >= known.vocab_size:
        count = known.vocab_size
        raise ConfigError(f"--top-k {top_k}: has no effect: tokenizer {known.spec} has {count} tokens")
    ids = known.encode(prompt).tolist() or [known.end_of_text]
    how = {"temperature": temperature, "top_k": top_k, "vocab_size": known.vocab_size}
    how["generator"] = torch.Generator(device).manual_seed(seed % 2**63)
    written = generate(trained.model.to(device), ids, tokens, **how)
    print(prompt, end="", flush=True)
    decoder, made, started = codecs.getincrementaldecoder("utf-8")("replace"), 0, time.perf_counter()
    for token in itertools.takewhile(lambda token: token != known.end_of_text, written):
        made += 1
        print(decoder.decode(known.tokens[token]), end="", flush=True)  # a token may hold half of a character
    seconds = time.perf_counter() - started
    print(decoder.decode(b"", final=True))
    end = "" if made == tokens else ", then the end of the document"
    speed = f"{(len(ids) + made) / seconds:,.0f} tokens/s on {device}, prompt included"
    print(f"{trained.job.label}: {made} tokens{end}, {speed}", file=sys.stderr)


def evaluate(
    run: ModelArgument,
    seq_len: option(int | None, "Tokens of a window.", min=1, show_default="those of the training") = None,
    windows: option(int | None, "Windows, evenly spread.", min=1, show_default="those of the training") = None,
    corpus: option(Path | None, "Folder of the corpus, where it has been moved.") = None,
    tokenizer: options.TokenizerOption = None,
    dtype: options.DtypeOption = None,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    as_json: options.JsonOption = False,
) -> None:
    """Measure the validation loss of a trained language model, also at other lengths than it was trained with.

    The result is printed, and stored with the run as a measurement. Mixing over
    the sequence has tables as long as the training windows: shorter windows use
    their first rows, longer ones are an error.

    [bold]Examples[/bold]

      madbench lm evaluate G-cg-q-12o
      madbench lm evaluate G-cg-q-12o --seq-len 32 --windows 1000
    """
    device = resolve_device(device)
    trained = TrainedModel(run, results)
    job, windowed = trained.job, trained.corpus(corpus, tokenizer, dtype)
    length = seq_len or job.model.seq_len
    config = dataclasses.replace(job.training, eval_sequences=windows or job.training.eval_sequences)
    evaluation = suite_of(job).Trial.evaluator(windowed, length, config, device)
    with Console(stderr=True).status(f"{config.eval_sequences} windows of {length} tokens"):
        losses = evaluation.validation(trained.model.to(device))
    described = evaluation.description()
    if store := trained.store:
        settings = {"seq_len": length, "windows": described["windows"], "precision": config.precision}
        details = {"device": device_name(device), "versions": versions(), "git": git_state(), "evaluation": described}
        store.measure(job.id, "evaluation", losses, details, settings)
    if as_json:
        print_json({"label": job.label, "id": job.id, **losses, **described})
        return
    units = {"validation_loss": "nats per token", "validation_bits_per_byte": "bits per byte"}
    numbers = [f"{losses[name]:.4f} {unit}" for name, unit in units.items() if name in losses]
    print(f"{job.label}: validation loss {', '.join(numbers)}")
    print(f"{described['windows']} windows of {length} tokens, one every {described['val_stride']:,.1f}")
    if length < job.model.seq_len and label_traits(parse(job.label)).has_tables:
        print(f"trained with {job.model.seq_len} tokens: only the first {length} rows of the mixing tables are used")
    print(f"stored with run {job.id}" if store else f"not stored: {trained.weights} is not in a store")


def export(
    run: ModelArgument,
    output: output_option("File to write.", show_default="LABEL-ID.safetensors") = None,
    force: option(bool, "Replace the file if it is there.", "--force") = False,
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Write the weights of a language model as safetensors, with its job in the file's metadata.

    A checkpoint of an unfinished run is exported too. In Python,
    madbench.training.checkpoints.load_model reads the file into a model.

    [bold]Examples[/bold]

      madbench lm export G-cg-q-12o
      madbench lm export 3f9a --output hyperglu.safetensors
    """
    from madbench.training.checkpoints import save_weights

    trained = TrainedModel(run, results)
    output = output or Path(f"{trained.job.label}-{trained.job.id[:8]}.safetensors")
    if output.exists() and not force:
        raise ConfigError(f"{output}: already exists; give --force to replace it, or another --output")
    save_weights(output, trained.model, trained.job)
    print(f"{output}: {quantity(sum(p.numel() for p in trained.model.parameters()))} parameters of {trained.job.label}")


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
