"""``madbench lm prepare``: turn text into tokens."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich import progress
from rich.console import Console

from madbench.cli.shared.options import RESULTS, ResultsOption
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import PLAIN, print_json, print_lines, quantity, table_lines
from madbench.config.options import argument, option
from madbench.errors import ConfigError, no_effect
from madbench.store.results_folder import command_on
from madbench.text.options import PrepareOptions

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus
    from madbench.text.prepare import Progress

LINE_SECONDS = 5.0


def prepare(
    sources: Annotated[
        list[str],
        argument(
            "SOURCE",
            "Files (.jsonl, .ndjson, .json, .parquet, also as .gz or .zst; any other file is one document of text), "
            "folders of files, hf:NAME for a Hugging Face dataset, or stdlib for Python's standard library.",
        ),
    ],
    tokenizer: Annotated[
        str,
        option(
            "bytes, gpt2, bpe:N to train a BPE of N tokens on this text, the tokenizer.json of such a BPE, or "
            "hf-tokenizer:FOLDER, a folder with the tokenizer.json of a Hugging Face model.",
            completes="NEW_TOKENIZER",
        ),
    ] = "bytes",
    name: Annotated[str | None, option("Name of the corpus.", show_default="from the source and the tokenizer")] = None,
    results: ResultsOption = RESULTS,
    output: Annotated[Path | None, output_option("Folder of the corpus.", show_default="RESULTS/corpora/NAME")] = None,
    *,
    options: PrepareOptions,
    format: FormatOption = "terminal",
) -> None:
    """Turn text into tokens to train on.

    Write two memory-mapped files, and a manifest with their sources. Ctrl-C,
    kill -9 and a full disk lose at most a few seconds: the same command resumes.
    Compressed shards are streamed and never unpacked to disk. train.bin and
    val.bin of nanoGPT's scripts need no preparation: give their folder to
    madbench lm --corpus.

    [bold]Examples[/bold]

      madbench lm prepare book.txt                         bytes as tokens
      madbench lm prepare my_texts/ --tokenizer bpe:4096   every file below it
      madbench lm prepare owt2/*.jsonl.zst --tokenizer gpt2 --name openwebtext2
      madbench lm prepare wiki.parquet --text-key article --validation 0.05
      madbench lm prepare fineweb/*.parquet --tokenizer hf-tokenizer:llama-2-7b
    """
    as_json = format == "json"
    from madbench.text.documents import BadRowError
    from madbench.text.prepare import prepare as prepare_corpus

    if output is not None and results != RESULTS:
        raise no_effect(f"--results {results}", "with --output, which names the corpus's folder itself")
    if output is None:
        name = name or default_name(sources, tokenizer)
        output = results / "corpora" / name
    console = Console(stderr=True)
    screen = PrepareScreen(console)
    try:
        with screen.bars:
            corpus = prepare_corpus(
                sources,
                output,
                options,
                tokenizer=tokenizer,
                name=name,
                on_progress=screen.update,
            )
    except BadRowError as error:
        raise ConfigError(f"{error}; --skip-bad leaves such rows out") from None
    except KeyboardInterrupt:
        console.print("stopped; run the same command to resume")
        raise
    if screen.stage is None:
        console.print("already prepared from the same sources")
    if as_json:
        print_json({"folder": str(corpus.folder), **corpus.description()})
        return
    _print_corpus(corpus, console)
    command = command_on(results, "lm", "G-cg-q-12o", "--corpus", str(corpus.folder))
    console.print(f"train on it: {command}", **PLAIN)


def _print_corpus(corpus: Corpus, console: Console) -> None:
    """Print the sizes of a corpus, and on ``console`` its tokenizer, its division and the rows that were left out."""
    rows = []
    for split, content in corpus.manifest.splits.items():
        counts = {key: f"{getattr(content, key):,}" for key in ("documents", "tokens", "bytes")}
        rows.append({"split": split, **counts, "bytes per token": f"{(content.bytes or 0) / content.tokens:.2f}"})
    print_lines(Console(), table_lines(rows, right=tuple(rows[0])[1:]))
    console.print(f"{corpus.name}, tokenizer {corpus.manifest.tokenizer.spec}: {corpus.manifest.split_rule}", **PLAIN)
    if skipped_sources := [source for source in corpus.manifest.sources if source.skipped]:
        total = sum(source.skipped for source in skipped_sources)
        most = max(skipped_sources, key=lambda source: source.skipped)
        console.print(f"left out {total:,} rows without a text, {most.skipped:,} of them of {most.name}", **PLAIN)


def default_name(sources: list[str], tokenizer: str) -> str:
    """The default name of a corpus, made from its source and the tokenizer, such as ``book-bytes``.

    For several files of one folder, the name of the folder is used. Raises ``ConfigError`` for other combinations of
    sources.
    """
    from madbench.text.folder_tokenizer import folder_of

    first, folders = sources[0], {Path(word).resolve().parent for word in sources}
    is_file = not any(word == "stdlib" or word.startswith("hf:") for word in sources)
    if len(sources) > 1 and (len(folders) > 1 or not is_file):
        raise ConfigError("several sources have no name in common; give the corpus one with --name")
    path = Path(first).resolve()
    if first == "stdlib":
        stem = f"stdlib-{platform.python_version()}"
    elif first.startswith("hf:"):
        stem = first.rpartition("/")[2].removeprefix("hf:").replace(":", "-")
    elif len(sources) > 1:
        stem = path.parent.name
    else:
        stem = path.name if path.is_dir() else path.name.partition(".")[0]
    suffix = Path(tokenizer).stem if tokenizer.endswith(".json") else tokenizer.replace(":", "")
    suffix = Path(folder_of(tokenizer)).resolve().name if folder_of(tokenizer) else suffix
    return f"{stem or 'corpus'}-{suffix}"


class PrepareScreen:
    """The progress of the preparation of a corpus: bars on a terminal, otherwise a line every few seconds."""

    def __init__(self, console: Console):
        self.stage: str | None = None
        description, tokens = (progress.TextColumn(field) for field in ("{task.description}", "{task.fields[tokens]}"))
        numbers = [progress.DownloadColumn(), progress.TransferSpeedColumn(), tokens, progress.TimeRemainingColumn()]
        self.columns = [description, *numbers]
        self.bars = progress.Progress(description, progress.BarColumn(bar_width=24), *numbers, console=console)
        self.bars.disable = not console.is_terminal

    def update(self, report: Progress) -> None:
        """Show the progress that :func:`madbench.text.prepare.prepare` reports."""
        now = time.monotonic()
        tokens = f"{quantity(report.tokens)} tokens" if report.tokens else ""
        if report.stage != self.stage:
            total = report.total or None  # None for a data set of unknown size
            self.stage, self.shown = report.stage, now
            self.bar = self.bars.add_task(report.stage, total=total, completed=report.done, tokens=tokens)
        self.bars.update(self.bar, completed=report.done, tokens=tokens)
        if self.bars.disable and now - self.shown > LINE_SECONDS:
            self.shown = now
            task = self.bars.tasks[-1]
            self.bars.console.print("  ".join(str(column.render(task)) for column in self.columns), **PLAIN)
