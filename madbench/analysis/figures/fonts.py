"""The fonts of figures: a font chosen by the user, then DejaVu Sans.

A character that both fonts lack is an error in a name that the user gave. In the text of stored runs it is drawn as a
box.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from matplotlib import font_manager

from madbench.errors import ConfigError
from madbench.labels.names import names_in_use

VARIABLE = "MADBENCH_FONT"
"""The environment variable with the name of an installed font, or with the path of a font file."""
DEFAULT = "DejaVu Sans"
"""The font that comes with Matplotlib."""
_ENDINGS = (".ttf", ".otf", ".ttc")
_MOST = 4
"""The largest number of fonts that an error names."""
_IS_OF_READER: ContextVar[bool] = ContextVar("is_of_reader", default=False)


def font_settings() -> dict[str, Any]:
    """The settings of Matplotlib that select the fonts, as entries of its ``rcParams``.

    The user chooses a font with the environment variable :data:`VARIABLE`. Raises ``ConfigError`` if Matplotlib does
    not find this font.
    """
    chosen_font = os.environ.get(VARIABLE, "").strip()
    if not chosen_font:
        return {"font.sans-serif": [DEFAULT]}
    name = _of_file(chosen_font) if chosen_font.lower().endswith(_ENDINGS) else chosen_font
    installed_fonts = {entry.name for entry in font_manager.fontManager.ttflist}
    if name not in installed_fonts:
        close = difflib.get_close_matches(name, installed_fonts, n=1)  # did_you_mean could list hundreds
        suggestion = f", but {close[0]!r}" if close else ""
        raise ConfigError(
            f"{VARIABLE}={chosen_font}: Matplotlib finds no font of this name{suggestion}; a file will do too"
        )
    return {"font.family": [name, DEFAULT], "font.sans-serif": [name, DEFAULT]}


@functools.cache
def _of_file(path: str) -> str:
    """Register the font file ``path`` with Matplotlib, and return the name of its font.

    Raises ``ConfigError`` if the file cannot be read as a font.
    """
    try:
        font_manager.fontManager.addfont(path)
        return font_manager.FontProperties(fname=path).get_name()
    except (OSError, RuntimeError) as error:  # RuntimeError if the file is not a font
        raise ConfigError(f"{VARIABLE}={path}: cannot be read as a font: {error}") from error


@contextmanager
def font_of_reader() -> Iterator[None]:
    """A context for drawing SVG files. The program that later shows the file draws the text, with its own fonts.

    So within the context, a character that the fonts on this machine lack is no error.
    """
    token = _IS_OF_READER.set(True)
    try:
        yield
    finally:
        _IS_OF_READER.reset(token)


@contextmanager
def every_character_drawn() -> Iterator[None]:
    """A context that raises ``ConfigError`` if a display name is drawn and no font has one of its characters.

    Display names are given by the user, or by files of sets of labels, so they can be changed. Other text may come from
    another person's runs. In it, such a character is drawn as a box.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from", category=UserWarning)
        codes = {ord(character) for name in names_in_use().requested for character in name}
        if codes and not _IS_OF_READER.get():
            alternatives = "|".join(map(str, sorted(codes)))
            warnings.filterwarnings("error", message=rf"Glyph ({alternatives}) .* missing from", category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            if not (match := re.match(r"Glyph (\d+) ", str(warning))):
                raise
            raise ConfigError(_problem(chr(int(match[1])))) from None


def _problem(character: str) -> str:
    """The error message for a character that cannot be drawn. It says which installed fonts have the character."""
    font_name = os.environ.get(VARIABLE) or DEFAULT
    start = f"the font of figures, {font_name}, has no character {character} (U+{ord(character):04X})"
    if not (names := fonts_with(ord(character))):
        return (
            f"{start}, and no font that Matplotlib finds here has it; set the environment variable {VARIABLE} to the "
            "file of a font that has it, such as NotoSansCJK-Regular.ttc, or show the label by another name"
        )
    others = f" (or {', '.join(names[1:])})" if names[1:] else ""
    return f"{start}; set the environment variable {VARIABLE} to one that has it, such as '{names[0]}'{others}"


def fonts_with(code: int) -> list[str]:
    """The sorted names of installed fonts that have the character with the Unicode number ``code``.

    At most :data:`_MOST` names are returned. Empty if no font has the character.
    """
    names: dict[str, None] = {}
    for entry in font_manager.fontManager.ttflist:
        if entry.name in names or "Last Resort" in entry.name or len(names) == _MOST:
            continue
        try:
            if font_manager.get_font(entry.fname).get_char_index(code):
                names[entry.name] = None
        except (OSError, RuntimeError):  # the font was removed
            continue
    return sorted(names)
