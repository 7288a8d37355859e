"""Datasets of the Hugging Face hub as text, streamed through the library ``datasets``."""

from __future__ import annotations

from collections.abc import Iterator

from madbench.errors import ConfigError, MissingExtraError
from madbench.text.formats import Source, missing_key

PREFIX = "hf:"


class HuggingFaceSplit(Source):
    """The split ``train`` of the dataset ``hf:NAME`` or ``hf:NAME:CONFIG``; NAME may be a local folder.

    ``sha256`` is what the library calls the builder's hash: the revision of a dataset on the hub. ``size`` is the
    bytes of the split where the dataset says so, and ``position`` counts those of the texts.
    """

    def __init__(self, name: str, key: str):
        self.name, self.key = name, key
        dataset, _, config = name.removeprefix(PREFIX).partition(":")
        if not dataset:
            raise ConfigError(
                f"source {name!r}: expected a dataset, such as hf:openwebtext or hf:wikitext:wikitext-2-v1"
            )
        try:
            import datasets
        except ImportError:
            raise MissingExtraError(f"source {name!r}", "hf") from None
        try:
            self._builder = datasets.load_dataset_builder(dataset, config or None)
            self._rows = self._builder.as_streaming_dataset(split="train")
        except Exception as error:
            raise self._unreadable(error) from error
        split = (self._builder.info.splits or {}).get("train")
        self.size = (split.num_bytes or 0) if split else 0

    def _documents(self) -> Iterator[str]:
        rows = iter(self._rows)
        while True:
            try:
                row = next(rows, None)
            except Exception as error:
                raise self._unreadable(error) from error
            if row is None:
                break
            if self.key not in row:
                raise ConfigError(f"{self.name}: {missing_key('column', self.key, row)}")
            text = row[self.key]
            if not isinstance(text, str):
                raise ConfigError(f"{self.name}: column {self.key!r}: expected text, got {type(text).__name__}")
            self.position += len(text.encode("utf-8", "replace"))
            yield text
        self.sha256 = self._builder.hash

    def _unreadable(self, error: Exception) -> ConfigError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return ConfigError(f"source {self.name!r}: datasets cannot read it: {reason}")
