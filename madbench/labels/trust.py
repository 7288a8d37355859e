"""The labels whose code may be imported. The code that a label names is not imported if the label comes from data.

A label of a user's module, such as ``my:my_mixers.MyMixer``, names code. Its code is imported only for

- a label that a user typed on the command line or passed to a function of madbench;
- a label of a grid or of a set of labels that a user named on the command line of a verb that trains, or passed to a
  function that trains, unless the file lies in a results folder or in an unpacked archive;
- a label that an entry names: a line in the user's ``mixers.yaml``, or an entry point of an installed package;
- a trained model that the user trusts by name.

Labels in records, checkpoints, configurations, claims and registrations are not trusted. A worker process imports only
the code of the labels that its driver sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madbench.config import read_yaml
from madbench.errors import LabelError, MadbenchError
from madbench.labels.parsing import parse, texts_of
from madbench.labels.patterns import part_texts
from madbench.labels.registry import family_of
from madbench.labels.sets import expand_braces, find_set


@dataclass
class _Trust:
    labels: set[str] = field(default_factory=set)  # canonical labels
    includes_entries: bool = True  # True if labels that entries of the user or of packages name are trusted too


_OF_PROCESS = _Trust()


def forget_allowed() -> None:
    """Withdraw the permission of all labels that were allowed before. Called when a command begins."""
    _OF_PROCESS.labels.clear()


def allow(labels: Iterable[str]) -> None:
    """Allow importing the code that these canonical labels name, also for the layers of hybrids."""
    _OF_PROCESS.labels.update(_with_parts(labels))


def _with_parts(labels: Iterable[str]) -> list[str]:
    """The labels themselves, and the labels of the layers of each hybrid among them."""
    return [text for label in labels for text in (label, *part_texts(label))]


def is_allowed(label: str) -> bool:
    """True if this canonical label was allowed, for example by :func:`allow` or :func:`allow_typed`.

    Labels that only an entry names, such as a line of the user's ``mixers.yaml``, count as not allowed here. The
    label's family decides about them.
    """
    return label in _OF_PROCESS.labels


def importable_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The ``labels`` that name code and have permission to import it, sorted.

    Each hybrid in ``labels`` stands for the labels of its layers.
    """
    return tuple(sorted(filter(_may_import, {part for label in labels for part in part_texts(label)})))


def _may_import(label: str) -> bool:
    try:
        family = family_of(label)
        return family.names_code and family.may_import(parse(label))
    except LabelError:  # the process that trains the label reports it
        return False


def trusts_entries() -> bool:
    """True if code may be imported because an entry names it.

    An entry is a line in the user's ``mixers.yaml``, or an entry point of an installed package. False within
    :func:`allow_only`.
    """
    return _OF_PROCESS.includes_entries


@contextmanager
def allow_only(labels: Iterable[str]) -> Iterator[None]:
    """Within a ``with`` block, allow importing only the code that ``labels`` name.

    Labels that entries such as the lines of the user's ``mixers.yaml`` name are refused too, unless ``labels`` has
    them. The block's end restores the earlier permissions.
    """
    before = (_OF_PROCESS.labels, _OF_PROCESS.includes_entries)
    _OF_PROCESS.labels, _OF_PROCESS.includes_entries = set(_with_parts(labels)), False
    try:
        yield
    finally:
        _OF_PROCESS.labels, _OF_PROCESS.includes_entries = before


def allow_typed(specs: str | type | Iterable[str | type], *, with_files: bool = False) -> None:
    """Allow importing the code of the labels that a user typed.

    ``specs`` is one or several of: a label, a set in braces, a neighborhood, a module class. If ``with_files`` is true,
    the labels in the files of ``@NAME`` and ``@FILE.yaml`` are allowed too, except for files in a data folder. An
    invalid spec is ignored, because the verb that uses the spec reports the error.
    """
    with suppress(MadbenchError):
        for spec in texts_of(specs):
            with suppress(MadbenchError):
                _allow_spec(spec, Path(), with_files, ())


def allow_labels_of_file(specs: Iterable[Any], path: Path) -> None:
    """Allow importing the code of labels that a file lists, unless the file lies in a data folder.

    ``specs`` are the labels and sets of labels in the file ``path``, which the user has named.
    """
    if not is_data_folder(path.parent):
        allow_typed([spec for spec in specs if isinstance(spec, str)], with_files=True)


def is_data_folder(folder: Path) -> bool:
    """True if a folder or one of its parents is a results folder or an unpacked archive, that is, contains runs."""
    places = {folder.absolute(), folder.resolve()}
    folders = {outer for place in places for outer in (place, *place.parents)}
    return any(next((outer / "runs").glob("*/job.json"), None) for outer in folders)


def _allow_spec(spec: str, folder: Path, with_files: bool, outer_files: tuple[Path, ...]) -> None:
    for text in expand_braces(spec):
        if not text.startswith("@"):
            for part in part_texts(text.removeprefix("~")):
                with suppress(MadbenchError):
                    if part.startswith("@"):
                        _allow_spec(part, folder, with_files, outer_files)
                    elif ":" in part:  # a label without a prefix never names code
                        allow([str(parse(part))])
        elif (
            with_files
            and (path := find_set(text[1:], folder).resolve()) not in outer_files
            and not is_data_folder(path.parent)
        ):
            for inner in read_yaml(path).get("labels") or ():
                _allow_spec(inner, path.parent, with_files, (*outer_files, path))
