"""Text to a corpus: one pass over the sources, tokenised in parallel, appended in order, resumable at any point."""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from madbench import __version__
from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, remove, write_atomically
from madbench.text.corpus import PARTIAL, SPLITS, Corpus, open_corpus, read_split
from madbench.text.encoding import Batch, Encoder, SplitRule, encode_all
from madbench.text.manifest import MANIFEST, Manifest, Recipe, SourceFacts, SplitFacts, TokenizerFacts
from madbench.text.partial import Partial, State, install
from madbench.text.request import Request, Stamp, stamp
from madbench.text.sources import Source, find_sources
from madbench.text.tokenizers import Tokenizer, load_tokenizer, train_bpe

VALIDATION = 0.01
STDLIB_VALIDATION = 0.08  # of some 12 MB: enough for a validation loss

BATCH_CHARACTERS = 1_000_000
SAVE_SECONDS = 5.0
FEWEST_VALIDATION_DOCUMENTS = 10
BPE_SAMPLE_CHARACTERS = 50_000_000


@dataclass(frozen=True)
class Progress:
    """How far :func:`prepare` is."""

    stage: str
    """What is being done: ``training the tokenizer``, ``tokenizing`` or ``checking``."""
    done: int
    """Bytes done in this stage: of the sources, or of the token files."""
    total: int
    """Bytes to do in this stage."""
    tokens: int
    """Tokens written, both splits."""


OnProgress = Callable[[Progress], object]


def prepare(
    words: Sequence[str],
    folder: Path | str,
    *,
    tokenizer: str = "bytes",
    name: str | None = None,
    validation: float = VALIDATION,
    text_key: str = "text",
    workers: int | None = None,
    force: bool = False,
    on_progress: OnProgress = lambda _: None,
    wait: bool = False,
) -> Corpus:
    """Tokenises the sources ``words`` into a corpus in ``folder``; a corpus of the same request is only opened.

    A killed or failed call loses at most the last few seconds: the same call goes on from there. The files do not depend
    on the number of workers, nor on where the work was interrupted.

    Args:
        words: files, folders, ``hf:NAME`` or ``stdlib``, as :func:`madbench.text.sources.find_sources` takes them.
        folder: made where it is missing.
        tokenizer: ``bytes``, ``gpt2``, ``bpe:N`` to train one of N ids on this text, or a ``tokenizer.json``.
        name: of the corpus; the folder's by default.
        validation: share of the text that is for validation: whole documents, chosen by their hash; where fewer than
            ten would be, the end of every document.
        text_key: key or column of the text.
        workers: processes; one a core by default, but this one alone where bytes are the tokens.
        force: replace another corpus in ``folder``, once the new one is complete.
        on_progress: called after every batch.
        wait: until another process is done with the folder, instead of an error.

    Raises ``ConfigError`` for sources, options or a folder that cannot be used, and ``StoreError`` for a full disk, a
    damaged folder and one that another process is working on.
    """
    folder = Path(folder)
    if not 0 < validation < 1:
        raise ConfigError(f"validation {validation:g}: expected a share above 0 and below 1, such as {VALIDATION}")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers {workers}: expected at least 1")
    sources = find_sources(words, text_key)
    trained = re.fullmatch(r"bpe:([1-9]\d*)", tokenizer)
    loaded = None if trained else load_tokenizer(tokenizer)
    identity = f"{loaded.spec} {loaded.digest}" if tokenizer.endswith(".json") else tokenizer
    recipe = Recipe(name or folder.resolve().name, identity, float(validation), text_key)
    request = Request(recipe, [stamp(source) for source in sources])

    if not force and (corpus := request.finished(folder)):
        return corpus
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, wait):
        if (folder / PARTIAL / MANIFEST).exists():
            install(folder)
        if not force and (corpus := request.finished(folder)):
            return corpus
        rule = SplitRule(recipe.validation, by_tail=_has_few_documents(sources, recipe.validation))
        state = request.begun(folder, str(rule), force)
        if state is None:
            chosen = loaded or train_bpe(_sample(sources, rule, on_progress), int(trained[1]))
            if chosen.spec.startswith("bpe:"):
                with explain_os_errors(folder):
                    (folder / PARTIAL).mkdir(exist_ok=True)
                chosen.save(folder / PARTIAL)
            facts = TokenizerFacts(chosen.spec, chosen.digest, chosen.vocab_size)
            state = State(recipe, str(rule), facts, "uint16" if chosen.vocab_size <= 1 << 16 else "uint32")
        else:
            chosen = loaded or load_tokenizer(state.tokenizer.spec, folder / PARTIAL)
            if chosen.digest != state.tokenizer.digest:
                raise ConfigError(f"{folder}: was begun with another tokeniser {tokenizer}; --force starts afresh")
        encoder = Encoder(chosen, state.dtype, rule)
        with Partial(folder, state) as partial:
            partial.save()
            _pass_over(sources, request.stamps, partial, encoder, workers or _default_workers(chosen), on_progress)
            state = partial.state
        _complete(folder, state, chosen, on_progress)
        install(folder)
    return open_corpus(folder)


def default_corpus(results: Path | str, on_progress: OnProgress = lambda _: None) -> Corpus:
    """This Python's standard library in bytes, prepared in ``results/corpora`` on first use: needs no network.

    Processes that start together wait for the one that prepares it.
    """
    name = f"stdlib-{platform.python_version()}"
    folder = Path(results) / "corpora" / name
    if (folder / MANIFEST).exists():
        return open_corpus(folder)
    return prepare(["stdlib"], folder, name=name, validation=STDLIB_VALIDATION, on_progress=on_progress, wait=True)


def _has_few_documents(sources: list[Source], validation: float) -> bool:
    """Whether validation by whole documents would leave it fewer than ten; reads no further than it needs to."""
    enough = round(FEWEST_VALIDATION_DOCUMENTS / validation)
    documents = itertools.chain.from_iterable(source.documents() for source in sources)
    return sum(1 for _ in itertools.islice(documents, enough)) < enough


def _sample(sources: list[Source], rule: SplitRule, on_progress: OnProgress) -> Iterator[str]:
    """The first training text, to train a tokenizer on."""
    characters = 0
    for source in sources:
        for text in source.documents():
            for split, part in rule.parts(text):
                if split == "train":
                    yield part[: BPE_SAMPLE_CHARACTERS - characters]
                    characters += len(part)
                    on_progress(Progress("training the tokenizer", characters, BPE_SAMPLE_CHARACTERS, 0))
            if characters >= BPE_SAMPLE_CHARACTERS:
                return


def _pass_over(
    sources: list[Source],
    stamps: list[Stamp],
    partial: Partial,
    encoder: Encoder,
    workers: int,
    on_progress: OnProgress,
) -> None:
    """Appends all that is not done yet; whatever ends it early, what was done is saved."""
    total = sum(size for _, size, _ in stamps)
    done = sum(source.size for source in partial.ended)
    saved = time.monotonic()
    try:
        with closing(encode_all(_batches(sources, stamps, partial), encoder, workers)) as batches:
            for batch, encoded in batches:
                partial.append(batch, encoded)
                done += batch.source.size if batch.is_last else 0
                within = 0 if batch.is_last else sources[len(partial.ended)].position
                on_progress(Progress("tokenizing", done + within, total, sum(partial.counts.tokens.values())))
                if time.monotonic() - saved > SAVE_SECONDS:
                    partial.save()
                    saved = time.monotonic()
    except BaseException as error:
        if isinstance(error, ConfigError):  # an unreadable source, which is mended as a whole
            partial.forget_source()
        with suppress(StoreError):  # a disk that is full for this file too; the state before it holds
            partial.save()
        raise
    partial.save()


def _batches(sources: list[Source], stamps: list[Stamp], partial: Partial) -> Iterator[Batch]:
    """The documents that are not done yet, about a megabyte a batch, no batch of two sources."""
    first, skip = len(partial.ended), partial.reading.documents if partial.reading else 0
    for source, source_stamp in zip(sources[first:], stamps[first:]):
        texts, characters, count = [], 0, 0
        for text in source.documents():
            count += 1
            if count <= skip:
                continue
            texts.append(text)
            characters += len(text)
            if characters >= BATCH_CHARACTERS:
                yield Batch(texts, SourceFacts(*source_stamp, None, count), is_last=False)
                texts, characters = [], 0
        yield Batch(texts, SourceFacts(*source_stamp, source.sha256, count), is_last=True)
        skip = 0


def _complete(folder: Path, state: State, tokenizer: Tokenizer, on_progress: OnProgress) -> None:
    """Checks the token files and writes their manifest."""
    tokens = state.counts.tokens
    if not all(tokens.values()):
        with explain_os_errors(folder):
            remove(folder / PARTIAL)
        empty = " and ".join(split for split, count in tokens.items() if not count)
        raise ConfigError(
            f"the sources leave {empty} without text: {sum(state.counts.documents.values())} documents, of which "
            f"{state.rule}; give more text or another --validation"
        )
    total = sum((folder / PARTIAL / f"{split}.bin").stat().st_size for split in SPLITS)
    splits, done = {}, 0

    def count(read: int) -> None:
        nonlocal done
        done += read
        on_progress(Progress("checking", done, total, sum(tokens.values())))

    for split in SPLITS:
        path = folder / PARTIAL / f"{split}.bin"
        facts = read_split(path, state.dtype, tokenizer.vocab_size, tokenizer.token_bytes(), count)
        splits[split] = SplitFacts(facts.tokens, facts.bytes, state.counts.documents[split], facts.sha256)
    sample = f"the tokenizer was trained on the first {BPE_SAMPLE_CHARACTERS:,} characters of train, or all of it"
    manifest = Manifest(
        state.recipe,
        state.tokenizer,
        state.dtype,
        state.rule,
        splits,
        state.ended,
        (sample,) if re.fullmatch(r"bpe:[0-9]+", state.recipe.tokenizer) else (),
        __version__,
        platform.python_version(),
    )
    write_atomically(folder / PARTIAL / MANIFEST, manifest.to_json())


def _default_workers(tokenizer: Tokenizer) -> int:
    """One where bytes are the tokens, which takes less time than handing the text to another process."""
    return 1 if tokenizer.spec == "bytes" else len(os.sched_getaffinity(0))


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    """Makes this process the only one that writes ``folder``; the kernel frees the lock of a killed one."""
    with explain_os_errors(folder / "lock"):
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise StoreError(f"{folder}: another process is preparing this corpus") from None
        yield
    finally:
        os.close(descriptor)
