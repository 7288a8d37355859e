"""The errors that a user can cause, under one base class.

The command line prints them without a traceback and exits with code 2. A message says what the input was, where it
came from, what is allowed, and the nearest valid input.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from madbench.extras import how_to_install


class MadbenchError(Exception):
    """An error that the user can fix. The message says how."""


class LabelError(MadbenchError):
    """A label or a set of labels that cannot be parsed."""


class UntrustedCodeError(LabelError):
    """A label that names code but was read from a file. Code named in a file is not imported."""

    def __init__(self, label: str, remedy: str):
        super().__init__(label, remedy)  # the plain arguments, so that the error can be pickled
        self.label, self.remedy = label, remedy

    def __str__(self) -> str:
        return f"{self.label} comes from a file, and madbench imports no code that a file names; {self.remedy}"


class FamilyError(LabelError):
    """The code of an installed package failed on a label of a family that the package defines."""


class BudgetError(MadbenchError):
    """The label has no mixer at this size. Usually no choice of ranks meets the budget."""


class ModuleError(BudgetError):
    """A user's module that fails, takes other arguments, or is not a causal sequence mixer."""


class UnknownStateError(BudgetError):
    """The size of the decoding state is needed, but the label's family or module does not give it."""


class ConfigError(MadbenchError):
    """A YAML file, an override or an option that is not allowed."""


def no_effect(what: str, where: str = "", because: str = "") -> ConfigError:
    """The error of a setting that changes nothing: ``WHAT has no effect WHERE: BECAUSE``.

    ``what`` is the setting as it was given, such as ``--top-k 5``. ``where`` begins with a preposition, such as
    ``without --costs``, and may end with a remedy. ``because`` is a clause.
    """
    return ConfigError(" ".join(filter(None, (what, "has no effect", where))) + (f": {because}" if because else ""))


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """A context that adds ``where`` to the message of a ``MadbenchError``. No effect if ``where`` is empty.

    ``where`` comes before the message. In a ``LabelError`` it comes after the message, on a new line, because a caret
    may point at the label in the first line.
    """
    try:
        yield
    except LabelError as error:  # ``where`` comes last: a caret may point at the label in the first line
        raise LabelError(f"{error}\nin {where}") if where else error from None
    except MadbenchError as error:
        raise type(error)(f"{where}: {error}") if where else error from None


class StoreError(MadbenchError):
    """A results folder that cannot be read or written."""


class TrainingError(MadbenchError):
    """A run that cannot start or continue.

    Examples are a wrong device, a sequence that is too long for the mixer, and a checkpoint of another run.
    """


class MissingExtraError(MadbenchError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str):
        super().__init__(what, extra)  # the plain arguments, so that the error can be pickled

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what} needs an optional package; install it with: {how_to_install(extra)}"


def require(module: str, what: str, extra: str) -> ModuleType:
    """Import and return the optional ``module``, which the feature ``what`` needs.

    Raises ``MissingExtraError`` if it is not installed, and ``ConfigError`` if it is installed but cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(what, extra) from None
    except (Exception, SystemExit) as error:  # a broken package may raise anything
        problem = f"{module} is installed and cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {problem}; reinstall it with: {how_to_install(extra)}") from error


MOST_OPTIONS = 8
"""The largest number of options that a message lists if it also names a command that lists all."""


def did_you_mean(word: Any, options: Iterable[str], listing: str = "") -> str:
    """Return the end of an error message that suggests options in place of the unknown ``word``.

    This is ``"; did you mean 'x'?"`` for the option closest to ``word``. If no option is close, it is
    ``"; expected one of: "`` with a list of the options. If there are no options, it is empty. ``listing`` is a command
    that prints all options. If it is given, the list has at most eight options, and the text names the command
    behind it.
    """
    options = [str(option) for option in options]
    if (close := suggestion(word, options)) or not options:
        return close
    left_out = len(options) - MOST_OPTIONS if listing else 0
    names = ", ".join(options[:MOST_OPTIONS] if left_out > 0 else options)
    more = f" and {left_out} more" if left_out > 0 else ""
    return f"; expected one of: {names}{more}{f'; {listing} lists all' if listing else ''}"


def suggestion(word: Any, options: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the option that the user may have meant by ``word``. Empty if there is none.

    This is the option closest to the word by spelling. An option at least twice as long as the word counts only if it
    begins with the word, so that "nope" does not suggest "genotype". If no option is close, it is the only option whose
    beginning resembles the word (:func:`_same_beginning`): "mem", "memory" and "memry" suggest "memorization". If there
    is none, it is the only option whose initials are the word: "lr" suggests "learning_rate".

    Nothing is suggested for the name of a precision, such as "float64", because it is no misspelling of another.
    """
    try:
        word = str(word)[:200]
    except ValueError:  # Python refuses to print a number with thousands of digits
        return ""
    if re.fullmatch(r"b?float\d+", word):
        return ""
    options = [*options]
    near = [option for option in options if len(option) < 2 * len(word) or option.startswith(word)]
    close = difflib.get_close_matches(word, near, n=1, cutoff=0.6) or _same_beginning(word, options)
    close = close or [option for option in options if _has_initials(option, word)]
    return f"; did you mean {close[0]!r}?" if len(close) == 1 else ""


def is_close_name(word: str, name: str) -> bool:
    """True if ``word`` is almost the ``name`` of a setting, or its initials.

    Unlike :func:`suggestion`, this does not compare with other names, so that the spelling has to be closer.
    """
    return difflib.SequenceMatcher(None, word, name).ratio() >= 0.8 or _has_initials(name, word)


def _has_initials(name: str, word: str) -> bool:
    """True if ``word`` has the initials of the parts of ``name``, with or without an s: "lr" of "learning_rates"."""
    initials = "".join(part[:1] for part in name.split("_"))
    return len(initials) > 1 and word in (initials, f"{initials}s")


def _same_beginning(word: str, options: Iterable[str]) -> list[str]:
    """The options that begin with ``word`` or with a text similar to it.

    - For a word of fewer than three letters, there are none.
    - For a word of three or four letters, these are the options that begin with the whole word.
    - For a longer word, these are the options that begin with the word without its last letter. If there are none, they
      are the options with a similar beginning, of as many letters as the word or one fewer: "memorization" for "memry".
    """
    options, length = [*options], len(word)
    if length < 5:
        return [option for option in options if option.startswith(word)] if length >= 3 else []
    matcher = difflib.SequenceMatcher(None, b=word)

    def resembles(option: str) -> bool:
        for beginning in (option[: length - 1], option[:length]):
            matcher.set_seq1(beginning)
            if matcher.ratio() >= 0.7:
                return True
        return False

    return [option for option in options if option.startswith(word[:-1])] or [*filter(resembles, options)]
