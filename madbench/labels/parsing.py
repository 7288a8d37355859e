"""Parsing of labels, and functions that ask a label's family for the properties of the label."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madbench.errors import FamilyError, LabelError
from madbench.labels.family import Explanation, Label, LoadedFamily
from madbench.labels.family_checks import GuardedFamily
from madbench.labels.patterns import is_pattern, part_texts
from madbench.labels.registry import REGISTRY, family_identity, family_of, loaded_families
from madbench.labels.suggestions import message_with_suggestion

Labels = str | type | Label | Sequence[str | type | Label]
"""One or several labels or sets of labels. A class of a user's module stands for its label."""


def text_of(value: Any) -> str:
    """Return the text of a label that is given as text, or as a Python object for which a family defines a label.

    Such an object is, for example, a user's module class. Raises ``LabelError`` for an object without a label.
    """
    if isinstance(value, str):
        return value
    failed = None
    for family in loaded_families().values():
        try:
            if (text := family.text_of(value)) is not None:
                return text
        except FamilyError as error:
            failed = error
    raise failed or LabelError(f"a label is text such as 'G-cg-q-12o', got {type(value).__name__}")


def texts_of(values: Any) -> tuple[str, ...]:
    """Return the texts of one or several labels or sets of labels, given as text or as objects (:func:`text_of`)."""
    is_one = isinstance(values, str) or not isinstance(values, Iterable)
    return tuple(map(text_of, (values,) if is_one else values))


def as_label(value: Any) -> Label:
    """Return the parsed label of a text or of a user's module class. A parsed label is returned unchanged.

    Raises ``LabelError`` for a value that is obviously none of these, such as a number or a list.
    """
    return value if _is_parsed(value) else parse(value)


def _is_parsed(value: Any) -> bool:
    """True if ``value`` may be a parsed label: an object of a class that is not of Python's standard library.

    Its family is not asked, because it need not be installed.
    """
    return not callable(value) and type(value).__module__.partition(".")[0] not in sys.stdlib_module_names


def parse(text: str) -> Label:
    """Parse a label with the parser of its family. ``str`` of the result is the canonical text.

    ``text`` may also be a user's module class (:func:`text_of`).

    Raises ``LabelError``, whose message points at the wrong character or suggests a similar label, if the text is no
    label.
    """
    text = text_of(text)
    try:
        return family_of(text).parse(text)
    except FamilyError:
        raise
    except LabelError:
        if problem := message_with_suggestion(text):
            raise LabelError(problem) from None
        raise


def reading_problem(label: str) -> str:
    """The reason why a stored label cannot be parsed, for example that its family is not installed. Empty if it can."""
    try:
        parsed = parse(label)
        factors(parsed), levels(parsed)
        # families of this package never fail, and traits can be slow to compute
        if isinstance(family := family_of(parsed), GuardedFamily):
            family.traits(parsed)
    except LabelError as error:
        return (str(error).splitlines() or [type(error).__name__])[-1].strip()  # a package's message may be empty
    return ""


def is_shown_as_stored(label: str) -> bool:
    """True if the runs of a label are shown from stored data alone, without importing the label's code.

    This holds for families whose labels name code of the user, because reading a store never imports such code. It also
    holds if the label's family is not installed, cannot be loaded, or needs a package that is not installed.
    """
    try:
        parts = part_texts(str(label))
        return any(family_of(part).names_code or missing_package(part) for part in parts)
    except LabelError:
        return True


def is_of_package(label: str) -> bool:
    """True if all mixers of a label are part of madbench, and no package that they need is missing.

    False if the label names code of the user, or if its family cannot be loaded.
    """
    try:
        families = [family_of(part) for part in part_texts(label)]
    except LabelError:
        return False
    return all(
        family.name in REGISTRY.built_in and not (family.names_code or family.missing_package()) for family in families
    )


def missing_package(label: str) -> str:
    """The name of a package that a label's mixers need and that cannot be imported. Empty if nothing is missing.

    Raises ``LabelError`` if the family of a mixer cannot be loaded.
    """
    missing = (family_of(part).missing_package() for part in part_texts(str(label)))
    return next(filter(None, missing), "")


def factors_of_text(label: str) -> Mapping[str, str]:
    """The factors of a label that is given as text (:func:`factors`).

    Empty if the text is no label or its family cannot be loaded.
    """
    try:
        return factors(parse(label))
    except LabelError:
        return {}


def factors(label: Label) -> Mapping[str, str]:
    """The factors of a label: the level of each property in which labels of a family can differ, by property.

    A factor without meaning for the label is left out.
    """
    return family_of(label).factors(label)


def factors_in(family: LoadedFamily, label: Label) -> Mapping[str, str] | None:
    """The factors of a label (:func:`factors`), translated to those of ``family``. None if this is impossible."""
    if family_of(label) is family:
        return family.factors(label)
    return family.factors_of_other(label)


def differing_factors(a: Label, b: Label) -> tuple[str, ...]:
    """The names of the factors that both labels have and in which they differ.

    If the label of one family can be described by the factors of the other (``factors_of_other``), these factors are
    compared. For labels of two unrelated families the result is ``"family"`` and all factors of both labels.
    """
    for family in (family_of(a), family_of(b)):
        mine, theirs = factors_in(family, a), factors_in(family, b)
        if mine is not None and theirs is not None:
            return tuple(name for name in mine if name in theirs and mine[name] != theirs[name])
    return ("family", *dict.fromkeys((*factors(a), *factors(b))))


def explain(label: Label) -> Sequence[Explanation]:
    """The explanation of a label: one row per letter, then one row per property that follows from absent letters."""
    return family_of(label).explain(label)


def levels(label: Label) -> Mapping[str, str]:
    """The factors of a label (:func:`factors`), with the levels as contrasts print them."""
    return family_of(label).levels(label)


def factor_names(label: str | Label) -> Mapping[str, str]:
    """The display names of factors in the label's family, by factor. Factors without a display name are left out."""
    return family_of(label).factor_names


@functools.cache
def every_label() -> tuple[str, ...]:
    """The texts of all labels of the S/R/G family, in the order of its grammar."""
    return tuple(map(str, family_of("").labels()))


def label_identity(label: str | Label) -> str:
    """A text that identifies the code of a label's mixer. It is part of a job.

    It is :func:`family_identity`, followed by the result of the family's method ``identity`` unless this is None. Such
    a result is, for example, a hash of a user's module. For a hybrid, :func:`family_identity` is followed by the
    identities of the labels of its layers. Raises ``LabelError`` if the code is not available here.
    """
    label = as_label(label)
    family = family_of(label)
    if is_pattern(str(label)):
        return f"{family_identity(family)} of {' and '.join(map(label_identity, part_texts(str(label))))}"
    of_label = family.identity(label)
    return family_identity(family) if of_label is None else f"{family_identity(family)}+{of_label}"


@functools.cache
def own_modules(label: str) -> tuple[str, ...]:
    """The modules of madbench that compute this label but not every label of its family.

    Empty if the text is no label.
    """
    try:
        return tuple(family_of(label).own_modules(parse(label)))
    except LabelError:
        return ()


def check_code(labels: Iterable[str | Label]) -> None:
    """Raise ``LabelError`` for the first label whose code is not available here.

    Commands call this before other work.
    """
    for label in labels:
        label_identity(label)


def label_code(label: str | Label) -> dict[str, Any] | None:
    """The code listing (:mod:`madbench.identity.listing`) of a label's mixer. None if madbench contains the mixer."""
    family = family_of(label)
    if code := REGISTRY.code(family.name):
        return code
    return family.code(as_label(label))
