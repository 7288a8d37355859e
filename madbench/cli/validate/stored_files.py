"""The check of a results folder, which reads every file of the folder in full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Reports on damage in a results folder: one each for runs, checkpoints, corpora, index and journals.

    Nothing is changed, and no cache is used. Raises ``StoreError`` if the folder is not a results folder.
    """
    from madbench.text.corpus import PARTIAL, open_corpus
    from madbench.text.manifest import MANIFEST, SPLITS, Manifest, load
    from madbench.training.checkpoints import NAME, check_checkpoint

    store = Store.open(results, create=False)
    names, corpus_folders = store.job_ids(), set()
    sound: set[str] = set()

    def check_run(name: str) -> Iterable[str]:
        run, problems = store.check(name)
        if run and not problems:
            sound.add(name)
            corpus_folders.add(run.record.details.get("corpus", {}).get("folder"))
        return problems

    left_over: list[str] = []

    def checkpoints() -> list[Path]:
        folders = [work / name for name in names_in(work)]
        for folder in folders:
            if folder.name in sound and not os.access(folder, os.W_OK, effective_ids=True):
                left_over.append(f"{folder}: left over from a stored run; ask its owner to delete it, as you may not")
        return [path for folder in folders if may_exist(path := folder / NAME)]

    unfinished_corpora: list[str] = []

    def check_corpus(folder: Path) -> Iterable[str]:
        if folder.is_dir():
            names_in(folder)  # an error if it cannot be read
        if (folder / PARTIAL).is_dir():
            advice = "run the madbench lm prepare command that began it, or delete this folder"
            unfinished_corpora.append(f"{folder / PARTIAL}: a corpus that is not finished; {advice}")
        if folder.suffix == ".json":
            with explain_os_errors(folder), open(folder, "rb"):
                pass
            try:
                load(Manifest, folder)
            except MadbenchError:
                yield f"{folder}: damaged; delete it: it is made again"
        elif (folder / MANIFEST).exists():
            open_corpus(folder)
        elif any((folder / f"{split}.bin").exists() for split in SPLITS) and not (folder / PARTIAL).exists():
            yield f"{folder}: {MANIFEST} is missing; delete the folder and prepare the corpus again"

    def check_one_checkpoint(path: Path) -> Iterable[str]:
        check_checkpoint(path)
        return ()

    def check_journal(sweep: dict[str, Any]) -> Iterable[str]:
        if sweep["state"] == "damaged":
            yield sweep["error"]

    def corpora() -> list[Path]:
        used_folders = {Path(folder).resolve() for folder in corpus_folders if isinstance(folder, str)}
        folder = results.resolve() / "corpora"
        return sorted(
            {path for path in used_folders if may_exist(path / MANIFEST)} | {folder / n for n in names_in(folder)}
        )

    index, work, sweeps = RunIndex(results), results / "work", results / FOLDER
    return [
        _report("runs", results / "runs", lambda: names, check_run),
        _report("checkpoints", work, checkpoints, check_one_checkpoint) | {"notes": left_over},
        # after the runs, which name some corpora
        _report("corpora", results / "corpora", corpora, check_corpus) | {"notes": unfinished_corpora},
        _report("index", index.path, lambda: [set(names)] if may_exist(index.path) else [], index.problems),
        _report("journals", sweeps, lambda: read_sweeps(results, len(names_in(sweeps))), check_journal),
    ]


def _report(
    kind: str, folder: Path, list_items: Callable[[], Sequence[Any]], check: Callable[[Any], Iterable[str]]
) -> dict[str, Any]:
    """A report on the problems that ``check`` finds in items such as runs, as in ``madbench validate -f json``.

    An item that cannot be read is a problem, and so is a list of items that cannot be read.
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
