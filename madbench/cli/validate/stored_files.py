"""The check of a results folder, which reads every file of the folder in full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from madbench.cli.shared.printing import track_progress
from madbench.errors import MadbenchError
from madbench.execute.journal import FOLDER, read_sweeps
from madbench.files import explain_os_errors, may_exist, names_in
from madbench.store.index import RunIndex
from madbench.store.runs import Store


def check_store(results: Path) -> list[dict[str, Any]]:
    """Check all files of a results folder. One report each for runs, checkpoints, corpora, index and journals.

    Nothing is changed, and every file is read anew. Raises ``StoreError`` if the folder is not a results folder.
    """
    files = _StoredFiles(results)
    index, sweeps = RunIndex(results), results / FOLDER
    return [
        _report("runs", results / "runs", lambda: files.names, files.check_run),
        _report("checkpoints", files.work, files.checkpoints, _check_one_checkpoint) | {"notes": files.left_over},
        # corpora are checked after the runs, because runs name some of them
        _report("corpora", files.corpora, files.corpus_files, files.check_corpus) | {"notes": files.unfinished_corpora},
        _report("index", index.path, lambda: [set(files.names)] if may_exist(index.path) else [], index.problems),
        _report("journals", sweeps, lambda: read_sweeps(results, len(names_in(sweeps))), _check_journal),
    ]


class _StoredFiles:
    """The runs, checkpoints and corpora of a results folder, and the check of each.

    The runs are checked first, because they decide which checkpoints are left over and which corpora are used.
    """

    def __init__(self, results: Path) -> None:
        self.store = Store.open(results, create=False)
        self.names = self.store.job_ids()
        self.work = results / "work"
        self.corpora = results / "corpora"
        self.left_over: list[str] = []
        """Notes on folders of checkpoints whose runs are stored."""
        self.unfinished_corpora: list[str] = []
        """Notes on corpora that were not prepared to the end."""
        self._sound_runs: set[str] = set()
        self._used_corpora: set[Any] = set()

    def check_run(self, name: str) -> Iterable[str]:
        """The problems of the run in the folder ``name``. Empty if it is sound."""
        run, problems = self.store.check(name)
        if run and not problems:
            self._sound_runs.add(name)
            self._used_corpora.add(run.record.details.get("corpus", {}).get("folder"))
        return problems

    def checkpoints(self) -> list[Path]:
        """The paths of the checkpoints in the work folder.

        If a sound run, which needs no checkpoint, still has a work folder that this user cannot delete, a note is added
        to ``left_over``.
        """
        from madbench.training.checkpoints import NAME

        folders = [self.work / name for name in names_in(self.work)]
        for folder in folders:
            if folder.name in self._sound_runs and not os.access(folder, os.W_OK, effective_ids=True):
                self.left_over.append(
                    f"{folder}: left over from a stored run; ask its owner to delete it, as you may not"
                )
        return [path for folder in folders if may_exist(path := folder / NAME)]

    def corpus_files(self) -> list[Path]:
        """The paths to check as corpora: folders that sound runs used, and everything in the folder ``corpora``."""
        from madbench.text.manifest import MANIFEST

        used_folders = {Path(folder).resolve() for folder in self._used_corpora if isinstance(folder, str)}
        folder = self.corpora.resolve()
        return sorted(
            {path for path in used_folders if may_exist(path / MANIFEST)} | {folder / n for n in names_in(folder)}
        )

    def check_corpus(self, path: Path) -> Iterator[str]:
        """Yield the problems of a corpus, or of a manifest file. Nothing is yielded for a sound corpus.

        For an unfinished corpus, a note is added to ``unfinished_corpora``.
        """
        from madbench.text.corpus import PARTIAL, open_corpus
        from madbench.text.manifest import MANIFEST, SPLITS, Manifest, load

        if path.is_dir():
            names_in(path)  # an error if it cannot be read
        if (path / PARTIAL).is_dir():
            advice = "run the madbench lm prepare command that began it, or delete this folder"
            self.unfinished_corpora.append(f"{path / PARTIAL}: a corpus that is not finished; {advice}")
        if path.suffix == ".json":
            with explain_os_errors(path), open(path, "rb"):
                pass
            try:
                load(Manifest, path)
            except MadbenchError:
                yield f"{path}: damaged; delete it: it is made again"
        elif (path / MANIFEST).exists():
            open_corpus(path)
        elif any((path / f"{split}.bin").exists() for split in SPLITS) and not (path / PARTIAL).exists():
            yield f"{path}: {MANIFEST} is missing; delete the folder and prepare the corpus again"


def _check_one_checkpoint(path: Path) -> Iterable[str]:
    """Raise a ``MadbenchError`` for a damaged checkpoint, and return no problems for a sound one."""
    from madbench.training.checkpoints import check_checkpoint

    check_checkpoint(path)
    return ()


def _check_journal(sweep: Mapping[str, Any]) -> Iterator[str]:
    if sweep["state"] == "damaged":
        yield sweep["error"]


def _report(
    kind: str, folder: Path, list_items: Callable[[], Sequence[Any]], check: Callable[[Any], Iterable[str]]
) -> dict[str, Any]:
    """Check items, such as runs, and return a report in the form of ``madbench validate -f json``.

    ``list_items`` returns the items. ``check`` returns the problems of an item. If one of these functions raises a
    ``MadbenchError`` or an ``OSError``, its message becomes a problem. ``folder`` is the folder of the items, and
    ``kind`` a word for them.
    """
    problems: list[str] = []
    items: Sequence[Any] = ()

    @contextmanager
    def noting_problems() -> Iterator[None]:
        try:
            yield
        except MadbenchError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{error.filename or folder}: {(error.strerror or str(error)).lower()}")

    with noting_problems():
        items = list_items()
    for item in track_progress(items, f"checking {kind}"):
        with noting_problems():
            problems += check(item)
    summary = "" if problems else f"{len(items)} checked"
    report = {"ok": not problems, "file": str(folder), "kind": kind, "summary": summary}
    return report | {"problems": problems, "notes": []}
