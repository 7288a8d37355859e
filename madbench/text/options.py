"""The options that name a corpus, and the options for preparing a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from madbench.config.options import EVERY_VERB, option
from madbench.text.documents import TEXT_KEY, TextLimits

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class CorpusOptions:
    """The options that select a corpus, and say how the ids in nanoGPT's files are read.

    A folder that ``madbench lm prepare`` made has a manifest, which says how its ids are read. A command whose option
    ``--corpus`` needs another help text uses a subclass that overrides ``corpus``.
    """

    corpus: Annotated[Path | None, option("Folder of the corpus, if it was moved.")] = None
    tokenizer: Annotated[
        str | None,
        option(
            "Tokenizer of nanoGPT's files: gpt2, bytes or none:N.",
            show_default="gpt2",
            completes="TOKENIZER",
            rare=EVERY_VERB,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        option(
            "Type of nanoGPT's ids, such as uint32.",
            show_default="the smallest type for the ids",
            completes="DTYPE",
            rare=EVERY_VERB,
        ),
    ] = None


@dataclass(frozen=True)
class PrepareOptions:
    """The options of preparing a corpus (:func:`madbench.text.prepare.prepare`): how sources are read and divided."""

    validation: Annotated[
        float, option("Share for validation: documents selected by hash; if there are few documents, the end of each.")
    ] = 0.01
    text_key: Annotated[str, option("Key or column that holds the text.")] = TEXT_KEY
    workers: Annotated[
        int | None, option("Threads that tokenize.", min=1, show_default="one per core; 1 for bytes")
    ] = None
    max_line: Annotated[float, option("Longest line of JSON, in MB.", min=0, rare=EVERY_VERB)] = (
        TextLimits.line // MEGABYTE
    )
    max_document: Annotated[
        float, option("Largest document, in MB; it takes ten times as much memory.", min=0, rare=EVERY_VERB)
    ] = TextLimits.document // MEGABYTE
    max_total: Annotated[float, option("Limit of all text, in MB.", min=0, rare=EVERY_VERB)] = (
        TextLimits.total // MEGABYTE
    )
    skip_bad: Annotated[bool, option("Leave out and count rows without a text, instead of an error.", "--skip-bad")] = (
        False
    )
    force: Annotated[bool, option("Replace another corpus in the folder when the new one is complete.", "--force")] = (
        False
    )

    @property
    def limits(self) -> TextLimits:
        """The limits of lines, documents and all text, converted from megabytes to bytes."""
        return TextLimits(*(int(MEGABYTE * most) for most in (self.max_line, self.max_document, self.max_total)))
