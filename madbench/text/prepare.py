"""Preparation of a corpus: one resumable pass over the sources, tokenized in parallel and appended in order."""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, make_folder, refuse_link, remove
from madbench.text.byte_tokenizer import Tokenizer
from madbench.text.corpus import PARTIAL, Corpus, open_corpus
from madbench.text.documents import Source
from madbench.text.folder_tokenizer import PREFIX, folder_of
from madbench.text.manifest import MANIFEST, SPLITS, Manifest, Recipe, SourceInfo, load
from madbench.text.options import PrepareOptions
from madbench.text.partial import (
    PROGRESS,
    DocumentBatch,
    Encoded,
    PreparationState,
    SplitRule,
    encode,
    install_corpus,
    start_corpus,
)
from madbench.text.sources import find_sources
from madbench.text.tokenizers import load_tokenizer, train_bpe, trained_size

STDLIB_VALIDATION = 0.08  # share of about 12 MB: enough for a validation loss

BATCH_CHARACTERS = 1_000_000
IN_FLIGHT = 3  # batches per thread, so that no thread waits
SAVE_SECONDS = 5.0
FEWEST_VALIDATION_DOCUMENTS = 10
BPE_SAMPLE_CHARACTERS = 50_000_000


@dataclass(frozen=True)
class Progress:
    """A report of :func:`prepare` on its progress."""

    stage: str
    """``training the tokenizer`` or ``tokenizing``."""
    done: int
    """Number of bytes of the sources that have been read, out of ``total``. While a tokenizer is trained, the number of
    characters of its sample."""
    total: int
    tokens: int
    """Number of tokens in both splits that have been encoded so far."""


OnProgress = Callable[[Progress], object]
Encoder = Callable[[list[str]], Encoded]


def prepare(
    words: Sequence[str],
    folder: Path | str,
    options: PrepareOptions = PrepareOptions(),
    *,
    tokenizer: str = "bytes",
    name: str | None = None,
    on_progress: OnProgress = lambda _: None,
    wait: bool = False,
) -> Corpus:
    """Tokenize the sources ``words`` into a corpus in ``folder``. If the folder already has this corpus, only open it.

    After an interruption, the same call resumes; at most the last few seconds are lost. The files do not depend on the
    number of workers or on interruptions.

    Args:
        words: files, folders, ``hf:NAME`` or ``stdlib``, as :func:`madbench.text.sources.find_sources` takes them.
        folder: the folder of the corpus, which is made if it is missing.
        options: how sources are read and divided between training and validation.
        tokenizer: ``bytes``, ``gpt2``, ``bpe:N`` to train a BPE of N ids on this text, the ``tokenizer.json`` of such a
            BPE, or ``hf-tokenizer:FOLDER``.
        name: name of the corpus; by default the folder's name.
        on_progress: called after every batch.
        wait: if another process uses the folder, wait until it is done. Otherwise this is an error.

    Raises ``ConfigError`` for sources, options or a folder that cannot be used. Raises ``StoreError`` for a full disk,
    a damaged folder, and a folder that another process is using.
    """
    folder, validation = Path(folder), options.validation
    if not 0 < validation < 1:
        usual = PrepareOptions.validation
        raise ConfigError(f"validation {validation:g}: expected a share above 0 and below 1, such as {usual}")
    limits = options.limits
    sources = find_sources(words, options.text_key, limits, options.skip_bad)
    chosen = None if trained_size(tokenizer) else load_tokenizer(tokenizer)
    identity = _tokenizer_identity(tokenizer, chosen)
    recipe = Recipe(name or folder.resolve().name, identity, float(validation), options.text_key)
    request = _Request(folder, recipe, sources, options.force)

    partial_folder = folder / PARTIAL
    if corpus := request.finished_corpus():
        if not partial_folder.exists() or not os.access(folder, os.W_OK):
            return corpus  # no lock: the folder may be read-only
    with explain_os_errors(folder):
        make_folder(folder)
    with locked_folder(folder, wait):
        for path in (partial_folder, *partial_folder.glob("*")):
            refuse_link(path)
        if (partial_folder / MANIFEST).exists():
            install_corpus(folder)
        if corpus := request.finished_corpus():
            if not (partial_folder / PROGRESS).exists():  # nothing can be resumed from it
                with explain_os_errors(folder):
                    remove(partial_folder)
            return corpus
        rule = _split_rule(sources, recipe.validation)
        state = request.unfinished_state(rule)
        if state is None:
            notes = (chosen.note,) if chosen and chosen.note else ()
            if chosen is None:
                chosen, notes = _trained_tokenizer(tokenizer, sources, rule, on_progress)
            state = start_corpus(folder, recipe, rule, chosen, notes)
        else:
            chosen = chosen or load_tokenizer(tokenizer, partial_folder)
            if chosen.digest != state.manifest.tokenizer.digest:
                raise ConfigError(f"{folder}: begun with another tokenizer {tokenizer}; --force starts afresh")
        state.save(folder)
        workers = options.workers or (1 if chosen.spec == "bytes" else len(os.sched_getaffinity(0)))
        encoder = partial(encode, tokenizer=chosen, rule=rule)
        state = _pass_over(sources, folder, state, encoder, workers, limits.total, on_progress)
        state.complete(folder)
    return open_corpus(folder)


def _tokenizer_identity(tokenizer: str, chosen: Tokenizer | None) -> str:
    """The text that stands for a tokenizer in the recipe of a corpus. It does not depend on the place of its folder.

    ``chosen`` is the loaded tokenizer. None if it is trained on the corpus.
    """
    if chosen and folder_of(tokenizer):
        return f"{PREFIX}{chosen.digest}"
    return f"{chosen.spec} {chosen.digest}" if chosen and tokenizer.endswith(".json") else tokenizer


def _split_rule(sources: list[Source], validation: float) -> SplitRule:
    """The rule that divides documents between training and validation. A few documents are divided by their tails."""
    enough = round(min(FEWEST_VALIDATION_DOCUMENTS / validation, 1e9))
    count = sum(1 for _ in itertools.islice(_documents(sources), enough))
    return SplitRule(validation, by_tail=count < enough)


def _trained_tokenizer(
    tokenizer: str, sources: list[Source], rule: SplitRule, on_progress: OnProgress
) -> tuple[Tokenizer, tuple[str, ...]]:
    """Train the tokenizer ``bpe:N`` on the training text, and return it with the notes of the corpus about it."""
    vocab_size = trained_size(tokenizer)
    assert vocab_size is not None
    trained_on = f"the first {BPE_SAMPLE_CHARACTERS:,} characters of train, or all of it"
    notes = (f"the tokenizer was trained on {trained_on}",)
    return train_bpe(_sample(sources, rule, on_progress), vocab_size), notes


def default_corpus(results: Path | str, cache: Path | None = None) -> Corpus:
    """The default corpus: this Python's standard library in bytes, prepared in ``results/corpora`` on first use.

    It needs no network. Processes that start together wait for the one that prepares it. ``cache`` is the folder with
    the record of verified files (:func:`madbench.text.corpus.open_corpus`), by default ``results/corpora``.
    """
    folder = _default_folder(results)
    if has_default_corpus(results):
        return open_corpus(folder, cache=cache or folder.parent)
    return prepare(["stdlib"], folder, PrepareOptions(STDLIB_VALIDATION), name=folder.name, wait=True)


def has_default_corpus(results: Path | str) -> bool:
    """True if ``results`` already has the corpus that :func:`default_corpus` returns."""
    return (_default_folder(results) / MANIFEST).exists()


def _default_folder(results: Path | str) -> Path:
    return Path(results) / "corpora" / f"stdlib-{platform.python_version()}"


@dataclass(frozen=True)
class _Request:
    """A requested corpus, which may be in its folder already, whole or in part."""

    folder: Path
    recipe: Recipe
    sources: list[Source]
    force: bool
    """True to make the corpus again, and to remove what the folder has."""

    def finished_corpus(self) -> Corpus | None:
        """The corpus in the folder, if it is finished. None if it is not, or if it is made again.

        Raises ``ConfigError`` if the folder holds another corpus.
        """
        if self.force:
            return None
        folder, manifest = self.folder, load(Manifest, self.folder / MANIFEST)
        if manifest is None:
            if (folder / PARTIAL).exists() or not any((folder / f"{split}.bin").exists() for split in SPLITS):
                return None
            raise ConfigError(f"{folder}: holds token files of another program; choose another folder, or --force")
        if difference := manifest.difference(self.recipe, self.sources):
            raise ConfigError(f"{folder}: holds another corpus ({difference}); choose another folder, or --force")
        return open_corpus(folder)

    def unfinished_state(self, rule: SplitRule) -> PreparationState | None:
        """The state of the corpus in the folder, if it is unfinished. None if the preparation begins from the start.

        Raises ``ConfigError`` for an unfinished corpus of another request or with another ``rule``, and ``StoreError``
        for a damaged one. If :attr:`force` is true, such a corpus is removed instead.
        """
        folder = self.folder
        try:
            if state := load(PreparationState, folder / PARTIAL / PROGRESS):
                begun = self.sources[: len(state.manifest.sources)]  # later sources may have changed
                difference = state.manifest.difference(self.recipe, begun)
                if not difference and state.manifest.split_rule == str(rule):
                    return state
                raise ConfigError(
                    f"{folder}: holds an unfinished corpus of another request "
                    f"({difference or state.manifest.split_rule}); "
                    "finish that one, choose another folder, or --force"
                )
        except (ConfigError, StoreError):
            if not self.force:
                raise
        with explain_os_errors(folder):
            remove(folder / PARTIAL)
        return None


def _documents(sources: list[Source]) -> Iterator[str]:
    return itertools.chain.from_iterable(source.documents() for source in sources)


def _sample(sources: list[Source], rule: SplitRule, on_progress: OnProgress) -> Iterator[str]:
    """Yield the first ``BPE_SAMPLE_CHARACTERS`` characters of training text, to train a tokenizer on."""
    characters = 0
    for text in _documents(sources):
        for split, part in rule.parts(text):
            if split == "train":
                yield part[: BPE_SAMPLE_CHARACTERS - characters]
                characters += len(part)
                on_progress(Progress("training the tokenizer", characters, BPE_SAMPLE_CHARACTERS, 0))
        if characters >= BPE_SAMPLE_CHARACTERS:
            return


def _pass_over(
    sources: list[Source],
    folder: Path,
    state: PreparationState,
    encoder: Encoder,
    workers: int,
    most: int,
    on_progress: OnProgress,
) -> PreparationState:
    """Encode the text that ``state`` does not have yet, and append its ids to the corpus in ``folder``.

    Return the new state. ``workers`` threads encode the text with ``encoder``. If an error or an interrupt ends this
    early, the state of the finished part is saved. Raises ``StoreError`` for more than ``most`` bytes of text.
    """
    total = sum(source.size for source in sources)
    done = sum(source.size for source in state.boundary.sources)
    saved = time.monotonic()
    try:
        with closing(_encode_all(_batches(sources, state), encoder, workers)) as batches:
            for batch, encoded in batches:
                current = sources[len(state.boundary.sources)]
                state = state.append(folder, batch, encoded)
                done += current.size if batch.is_last else 0
                within = 0 if batch.is_last else current.position
                tokens = sum(split.tokens for split in state.manifest.splits.values())
                if sum(split.bytes or 0 for split in state.manifest.splits.values()) > most:
                    raise StoreError(f"{folder}: more than {most / 1e6:g} MB of text; --max-total MB allows more")
                on_progress(Progress("tokenizing", done + within, total, tokens))
                if time.monotonic() - saved > SAVE_SECONDS:
                    state.save(folder)
                    saved = time.monotonic()
    except BaseException as error:
        if isinstance(error, ConfigError):  # an unreadable source, which is repeated as a whole
            state = PreparationState(state.boundary, state.boundary)
        with suppress(StoreError):  # the disk is full for this file too; the earlier state is valid
            state.save(folder)
        raise
    state.save(folder)
    return state


def _batches(sources: list[Source], state: PreparationState) -> Iterator[DocumentBatch]:
    """Yield the documents that ``state`` does not have yet, in batches of about a megabyte, each from one source."""
    first = len(state.boundary.sources)
    done = sum(source.documents for source in state.manifest.sources[first:])
    for source in sources[first:]:
        texts, characters, count = [], 0, 0
        for count, text in enumerate(source.documents(), 1):
            if count > done:
                texts.append(text)
                characters += len(text)
            if characters >= BATCH_CHARACTERS:
                yield DocumentBatch(texts, SourceInfo.from_source(source, count), is_last=False)
                texts, characters = [], 0
        yield DocumentBatch(texts, SourceInfo.from_source(source, count), is_last=True)
        done = 0


def _encode_all(
    batches: Iterable[DocumentBatch], encoder: Encoder, workers: int
) -> Generator[tuple[DocumentBatch, Encoded], None, None]:
    """Yield every batch with its ids, in order. ``workers`` threads encode at the same time.

    Threads save time because a BPE encodes without holding Python's lock.
    """
    waiting: deque[tuple[DocumentBatch, Future[Encoded]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for batch in batches:
            waiting.append((batch, pool.submit(encoder, batch.texts)))
            if len(waiting) > IN_FLIGHT * workers:
                first, encoded = waiting.popleft()
                yield first, encoded.result()
        yield from ((batch, encoded.result()) for batch, encoded in waiting)


@contextmanager
def locked_folder(folder: Path, wait: bool) -> Iterator[None]:
    """Within a ``with`` block, hold the lock of ``folder``, so that no other process prepares a corpus there.

    If another process holds the lock, wait for it, or raise ``StoreError`` if ``wait`` is False. The kernel releases
    the lock of a killed process.
    """
    with explain_os_errors(folder / "lock"):  # read and append: a FIFO then does not block
        file = open(folder / "lock", "ab+", buffering=0)  # noqa: SIM115  closed below
    with file:
        with explain_os_errors(folder / "lock"):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise StoreError(f"{folder}: another process is preparing this corpus") from None
        yield
