"""File formats of documents, recognized by name and by first bytes, and a streaming reader of JSON arrays."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from madbench.errors import ConfigError

Format = Literal["text", "lines", "json", "parquet"]
Packing = Literal["", ".gz", ".zst"]
Content: TypeAlias = "io.BufferedReader[Any] | gzip.GzipFile"

_FORMATS: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".jsonlines": "lines",
    ".jl": "lines",
    ".json": "json",
    ".parquet": "parquet",
}
CHUNK_BYTES = 1 << 20  # bytes
_LONGEST_SIGN = 16  # characters at the end of the read text that may be a cut-off number, word or escape
_WHITE = re.compile(r"[ \t\r\n]*")  # JSON's
_CONTROLS = bytes({*range(32), 127} - {*b"\b\t\n\v\f\r\x1b"})  # bytes that are rare in text

_SIGNATURES = {
    codecs.BOM_UTF32_LE: "UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",  # starts with UTF-16's
    codecs.BOM_UTF32_BE: "UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": "UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\x1f\x8b": "packed by gzip; give it a name that ends in .gz, after the ending of the file inside",
    b"\x28\xb5\x2f\xfd": "packed by zstd; give it a name that ends in .zst, after the ending of the file inside",
    b"PAR1": "parquet; give it a name that ends in .parquet",
    b"PK\x03\x04": "a zip archive, as .docx, .xlsx, .epub and .npz are too; unpack or convert it",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"\xfd7zXZ": "packed by xz; unpack it",
    **{b"BZh%d1AY&SY" % level: "packed by bzip2; unpack it" for level in range(1, 10)},
    b"%PDF-": "a PDF, not its text; convert it, as with pdftotext",
    b"{\\rtf": "RTF, not its text; convert it",
    b"\xd0\xcf\x11\xe0": "an Office document, not its text; convert it",
    b"ARROW1": "an Arrow table; write it as parquet",
    b"SQLite format 3": "an SQLite database; write its text as JSON lines",
    b"\x93NUMPY": "a NumPy array, not text",
    b"\x89PNG": "an image, not text",
    b"\xff\xd8\xff": "an image, not text",
    b"\x7fELF": "a program, not text",
}

_WIDE = {
    (False, True, False, True): "UTF-16LE",
    (True, False, True, False): "UTF-16BE",
    (False, True, True, True): "UTF-32LE",
    (True, True, True, False): "UTF-32BE",
}
"""Encodings that are recognized by their zero bytes, in files without a byte order mark. A key says for each of four
consecutive bytes if it is mostly zero in a text of Latin letters."""


_PACKINGS: dict[str, Packing] = {".gz": ".gz", ".zst": ".zst"}


def format_of(path: Path, name: str) -> tuple[Format, Packing]:
    """The format and the packing (the compression) of a file, from the ending of its name.

    Raises ``ConfigError`` if the ending is that of a format that cannot be read. The message calls the file ``name``.
    """
    packing = _PACKINGS.get(path.suffix.lower(), "")
    inner = Path(path.stem) if packing else path
    ending = inner.suffix.lower()
    if ending in (".csv", ".tsv"):
        separator = ", sep='\\t'" if ending == ".tsv" else ""
        options = "orient='records', lines=True, force_ascii=False"
        convert = f"pandas.read_csv('{path}'{separator}).to_json('{inner.stem}.jsonl', {options})"
        raise ConfigError(
            f"{name}: a table, of which only one column is text; write its rows as JSON lines, and name that column "
            f'with --text-key: python -c "import pandas; {convert}"'
        )
    if ending == ".bin":
        raise ConfigError(
            f"{name}: token ids or other binary data, not text; a folder with train.bin and val.bin is a corpus "
            "already: madbench lm LABEL --corpus FOLDER"
        )
    kind = _FORMATS.get(ending, "text")
    if packing and kind == "parquet":
        raise ConfigError(f"{name}: parquet, which is already compressed, was packed again; unpack it")
    return kind, packing


def problem_of(head: bytes) -> str:
    """The reason why a file is not UTF-8 text, and what to do. Empty if it may be such text.

    ``head`` has the first bytes of the file.
    """
    for signature, problem in _SIGNATURES.items():
        if head.startswith(signature):
            return problem
    if len(head) - len(head.translate(None, _CONTROLS)) <= max(8, len(head) // 10):
        return ""
    a, b, c, d = (head[place::4].count(0) * 4 > len(head) / 2 for place in range(4))
    if encoding := _WIDE.get((a, b, c, d)):
        name = encoding[:6]
        return f"not text in UTF-8 but full of zeros; if it is {name}, convert it: iconv -f {encoding} -t UTF-8"
    return "not text but binary data; leave it out, or convert it"


def is_json_lines(head: bytes) -> bool:
    """True if the first line of ``head`` is a JSON object and the next line begins another one."""
    first, *others = head.removeprefix(codecs.BOM_UTF8).split(b"\n", 2)
    if not others or not others[0].startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def json_array(stream: Content, limit: int, name: str) -> Iterator[tuple[int, Any]]:
    """Yield the elements of the JSON array in ``stream``, each with the number of the line in which it begins.

    The stream is read lazily. Raises ``ConfigError``, with ``name`` and the line, if the stream is not an array or an
    element exceeds about ``limit`` characters. Raises ``ValueError`` if it is not UTF-8.
    """
    window = _Window(stream)

    def problem(reason: object, place: int | None = None) -> ConfigError:
        return ConfigError(f"{name}:{window.line(place)}: not valid JSON: {reason}; correct the file")

    if window.sign() != "[":
        raise problem("expected an array")
    window.at += 1
    separator = "" if window.sign() == "]" else ","
    while separator == ",":
        window.sign()
        while True:
            try:
                value, end = window.parse()
                if end <= len(window.text) - _LONGEST_SIGN or window.is_last:  # not the 1 of a cut-off 1.5
                    break
            except RecursionError as error:
                raise problem(error) from None
            except json.JSONDecodeError as error:
                is_cut_off = error.msg.startswith("Unterminated") or error.pos > len(window.text) - _LONGEST_SIGN
                if window.is_last or not is_cut_off:
                    raise problem(error.msg, error.pos) from None
                if len(window.text) - window.at > limit:
                    most = f"an element of more than {limit / 1e6:g} MB; --max-line MB allows longer ones"
                    raise ConfigError(f"{name}:{window.line()}: {most}") from None
            window.read_more()
        yield window.line(), value
        window.at = end
        if (separator := window.sign()) not in ("]", ","):
            raise problem("expected ',' or ']' after an element")
        window.at += separator == ","
    window.at += 1
    if window.sign():
        raise problem("something after the end of the array")


class _Window:
    """A window on the text of a UTF-8 stream.

    ``text`` has the part in memory, and ``at`` is the next place to parse.
    """

    def __init__(self, stream: Content):
        self.text, self.at, self.is_last = "", 0, False
        # _counted is the place up to which lines are counted
        self._stream, self._line, self._counted = stream, 1, 0
        self._decode, self._parse = codecs.getincrementaldecoder("utf-8-sig")().decode, json.JSONDecoder().raw_decode

    def read_more(self) -> None:
        """Drop the text before ``at``, and append the next part of the stream.

        The part has ``CHUNK_BYTES`` bytes, or one byte per character after ``at`` if this is more.
        """
        rest = self.text[self.at :]
        self.line()
        content = self._stream.read(max(CHUNK_BYTES, len(rest)))
        self.is_last = not content
        self.text, self.at, self._counted = rest + self._decode(content, self.is_last), 0, 0

    def line(self, place: int | None = None) -> int:
        """The line number of a place in the text, by default of ``at``. Places must not decrease from call to call."""
        place = self.at if place is None else place
        self._line += self.text.count("\n", self._counted, place)
        self._counted = place
        return self._line

    def sign(self) -> str:
        """Move ``at`` to the next character that is not white space, and return this character.

        Empty at the end of the stream.
        """
        self._skip_white()
        while self.at == len(self.text) and not self.is_last:
            self.read_more()
            self._skip_white()
        return self.text[self.at : self.at + 1]

    def _skip_white(self) -> None:
        if white := _WHITE.match(self.text, self.at):
            self.at = white.end()

    def parse(self) -> tuple[Any, int]:
        """The JSON value that begins at ``at``, and the place in the text at which it ends.

        Raises the errors of :meth:`json.JSONDecoder.raw_decode`, also if the window has only a part of the value.
        """
        return self._parse(self.text, self.at)
