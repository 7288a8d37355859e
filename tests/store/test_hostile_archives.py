"""Malicious archives end in a one-line error, with bounded memory, time and disk space."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import resource
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from madbench.errors import StoreError
from madbench.store.archive import pack, unpack
from madbench.store.runs import Store
from madbench.store.tar import NO_LIMITS, UnpackingLimits
from odd_runs import DEEP, FIELDS, write_run
from stored_samples import RECORD, make_job

NAME = f"x/runs/{make_job().id}/record.json"


def header(name: str = NAME, size: int = 0, kind: bytes = tarfile.REGTYPE, **fields: object) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    for field, value in fields.items():
        setattr(member, field, value)
    return member.tobuf(tarfile.GNU_FORMAT)


def patched(block: bytes, place: int, new: bytes) -> bytes:
    """A tar header with changed bytes and a right checksum."""
    block = block[:place] + new + block[place + len(new) :]
    total = sum(block[:148]) + 8 * 32 + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]


def pax(content: bytes, size: int | None = None) -> bytes:
    padded = content + bytes(-len(content) % 512)
    return header("pax", len(content) if size is None else size, tarfile.XHDTYPE) + padded


def zeros(megabytes: int) -> bytes:
    return bytes(megabytes * 1_000_000)


END = bytes(1024)
SPARSE_PAX = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
MALFORMED: dict[str, bytes] = {
    "a wrong checksum": header()[:148] + b"000000\0 " + header()[156:] + END,
    "a wrong checksum later": header(size=2) + b"{}" + bytes(510) + b"x" * 512 + END,
    "a size that is not octal": patched(header(), 124, b"99999999999\0") + END,
    "a negative size": patched(header(), 124, b"\xff" * 12) + END,
    "a size of 2^90": patched(header(), 124, b"\x80\x7f" + b"\xff" * 10) + END,
    "a pax size of text": pax(b"12 size=abc\n") + header() + END,
    "a pax size below zero": pax(b"11 size=-5\n") + header() + END,
    "a pax size of many digits": pax(b"5011 size=" + b"9" * 5000 + b"\n") + header() + END,
    "a pax length of text": pax(b"xx path=abc\n") + header() + END,
    "a pax length of zero": pax(b"0 path=abc\n") + header() + END,
    "a pax length beyond the end": pax(b"99999 path=abc\n") + header() + END,
    "a pax header of gigabytes": header("pax", 4 << 30, tarfile.XHDTYPE) + zeros(1),
    "a long name of gigabytes": header("name", 4 << 30, tarfile.GNUTYPE_LONGNAME) + zeros(1),
    "a sparse file": header(size=1 << 40, kind=tarfile.GNUTYPE_SPARSE) + END,
    "a sparse file by pax": pax(SPARSE_PAX) + header(size=512) + b"1\n" * 256 + END,
    "a sparse map by pax": pax(b"25 GNU.sparse.map=0,1,2,3\n") + header() + END,
    "a hard link": header(kind=tarfile.LNKTYPE, linkname="/etc/passwd") + END,
    "a link": header(kind=tarfile.SYMTYPE, linkname="/etc/passwd") + END,
    "a device": header(kind=tarfile.CHRTYPE, devmajor=1, devminor=3) + END,
    "a pipe": header(kind=tarfile.FIFOTYPE) + END,
    "an unknown kind": header(kind=b"Q") + END,
    "a path above": header("x/runs/../../../record.json") + END,
    "a name twice": header() * 2 + END,
    "a file and a folder": header() + header(f"{NAME}/x") + END,
    "no end": header(size=2) + b"{}" + bytes(510),
    "cut in a file": header(size=5000) + b"x" * 2000,
    "cut in a header": header()[:300],
    "nothing": b"",
    "zeros": END,
}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "mine")


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress], ids=["tar", "gz", "xz"])
@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_archive_is_one_sentence_and_leaves_nothing(store, tmp_path, content, compress):
    path = tmp_path / "odd.tar.xz"
    path.write_bytes(compress(content))
    with pytest.raises(StoreError, match="odd.tar.xz: ") as error:
        unpack(path, store, limits=NO_LIMITS)
    assert len(str(error.value)) < 500 and "\n" not in str(error.value)
    assert store.job_ids() == [] and os.listdir(store.root / "work") == []


def test_a_header_has_at_most_16_kibibytes(store, tmp_path):
    allowed, refused = tmp_path / "allowed.tar", tmp_path / "refused.tar"
    for path, size in ((allowed, 16_384), (refused, 16_385)):
        link = header("link", size, tarfile.GNUTYPE_LONGLINK)
        path.write_bytes(link + bytes(size + -size % 512) + header() + END)
    assert unpack(allowed, store).problems
    with pytest.raises(StoreError, match="it holds a header of 16,385 bytes"):
        unpack(refused, store)


@pytest.mark.slow
def test_no_changed_byte_of_an_archive_is_a_traceback(store, tmp_path):
    theirs = Store.open(tmp_path / "theirs")
    theirs.finish(make_job(), RECORD)
    pack(theirs, theirs.job_ids(), tmp_path / "whole.tar.xz")
    whole, rng = bytearray(lzma.decompress((tmp_path / "whole.tar.xz").read_bytes())), random.Random(0)
    path = tmp_path / "odd.tar"
    for _ in range(300):
        odd = bytearray(whole)
        for _ in range(rng.choice([1, 3])):
            odd[rng.randrange(512) + 512 * rng.choice([0, 2, 4])] = rng.randrange(256)
        path.write_bytes(odd)
        try:
            report = unpack(path, store)
        except StoreError:
            continue
        assert report.added + report.already_stored or report.problems


BOMBS: dict[str, Callable[[], bytes]] = {
    "gigabytes in a file": lambda: header(size=3 << 30) + zeros(100),
    "gigabytes outside of runs": lambda: header("x/notes", size=3 << 30) + zeros(100),
    "many empty members": lambda: b"".join(header(f"x/runs/{i:016x}/job.json") for i in range(50_000)),
    "many folders": lambda: b"".join(header(f"x/{i}", kind=tarfile.DIRTYPE) for i in range(50_000)),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS.keys())
def test_decompression_bombs_are_refused_quickly(store, tmp_path, make):
    path = tmp_path / "odd.tar.xz"
    path.write_bytes(lzma.compress(make()))
    assert path.stat().st_size < 600_000
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(StoreError, match="--no-limits"):
        unpack(path, store)
    assert time.process_time() - started < 8
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_each_exceeded_limit_is_named_with_the_option_to_lift_it(store, tmp_path):
    theirs = Store.open(tmp_path / "theirs")
    for seed in range(3):
        theirs.finish(make_job(seed), RECORD)
    path = tmp_path / "runs.tar.xz"
    pack(theirs, theirs.job_ids(), path)
    for limits, what in (
        (UnpackingLimits(members=8), "more than 8 members"),
        (UnpackingLimits(total=2000), "more than 2e-06 GB"),
        (UnpackingLimits(ratio=1, free=0), "more than 1 times its size"),
    ):
        with pytest.raises(StoreError, match=f"runs.tar.xz: .*{what}.*--no-limits"):
            unpack(path, store, limits=limits)
    assert unpack(path, store, limits=NO_LIMITS).added == theirs.job_ids()


def test_names_as_gnu_tar_and_pax_write_them_are_read(store, tmp_path):
    theirs = Store.open(tmp_path / "theirs")
    theirs.finish(make_job(), RECORD)
    theirs.measure(make_job().id, "evaluation", {"loss": 1.5})
    root = tmp_path / ("long" * 30)
    root.symlink_to(theirs.root)
    for form in ("gnu", "pax", "ustar"):
        path = tmp_path / f"{form}.tar.gz"
        words = ["tar", f"--format={form}", "-czf", path, "-C", tmp_path, f"{root.name}/runs"]
        subprocess.run(words, check=True, capture_output=True)
        report = unpack(path, Store.open(tmp_path / form))
        assert (report.added, report.problems) == ([make_job().id], [])
        assert Store(tmp_path / form).measurements(make_job().id) == theirs.measurements(make_job().id)


def test_runs_beside_a_name_that_is_not_text_are_unpacked(store, tmp_path):
    theirs = Store.open(tmp_path / "theirs")
    theirs.finish(make_job(), RECORD)
    path = tmp_path / "runs.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(theirs.root / "runs", "theirs/runs")
    path.write_bytes(pax(b"12 path=x/\xff\n") + header("x/notes") + path.read_bytes())
    assert unpack(path, store).added == [make_job().id]


def test_an_archive_with_odd_runs_adds_the_others(store, tmp_path):
    theirs = Store.open(tmp_path / "theirs")
    theirs.finish(make_job(0), RECORD)
    for seed, fields in enumerate(({"details": None}, {"metrics": {"x": 10**400}}, {"files": []}), 1):
        write_run(theirs.root, FIELDS | fields, job=make_job(seed))
    write_run(theirs.root, text=DEEP, job=make_job(4))
    path = tmp_path / "runs.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(theirs.root / "runs", "theirs/runs")
    report = unpack(path, store)
    assert report.added == [make_job(0).id] == store.job_ids()
    assert len(report.problems) == 4
    for seed in (1, 2, 3, 4):
        assert any(make_job(seed).id in problem for problem in report.problems)


def test_the_shipped_archives_are_far_from_the_limits():
    folder = Path(__file__).parents[2] / "results" / "measured"
    paths = sorted(folder.rglob("*.tar.xz"))
    assert paths
    for path in paths:
        with lzma.open(path) as file:
            size = file.seek(0, io.SEEK_END)
        assert size / path.stat().st_size < UnpackingLimits.ratio / 10 and size < UnpackingLimits.total / 100
