"""What one ``prepare`` asks for, and whether what a folder holds already is that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, remove
from madbench.text.corpus import PARTIAL, SPLITS, Corpus, open_corpus
from madbench.text.formats import File, Source
from madbench.text.manifest import Recipe, SourceFacts, read_manifest
from madbench.text.partial import State, read_state

Stamp = tuple[str, int, int | None]
"""Name, bytes, and time of the last change in ns (None where the source is no file): tells a changed source unread."""


def stamp(source: Source) -> Stamp:
    mtime_ns = source.path.stat().st_mtime_ns if isinstance(source, File) else None
    return source.name, source.size, mtime_ns


@dataclass(frozen=True)
class Request:
    """The settings and the sources of one ``prepare``."""

    recipe: Recipe
    stamps: list[Stamp]

    def finished(self, folder: Path) -> Corpus | None:
        """The corpus in ``folder`` when it is the one asked for, None where there is none; another is an error."""
        manifest = read_manifest(folder)
        if manifest is None:
            if (folder / PARTIAL).exists() or not any((folder / f"{split}.bin").exists() for split in SPLITS):
                return None
            raise ConfigError(f"{folder}: holds token files of another program; choose another folder, or --force")
        difference = manifest.recipe.difference(self.recipe) or _changed(manifest.sources, self.stamps)
        if difference:
            raise ConfigError(
                f"{folder}: holds another corpus ({difference}); choose another folder, or --force to replace it"
            )
        return open_corpus(folder)

    def begun(self, folder: Path, rule: str, force: bool) -> State | None:
        """The state of this request's unfinished corpus, to go on from; None to begin.

        What another request left unfinished is an error, or removed with ``force``. ``rule`` is what splits now.
        """
        try:
            state = read_state(folder)
            difference = state and self._difference(state, rule)
            if difference:
                raise ConfigError(
                    f"{folder}: holds an unfinished corpus of another request ({difference}); finish that one, choose "
                    "another folder, or --force to drop it"
                )
        except (ConfigError, StoreError):
            if not force:
                raise
            state = None
        if state is None:
            with explain_os_errors(folder):
                remove(folder / PARTIAL)
        return state

    def _difference(self, state: State, rule: str) -> str | None:
        """Why ``state`` cannot be gone on from, in words. Sources that were not begun may have changed."""
        begun = [*state.ended, *([state.reading] if state.reading else [])]
        difference = state.recipe.difference(self.recipe) or _changed(begun, self.stamps[: len(begun)])
        return difference or (None if state.rule == rule else f"then {state.rule}")


def _changed(before: Sequence[SourceFacts], stamps: list[Stamp]) -> str | None:
    """The first difference between the sources then and now, in words."""
    for source, now in zip(before, stamps):
        if source.stamp != now:
            return f"{source.name} has changed since" if source.name == now[0] else f"{source.name} then, {now[0]} now"
    return None if len(before) == len(stamps) else f"{len(before)} sources then, {len(stamps)} now"
