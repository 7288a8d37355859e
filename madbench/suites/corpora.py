"""The corpora of suites that read text: how a plan opens its corpus, and the corpus that a record describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from madbench.details import CorpusDetails, Details
from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.text.manifest import AS_FOUND

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus


class NoCorpusError(ConfigError):
    """Raised for a plan without a corpus: the user named none, and there is no default corpus.

    Either the profile has no default corpus, or its default corpus is not prepared.
    """


class CorpusSource(Protocol):
    """An object that opens the corpus for a plan."""

    @property
    def is_named(self) -> bool:
        """True if the user named a corpus."""

    @property
    def opened(self) -> Corpus:
        """The corpus that the user named, or the default corpus if the user named none."""

    def imagined(self, vocab_size: int, profile: str) -> Corpus | None:
        """A stand-in for a corpus with ``vocab_size`` token ids and no text, to count jobs and their costs.

        ``profile`` is the name of the profile in messages. None if the jobs are to be trained, since this needs a real
        corpus.
        """


@dataclass(frozen=True)
class StoredCorpus:
    """The corpus of a run, as the run's record describes it. Its token files need not exist."""

    digest: str
    padded_vocab_size: int
    description: CorpusDetails

    @classmethod
    def from_job(cls, job: Job, details: Details) -> StoredCorpus:
        """The corpus of a stored job. ``details`` are the details of the job's record."""
        return cls(job.setting["corpus"], job.setting["vocab_size"], details.get("corpus", {}))

    @property
    def name(self) -> str:
        return str(self.description.get("name", self.digest))

    @property
    def folder(self) -> Path | None:
        """The folder of the corpus at the time of training. None if the record does not name it."""
        return Path(self.description["folder"]) if "folder" in self.description else None

    @property
    def options(self) -> dict[str, str]:
        """The options ``--tokenizer`` and ``--dtype``, with which a command can open the corpus in its folder.

        Empty for a corpus that madbench prepared, because its manifest has both values.
        """
        description = self.description if self.description.get("split_rule") == AS_FOUND else {}
        return {f"--{name}": description[name] for name in ("tokenizer", "dtype") if name in description}

    def is_called(self, name: str) -> bool:
        """True if ``name`` is the name of the corpus, a path that ends in its name, or the beginning of its digest."""
        return Path(name).name == self.name or self.digest.startswith(name)
