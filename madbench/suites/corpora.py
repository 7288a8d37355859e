"""Corpora of suites that read text: an interface that opens a plan's corpus, and the corpus that a record describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.text.manifest import AS_FOUND

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus


class NoCorpusError(ConfigError):
    """A plan has no corpus: the user named none, and the default corpus is not prepared."""


class CorpusSource(Protocol):
    """An object that opens the corpus for a plan of jobs."""

    @property
    def is_named(self) -> bool:
        """True if the user named a corpus."""

    @property
    def opened(self) -> Corpus:
        """The corpus that the user named, or else the default one."""

    def imagined(self, vocab_size: int, profile: str) -> Corpus | None:
        """A corpus of ``vocab_size`` ids without text, to count the jobs and costs of the profile named ``profile``.

        None if the jobs are to be trained.
        """


@dataclass(frozen=True)
class StoredCorpus:
    """A corpus as a record describes it. Its token files need not exist."""

    digest: str
    padded_vocab_size: int
    description: Mapping[str, Any]

    @classmethod
    def from_job(cls, job: Job, details: Mapping[str, Any]) -> StoredCorpus:
        """The corpus of a job, with the description in the details of its record."""
        return cls(job.setting["corpus"], job.setting["vocab_size"], details.get("corpus", {}))

    @property
    def name(self) -> str:
        return self.description.get("name", self.digest)

    @property
    def folder(self) -> Path | None:
        """The folder in which the corpus was when the run was trained. None if the record does not name it."""
        return Path(self.description["folder"]) if "folder" in self.description else None

    @property
    def options(self) -> dict[str, str]:
        """Options that a command needs in addition to the folder: the tokenizer and the type of the ids.

        Empty for a corpus that madbench prepared, whose manifest has both.
        """
        description = self.description if self.description.get("split_rule") == AS_FOUND else {}
        return {f"--{name}": description[name] for name in ("tokenizer", "dtype") if name in description}

    def is_called(self, name: str) -> bool:
        """True if ``name`` is the corpus's name, a path that ends in this name, or the beginning of its digest."""
        return Path(name).name == self.name or self.digest.startswith(name)
