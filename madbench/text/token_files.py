"""Token files of other programs: a plain sequence of ids of unknown width.

nanoGPT's ids are little-endian uint16. Vocabularies of more than 65,536 ids need uint32. If a file of uint32 is read as
uint16, there are twice as many ids, and every second id is near 0. Training would then raise no error and reach a low
loss. To prevent this, the width is determined from the ids.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from madbench.errors import ConfigError, did_you_mean

DTYPES = {f"{sign}int{8 * width}": width for width in (1, 2, 4, 8) for sign in ("u", "")}
"""Name of a type to its size in bytes. Signed types are read as unsigned ones, because ids are never negative."""
USUAL = np.dtype("<u2")

_FOREIGN = tuple(map(np.dtype, ("<f8", "<f4", ">u8", ">u4", ">u2")))  # types that are recognized but not read
# the first type that fits enough ids is chosen
_WIDE = tuple(map(np.dtype, ("<f8", "<u8", ">u8", "<f4", "<u4", ">u4")))
_LAYOUTS = (*_WIDE, USUAL, np.dtype(">u2"))
_ENOUGH = 64  # so many ids do not fit a wider type by chance
_LARGEST_VOCABULARY = 1 << 20  # limit for ids beyond the given vocabulary
_HEAD = 1 << 22  # bytes read to determine the type
_TEXT, _TEXT_HEAD = 32, 1 << 16  # so many bytes of ids are not text by chance; bytes read

_LLM_C = "a file of llm.c, which has a header of 1,024 bytes; cut it off: tail -c +1025"
_HEADERS = {
    b"\x93NUMPY": "a NumPy array with a header; write it without one: numpy.load(path).astype('<u4').tofile(path)",
    b"MMIDIDX": "an index of Megatron's, not its tokens",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\x1f\x8b\x08": "packed by gzip; unpack it",
    struct.pack("<ii", 20240520, 1): _LLM_C,
    struct.pack("<ii", 20240801, 7): _LLM_C,  # header for Llama 3's ids, which are uint32
}


def named_dtype(name: str) -> np.dtype:
    """The little-endian unsigned integer type that has the size of the named type: ``uint32`` for ``int32``.

    Raises ``ConfigError`` if ``name`` is not the name of an integer type.
    """
    if name not in DTYPES:
        raise ConfigError(f"dtype {name!r}: not a type of token ids{did_you_mean(name, DTYPES)}")
    return np.dtype(f"<u{DTYPES[name]}")


def check_header(path: Path) -> None:
    """Raise ``ConfigError`` if the file begins with the header of another format, such as a NumPy array."""
    head = _head(path, max(map(len, _HEADERS)))
    for header, problem in _HEADERS.items():
        if head.startswith(header):
            raise ConfigError(f"{path}: {problem}; a token file contains only ids")


def likely_dtype(paths: Iterable[Path], vocab_size: int) -> np.dtype:
    """The integer type of the ids in all of the files, given that every id is below ``vocab_size``.

    It is the widest type that fits, because ids of a narrower type fit a wider type only by chance. If no type fits, it
    is uint16. Raises ``ConfigError`` if a file is text, big-endian or floats, if two files differ, or if all files are
    too short or repeat one id.
    """
    likely: dict[np.dtype, Path] = {}
    doubt = ""
    for path in paths:
        head, size = _head(path, _HEAD), path.stat().st_size
        if _is_text(head[:_TEXT_HEAD]):
            hint = "madbench lm prepare makes tokens of text, and --dtype uint8 says that every byte is an id"
            raise ConfigError(f"{path}: text, not token ids; {hint}")
        fitting = [dtype for dtype in _LAYOUTS if _fits(head, size, dtype, vocab_size)]
        fitting = fitting or [dtype for dtype in _WIDE if _fits(head, size, dtype, _LARGEST_VOCABULARY)]
        if _is_repeated(head):
            doubt = (
                doubt
                or f"{path}: the same bytes over and over, which may be ids of any type; give the type with --dtype"
            )
        elif len(fitting) > 1 and len(head) // fitting[0].itemsize < _ENOUGH:
            names = " or ".join(dtype.name for dtype in fitting[::-1])
            doubt = doubt or f"{path}: too short to tell whether its ids are {names}; give the type with --dtype"
        elif fitting:  # for another file, reading it reports its fault
            likely.setdefault(fitting[0], path)
    if len(likely) > 1:
        guesses = " and ".join(f"{path.name} looks like {dtype.name}" for dtype, path in likely.items())
        raise ConfigError(f"{path.parent}: {guesses}; write both as one type, or say with --dtype what both are")
    for dtype, path in likely.items():
        if dtype not in _FOREIGN:
            return dtype
        order, usual = "big-endian " if dtype.str[0] == ">" else "", f"<u{min(4, dtype.itemsize)}"
        convert = f"numpy.fromfile(path, '{dtype.str}').astype('{usual}').tofile(path)"
        raise ConfigError(f"{path}: looks like {order}{dtype.name}; convert it: {convert}")
    if doubt:
        raise ConfigError(doubt)
    return USUAL


def _head(path: Path, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)


def _fits(head: bytes, size: int, dtype: np.dtype, vocab_size: int) -> bool:
    """True if a file can hold ids of type ``dtype`` below ``vocab_size``, not all 0.

    The file has ``size`` bytes and begins with ``head``. If ``head`` has many ids, ``size`` need not be a multiple of
    the type's size, because the end of the file may be cut off.
    """
    ids = np.frombuffer(head[: len(head) // dtype.itemsize * dtype.itemsize], dtype)
    is_enough = len(ids) >= _ENOUGH or (len(ids) > 0 and size % dtype.itemsize == 0 and dtype not in _FOREIGN)
    if dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            is_enough = is_enough and bool((ids == np.floor(ids)).all()) and ids.min() >= 0
    return is_enough and 0 < ids.max() < vocab_size


def _is_repeated(head: bytes) -> bool:
    """True if ``head`` repeats one group of at most 8 bytes: the same id, or the same few ids of a narrower type."""
    ids = np.frombuffer(head[: len(head) // 8 * 8], "<u8")
    return len(ids) > 1 and bool((ids == ids[0]).all())


def _is_text(head: bytes) -> bool:
    """True if ``head`` is the beginning of a text in UTF-8 without control characters, and long enough to tell."""
    text = head.decode("utf-8", "ignore")
    lost = len(head) - len(text.encode())  # bytes that are not UTF-8; at most 3 if the last character is cut off
    return len(head) >= _TEXT and lost <= 3 and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)
