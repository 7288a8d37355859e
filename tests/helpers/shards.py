"""Files of documents in the formats of sources of text: JSON lines, Parquet and plain text, also compressed."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from madbench.errors import ConfigError
from madbench.text.documents import TextLimits
from madbench.text.sources import find_sources

DOCUMENTS = [f"document {i} é\n" + hashlib.sha256(bytes([i])).hexdigest() for i in range(200)]


def lines_of(documents: list[str], key: str = "text") -> bytes:
    return b"".join(json.dumps({"meta": {"n": 1}, key: text}).encode() + b"\n" for text in documents)


def zstd(content: bytes) -> bytes:
    packed: bytes = pytest.importorskip("pyarrow").Codec("zstd").compress(content, asbytes=True)
    return packed


def write_parquet(path: Path, compression: str = "snappy", **columns: Sequence[object]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table, how = pyarrow.table(columns), {"row_group_size": 50, "compression": compression}
    pytest.importorskip("pyarrow.parquet").write_table(table, path, **how)


def write(path: Path, documents: list[str] = DOCUMENTS) -> Path:
    """Write ``documents`` in the format that the ending of ``path`` names, and return the path."""
    if path.suffix == ".parquet":
        write_parquet(path, text=documents)
    elif path.suffix == ".txt":
        path.write_text("\n".join(documents))
    else:
        pack(path, lines_of(documents))
    return path


FORMATS = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]


def refusal_under_limits(path: Path, **limits: int) -> str:
    """The message of the error from reading the source ``path`` with ``limits``, fields of ``TextLimits``."""
    (source,) = find_sources([str(path)], limits=TextLimits(**limits))
    with pytest.raises(ConfigError) as caught:
        list(source.documents())
    return str(caught.value)


def pack(path: Path, content: bytes) -> Path:
    packs: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd}
    path.write_bytes(packs.get(path.suffix, bytes)(content))
    return path
