"""Source code of users and plugins in the folders of archived runs, stored as text that Python cannot import.

``source/models/helper.py.txt`` in a run's folder is the file ``models/helper.py`` of the run's code listing
(:mod:`madbench.identity.listing`). It is for people to read; madbench does not read it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from madbench.details import Details
from madbench.files import is_name
from madbench.identity.listing import recorded_files
from madbench.jobs import WEIGHTS

SOURCE = "source"
_SUFFIX = ".txt"


def is_known(name: str) -> bool:
    """True for the name of a file that madbench keeps in a run's folder besides its record: weights or source code."""
    return name == WEIGHTS or is_source(name)


def is_source(name: str) -> bool:
    """True if ``name``, of a file in a run's folder, is the name of source code that is stored as text."""
    return name.startswith(f"{SOURCE}/") and name.endswith(_SUFFIX)


def sources_of(details: Details) -> dict[str, bytes | None]:
    """The content of the source files that the ``details`` of a record list, by their names in the run's folder.

    The content is None if the file is missing on this machine or has changed since the run.
    """
    code = details.get("code")
    lists = code.values() if isinstance(code, Mapping) else ()
    return {_name(place): content for code_list in lists for place, content in recorded_files(code_list).items()}


def places_of(names: Iterable[str]) -> list[str]:
    """The original paths of source files, such as ``models/helper.py``, from their names in a run's folder. Sorted."""
    return sorted({name.removeprefix(f"{SOURCE}/").removesuffix(_SUFFIX) for name in names})


def _name(place: str) -> str:
    parts = PurePosixPath(place).parts
    return f"{SOURCE}/{'/'.join(part for part in parts if is_name(part))}{_SUFFIX}"
