"""A corpus preparation that is interrupted, killed or out of disk resumes to the same files, or says what to do."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import madbench
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.text import partial
from madbench.text.corpus import open_corpus
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare

SHARE = 0.2  # fifty documents are enough for validation by whole documents


def bins(folder) -> list[bytes]:
    return [(folder / f"{split}.bin").read_bytes() for split in ("train", "val")]


@pytest.mark.parametrize(("workers", "stops"), [(1, (1, 5, 3, 12)), (2, (9,))])
def test_interrupted_at_any_batch_the_same_call_resumes(whole, words, tmp_path, workers, stops):
    class Interrupt(BaseException):
        pass

    batches = 0
    for stop in stops:
        calls = []

        def interrupt(progress, calls=calls, stop=stop):
            calls.append(progress)
            if len(calls) == stop:
                raise Interrupt

        with pytest.raises(Interrupt):
            prepare(
                words, tmp_path / "corpus", PrepareOptions(validation=SHARE, workers=workers), on_progress=interrupt
            )
        batches += stop
    rest = []
    corpus = prepare(
        words, tmp_path / "corpus", PrepareOptions(validation=SHARE, workers=workers), on_progress=rest.append
    )
    assert bins(corpus.folder) == bins(whole.folder)
    assert corpus.manifest.sources == whole.manifest.sources
    assert corpus.digest == whole.digest
    if workers == 1:
        once = []
        prepare(words, tmp_path / "once", PrepareOptions(validation=SHARE), on_progress=once.append)
        assert batches + len(rest) == len(once)
    assert sorted(path.name for path in corpus.folder.iterdir()) == ["lock", "manifest.json", "train.bin", "val.bin"]


KILLED_PROGRAM = """
import os, signal, sys
from madbench.text import prepare as module
module.BATCH_CHARACTERS, module.SAVE_SECONDS = 2000, 0
calls = []
def kill(progress):
    calls.append(progress)
    if len(calls) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
module.prepare(sys.argv[3:], sys.argv[2], module.PrepareOptions(validation=0.2), on_progress=kill)
"""


@pytest.mark.slow
def test_killed_the_same_call_resumes_from_the_last_save(whole, words, tmp_path):
    folder = tmp_path / "corpus"
    environment = os.environ | {"PYTHONPATH": str(Path(madbench.__file__).parents[1])}
    command = [sys.executable, "-c", KILLED_PROGRAM, "7", str(folder), *words]
    assert subprocess.run(command, check=False, env=environment).returncode == -signal.SIGKILL
    with open(folder / "partial" / "train.bin", "ab") as file:
        file.write(b"ids that no state counts")
    with pytest.raises(StoreError, match="not finished; run the madbench lm prepare command"):
        open_corpus(folder)
    rest, once = [], []
    assert bins(prepare(words, folder, PrepareOptions(validation=SHARE), on_progress=rest.append).folder) == bins(
        whole.folder
    )
    prepare(words, tmp_path / "once", PrepareOptions(validation=SHARE), on_progress=once.append)
    assert len(rest) == len(once) - 6  # the seventh batch was reported, and not yet saved


def fill_the_disk(monkeypatch, room: int) -> None:
    """Allow ``room`` bytes of token ids to be written, and then no more."""

    class File(io.FileIO):
        def write(self, data):
            nonlocal room
            written = super().write(data[:room])
            room -= written
            if written < len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
            return written

    monkeypatch.setattr(partial, "open", File, raising=False)


def test_a_full_disk_loses_only_the_batch_that_does_not_fit(whole, words, tmp_path, monkeypatch):
    fill_the_disk(monkeypatch, 30_000)
    with pytest.raises(StoreError, match=r"partial/(train|val).bin: no space left"):
        prepare(words, tmp_path / "corpus", PrepareOptions(validation=SHARE))
    state = json.loads((tmp_path / "corpus" / "partial" / "progress.json").read_bytes())
    assert 0 < sum(split["tokens"] for split in state["manifest"]["splits"].values()) <= 15_000
    monkeypatch.undo()
    assert bins(prepare(words, tmp_path / "corpus", PrepareOptions(validation=SHARE)).folder) == bins(whole.folder)


def test_a_disk_too_full_for_the_state_leaves_the_state_before(whole, words, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def on_progress(progress):
        if progress.tokens > 5000:
            fill_the_disk(patch, 0)
            patch.setattr(os, "fsync", fail)

    with monkeypatch.context() as patch, pytest.raises(StoreError, match=r"partial/(train|val).bin: no space left"):
        prepare(words, tmp_path / "corpus", PrepareOptions(validation=SHARE), on_progress=on_progress)
    assert bins(prepare(words, tmp_path / "corpus", PrepareOptions(validation=SHARE)).folder) == bins(whole.folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_shard_is_named_and_mended_without_reading_the_others_again(whole, words, tmp_path, workers):
    good = Path(words[2]).read_bytes()
    Path(words[2]).write_bytes(good[:-300] + b"}")
    with pytest.raises(ConfigError, match=r"2.jsonl:\d+: not valid JSON"):
        prepare(words, tmp_path / "corpus", PrepareOptions(validation=SHARE, workers=workers))
    state = json.loads((tmp_path / "corpus" / "partial" / "progress.json").read_bytes())
    assert [source["name"] for source in state["boundary"]["sources"]] == words[:2]
    Path(words[2]).write_bytes(good)
    rest = []
    corpus = prepare(
        words, tmp_path / "corpus", PrepareOptions(validation=SHARE, workers=workers), on_progress=rest.append
    )
    assert rest[0].done > sum(Path(word).stat().st_size for word in words[:2])
    assert bins(corpus.folder) == bins(whole.folder)


def test_an_unfinished_corpus_of_another_request_is_dropped_only_with_force(whole, words, tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    folder = tmp_path / "corpus"
    with pytest.raises(KeyboardInterrupt):
        prepare(words, folder, PrepareOptions(validation=0.5), on_progress=stop)
    with pytest.raises(ConfigError, match=r"unfinished corpus of another request \(validation 0.5 then, 0.2 now\)"):
        prepare(words, folder, PrepareOptions(validation=SHARE))
    assert bins(prepare(words, folder, PrepareOptions(validation=SHARE, force=True)).folder) == bins(whole.folder)


@pytest.mark.parametrize("damage", ["{", '{"recipe": 1}'])
def test_a_damaged_state_is_dropped_only_with_force(whole, words, tmp_path, damage):
    folder = tmp_path / "corpus"
    (folder / "partial").mkdir(parents=True)
    (folder / "partial" / "progress.json").write_text(damage)
    with pytest.raises(StoreError, match=r"progress.json: cannot be read .*--force"):
        prepare(words, folder, PrepareOptions(validation=SHARE))
    assert bins(prepare(words, folder, PrepareOptions(validation=SHARE, force=True)).folder) == bins(whole.folder)


@pytest.mark.parametrize("moves", range(3))
def test_killed_while_the_files_move_up_the_next_call_finishes(whole, words, monkeypatch, moves):
    done, replace = 0, os.replace

    def kill(source, target):
        nonlocal done
        if Path(target).parent == whole.folder:
            done += 1
            if done > moves:
                raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            prepare(words, whole.folder, PrepareOptions(validation=0.5, force=True))
    with pytest.raises(MadbenchError):
        open_corpus(whole.folder)
    reads = []
    corpus = prepare(words, whole.folder, PrepareOptions(validation=0.5), on_progress=reads.append)
    assert reads == []
    assert corpus.manifest.recipe.validation == 0.5
    assert not (whole.folder / "partial").exists()


def test_killed_before_the_emptied_folder_is_removed_the_next_call_removes_it(whole, words, monkeypatch):
    def kill(path):
        if path.name == "partial":
            raise KeyboardInterrupt
        remove(path)

    remove = partial.remove
    with monkeypatch.context() as patch:
        patch.setattr(partial, "remove", kill)
        with pytest.raises(KeyboardInterrupt):
            prepare(words, whole.folder, PrepareOptions(validation=0.5, force=True))
    assert (whole.folder / "partial").exists()
    prepare(words, whole.folder, PrepareOptions(validation=0.5))
    assert not (whole.folder / "partial").exists()


@pytest.mark.parametrize("force", [False, True])
def test_unfinished_work_that_is_a_link_to_another_corpus_is_refused(whole, words, tmp_path, force):
    before = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    folder = tmp_path / "new"
    for target, link in [
        (whole.folder, folder / "partial"),
        (whole.folder / "train.bin", folder / "partial/train.bin"),
    ]:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        with pytest.raises(StoreError, match="partial.*: is a link; .* delete the link"):
            prepare(words, folder, PrepareOptions(validation=SHARE, force=force))
        assert {path.name: path.read_bytes() for path in whole.folder.iterdir()} == before
        link.unlink()
    (folder / "partial").rmdir()
    assert bins(prepare(words, folder, PrepareOptions(validation=SHARE)).folder) == bins(whole.folder)
