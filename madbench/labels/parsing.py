"""From text to a label, and what its family says of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madbench.errors import FamilyError, LabelError
from madbench.labels.elsewhere import problem_elsewhere
from madbench.labels.plugins import Guarded
from madbench.labels.protocol import Explanation
from madbench.labels.registry import Family, Label, family_code, family_identity, family_of, loaded_families


def text_of(value: Any) -> str:
    """A label's text: as it is, or of a value that a family has labels for, as of the class of a user's module."""
    if isinstance(value, str):
        return value
    failed = None
    for family in loaded_families().values():
        try:
            if (text := getattr(family, "text_of", lambda value: None)(value)) is not None:
                return text
        except FamilyError as error:
            failed = error
    raise failed or LabelError(f"a label is text such as 'G-cg-q-12o', got {type(value).__name__}")


def texts_of(values: Any) -> tuple[str, ...]:
    """The texts of one label or set of labels, or of several (:func:`text_of`)."""
    is_one = isinstance(values, str) or not isinstance(values, Iterable)
    return tuple(map(text_of, (values,) if is_one else values))


def as_label(value: Any) -> Label:
    """The label of its text or of what stands for it, which may be it already."""
    return parse(value) if isinstance(value, str) or callable(value) else value


def parse(text: str) -> Label:
    """The label that a text names, by the parser of its family; ``str`` of it is the canonical text.

    Of a class that makes a user's module it is the label of that (:func:`text_of`).

    Raises ``LabelError``, whose message points at the character at fault.
    """
    text = text_of(text)
    try:
        return family_of(text).parse(text)
    except FamilyError:
        raise
    except LabelError:
        if problem := problem_elsewhere(text):
            raise LabelError(problem) from None
        raise


def unreadable(label: str) -> str:
    """Why a stored label cannot be read here, as its family is not installed or fails; empty where it can."""
    try:
        parsed = parse(label)
        factors(parsed), levels(parsed)
        if isinstance(family := family_of(parsed), Guarded):  # those of this package answer, some after measuring
            getattr(family, "traits", str)(parsed)
    except LabelError as error:
        return (str(error).splitlines() or [type(error).__name__])[-1].strip()  # a package's may say nothing
    return ""


def is_shown_as_stored(label: str) -> bool:
    """True for a label whose runs are shown by what is stored of them alone, without the label's code.

    Such are labels that name code, which is never imported to read, those of families that are not installed or cannot
    be loaded, and those of families that need a package that is not here.
    """
    try:
        return bool(getattr(family_of(label), "names_code", False) or missing_package(label))
    except LabelError:
        return True


def missing_package(label: str) -> str:
    """The name of a package that a label's mixers need and that cannot be imported here; empty if there is none."""
    return getattr(family_of(label), "missing_package", str)()


def factors_of_text(label: str) -> Mapping[str, str]:
    """The factors of a label by its text; empty if its family is not installed or fails."""
    try:
        return factors(parse(label))
    except LabelError:
        return {}


def factors(label: Label) -> Mapping[str, str]:
    """What the label is, factor by factor; a factor without a meaning for it is left out."""
    return family_of(label).factors(label)


def factors_in(family: Family, label: Label) -> Mapping[str, str] | None:
    """The factors of a label as a family has them: of its own labels, and of another's where it can, or None."""
    if family_of(label) is family:
        return family.factors(label)
    return getattr(family, "factors_of_other", lambda other: None)(label)


def diff(a: Label, b: Label) -> tuple[str, ...]:
    """The factors that both labels have and in which they differ; of two families, the family and all their factors.

    A family that has a place for labels of another one (``factors_of_other``) compares them as its own.
    """
    for family in (family_of(a), family_of(b)):
        mine, theirs = factors_in(family, a), factors_in(family, b)
        if mine is not None and theirs is not None:
            return tuple(name for name in mine if name in theirs and mine[name] != theirs[name])
    return ("family", *dict.fromkeys((*factors(a), *factors(b))))


def explain(label: Label) -> Sequence[Explanation]:
    """A row a letter, then what follows from the letters that are absent."""
    return family_of(label).explain(label)


def levels(label: Label) -> Mapping[str, str]:
    """What a contrast calls each factor of the label: its family's ``levels``, or else its ``factors``."""
    family = family_of(label)
    return getattr(family, "levels", family.factors)(label)


def factor_names(label: str | Label) -> Mapping[str, str]:
    """Names that people see, of the factors of the label's family that have another name inside."""
    return getattr(family_of(label), "factor_names", {})


@functools.cache
def every_label() -> tuple[str, ...]:
    """Every label without a prefix, in the order of its grammar."""
    return tuple(map(str, family_of("").labels()))


def label_identity(label: str | Label) -> str:
    """What a job says of the label's operator: :func:`family_identity`, and what its family's ``identity`` adds.

    That is of one label alone, such as a hash of a user's module.
    """
    family = family_of(label)
    own = getattr(family, "identity", None)
    return f"{family_identity(family)}+{own(as_label(label))}" if own else family_identity(family)


def label_code(label: str | Label) -> dict[str, Any] | None:
    """The list of code of a label's mixer (:mod:`madbench.identity.listing`); None if it is this package's own."""
    family = family_of(label)
    if code := family_code(family):
        return code
    own = getattr(family, "code", None)
    return own(as_label(label)) if own else None
