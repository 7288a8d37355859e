"""Finished work survives a power cut: files are synced before they are renamed, and the rename is synced too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from madbench.execute.journal import Journal
from madbench.files import make_folder
from madbench.store.parquet import write_parquet
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD
from sample_jobs import language_job
from stored_samples import RECORD, make_job


class Disk:
    """Records the order in which paths are synced and renamed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.log: list[tuple[str, Path]] = []
        fsync, rename = os.fsync, os.rename

        def logged_fsync(file) -> None:
            descriptor = file if isinstance(file, int) else file.fileno()
            self.log.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
            fsync(file)

        def logged_rename(source, target) -> None:
            missing = {path for path in [source, *Path(source).rglob("*")] if ("sync", Path(path)) not in self.log}
            assert not missing, f"renamed before they were synced: {missing}"
            self.log.append(("rename", Path(target)))
            rename(source, target)

        monkeypatch.setattr(os, "fsync", logged_fsync)
        monkeypatch.setattr(os, "rename", logged_rename)
        monkeypatch.setattr(Path, "rename", lambda path, target: logged_rename(path, target))

    def assert_named(self, path: Path) -> None:
        """Assert that the folder of ``path`` was synced after the last rename to it."""
        renamed = max(i for i, entry in enumerate(self.log) if entry == ("rename", path))
        assert ("sync", path.parent) in self.log[renamed:]


@pytest.fixture
def disk(monkeypatch) -> Callable[[], Disk]:
    return lambda: Disk(monkeypatch)


@pytest.mark.slow
def test_tables_of_parquet_are_synced_before_they_are_renamed(tmp_path, disk):
    pytest.importorskip("pyarrow")
    store = Store.open(tmp_path / "results")
    store.finish(make_job(), RECORD)
    watched = disk()
    write_parquet(store, store.job_ids(), tmp_path / "new" / "tables")
    watched.assert_named(tmp_path / "new" / "tables")
    assert ("sync", tmp_path) in watched.log  # which names the folder "new"


@pytest.mark.slow
def test_an_exported_model_is_synced_before_it_is_renamed(tmp_path, disk):
    pytest.importorskip("transformers")
    from madbench.huggingface.export import export
    from madbench.suites import suite_of
    from madbench.text.tokenizers import load_tokenizer

    job = language_job()
    model = suite_of(job).Trial.build(job)
    watched = disk()
    export(tmp_path / "model", model, job, load_tokenizer("bytes"))
    watched.assert_named(tmp_path / "model")


@pytest.mark.slow
def test_every_state_of_a_journal_is_on_disk_before_it_replaces_another(tmp_path, disk):
    job = MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"])[0]
    watched = disk()
    with Journal(tmp_path / "results", [job], "a title", "madbench run S", pytest.fail) as journal:
        journal.on_event({"event": "started", "job": job, "slot": 0})
    watched.assert_named(journal.path)
    assert ("sync", tmp_path / "results") in watched.log  # which names the folder "sweeps"


def test_the_first_measurement_is_on_disk_with_its_folder(tmp_path, disk):
    store = Store.open(tmp_path / "results")
    store.finish(make_job(), RECORD)
    watched = disk()
    store.measure(make_job().id, "evaluation", {"loss": 1.5})
    run = store.root / "runs" / make_job().id
    assert ("sync", run) in watched.log and ("sync", run / "measurements") in watched.log


def test_the_parent_of_each_new_folder_is_synced(tmp_path, disk):
    watched = disk()
    make_folder(tmp_path / "a" / "b" / "c")
    assert watched.log == [("sync", tmp_path), ("sync", tmp_path / "a"), ("sync", tmp_path / "a" / "b")]
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(watched.log) == 3
