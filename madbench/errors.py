"""Every error a user can cause, under one base class.

The command line prints them without a traceback and exits with code 2. A message says what came, where it came
from, what is allowed and the nearest right answer.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from madbench.extras import how_to_install


class MadbenchError(Exception):
    """Something the user can mend: the message says how."""


class LabelError(MadbenchError):
    """A label or a label set that does not parse."""


class UntrustedCodeError(LabelError):
    """A label that was read from a file and names code, which is therefore not imported."""

    def __init__(self, label: str, remedy: str):
        super().__init__(label, remedy)  # as they are, so that the error crosses processes
        self.label, self.remedy = label, remedy

    def __str__(self) -> str:
        return f"{self.label} comes from a file, and madbench imports no code that a file names; {self.remedy}"


class FamilyError(LabelError):
    """A label of another package's family, whose code fails."""


class BudgetError(MadbenchError):
    """No ranks meet the parameter budget."""


class ConfigError(MadbenchError):
    """A YAML file, an override or an option that is not allowed."""


class StoreError(MadbenchError):
    """A results folder that cannot be read or written."""


class TrainingError(MadbenchError):
    """A run that cannot start or go on: wrong device, length over the mixer's maximum, foreign checkpoint."""


class MissingExtraError(MadbenchError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str):
        super().__init__(what, extra)  # as they are, so that the error crosses processes

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what} needs an optional package; install it with: {how_to_install(extra)}"


def require(module: str, what: str, extra: str) -> ModuleType:
    """The optional ``module``, imported. Raises ``MissingExtraError`` where it is not installed: ``what`` needs it.

    Raises ``ConfigError`` where it is installed and broken.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(what, extra) from None
    except (Exception, SystemExit) as error:  # whatever its code raises
        problem = f"{module} is installed and cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {problem}; install it anew with: {how_to_install(extra)}") from error


def did_you_mean(word: Any, options: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the option closest to ``word``, or the list of options when none is close.

    An option of twice the length or more is close only if it begins with the word: "nope" is not "genotype".
    """
    options = [str(option) for option in options]
    try:
        word = str(word)[:200]
    except ValueError:  # Python does not write a number of thousands of digits
        word = ""
    near = [option for option in options if len(option) < 2 * len(word) or option.startswith(word)]
    close = difflib.get_close_matches(word, near, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of: {', '.join(options)}" if options else ""
