"""Options of the command line as data: an option is declared once, as a field of the dataclass that the code uses.

The command line makes its parameters from these declarations (:mod:`madbench.cli.shared.parameters`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from madbench.config.values import short_repr
from madbench.errors import ConfigError

EVERY_VERB = "every verb"
RARE_FOR = frozenset({"bench", "paper", "run", "sweep", "train"})
"""The verbs whose ``--help`` may leave out options that other verbs show. ``train`` is ``madbench lm``."""


@dataclass(frozen=True)
class Parameter:
    """An option or argument of a verb. It annotates the type of its values: ``Annotated[int, option("How many.")]``."""

    help: str
    flags: tuple[str, ...] = ()
    """The spellings of an option, such as ``--tasks`` and ``-t``. By default ``--`` and the name of the field."""
    completes: str = ""
    """The metavar, such as ``TASK``, that selects the shell completion of the values. Empty for no completion
    (:func:`madbench.cli.shared.completion.completion_of`).
    """
    rare: str = ""
    """The verbs, separated by spaces, whose ``--help`` leaves the option out, or :data:`EVERY_VERB`. ``--help-all``
    shows it.
    """
    is_argument: bool = False
    reads: Any = None
    """The type that the command line parses, if it differs from the annotated type. None if it does not.

    If it differs, a ``callback`` in :attr:`settings` converts the parsed value to the annotated type.
    """
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of ``typer.Option`` or ``typer.Argument``, such as ``min``.

    A function given as ``parser`` raises ``ValueError`` or ``ConfigError`` for a text that it does not accept. The
    command line puts the name of the option before the message of a ``ValueError``. The message of a ``ConfigError``
    names the option itself.
    """

    def __post_init__(self) -> None:
        if self.rare != EVERY_VERB and (unknown := {*self.rare.split()} - RARE_FOR):
            allowed = f"{EVERY_VERB!r} or some of: {' '.join(sorted(RARE_FOR))}"
            raise ValueError(f"rare={self.rare!r}: unknown verb {' '.join(sorted(unknown))}; expected {allowed}")


def option(
    help: str, *flags: str, completes: str = "", rare: str = "", reads: Any = None, **settings: Any
) -> Parameter:
    """Declare an option. The arguments are the fields of :class:`Parameter`.

    An option of the type ``bool`` without ``flags`` also has a ``--no-`` form.
    """
    return Parameter(help, flags, completes, rare, reads=reads, settings=settings)


def split_list(values: list[str] | None, flag: str = "--tasks", noun: str = "task") -> list[str] | None:
    """Split values at commas: ``["a,b", "c"]`` -> ``["a", "b", "c"]``. None if there are no values.

    Raises ``ConfigError`` if the values have nothing but commas. ``flag`` and ``noun`` are words of its message.
    """
    if not values:
        return None
    parts = [part.strip() for value in values for part in value.split(",") if part.strip()]
    if not parts:
        raise ConfigError(f"{flag} {short_repr(','.join(values))}: names no {noun}; without {flag} all are used")
    return parts


def argument(metavar: str, help: str, **settings: Any) -> Parameter:
    """Declare a positional argument of a verb.

    ``metavar`` is its name in the help, and selects its shell completion.
    """
    return Parameter(help, completes=metavar, is_argument=True, settings={"metavar": metavar, **settings})


def declared_parameter(hint: Any) -> Parameter | None:
    """The option or argument that the annotated type ``hint`` declares. None if it declares none."""
    return next((detail for detail in get_args(hint)[1:] if isinstance(detail, Parameter)), None)
