"""The options that name a corpus on the command line and in a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from madbench.config.options import EVERY_VERB, option


@dataclass(frozen=True)
class CorpusOptions:
    """The folder of a corpus that the user names, and how the ids in nanoGPT's files are read.

    A folder that ``madbench lm prepare`` made has a manifest, which says how its ids are read. A verb overrides the
    field ``corpus`` if it has another help text.
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
