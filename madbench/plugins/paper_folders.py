"""The folders of papers, and the files in these folders. They are found without importing a paper's code.

A paper's folder holds ``paper.yaml`` and may hold its claims and published numbers, sets of labels in ``variants/`` and
profiles in ``profiles/SUITE/``. The folder of an installed paper is that of the module that its entry point names.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from madbench import config
from madbench.errors import ConfigError
from madbench.plugins.registry import Registry, entry_point_name, folder_of, resolve, wrap_load_errors

GROUP = "madbench.papers"
FILE = "paper.yaml"


def built_in() -> dict[str, Path]:
    """The file ``paper.yaml`` of each built-in paper, by the paper's name."""
    return {path.parent.name: path for path in sorted(config.PAPERS.glob(f"*/{FILE}"))}


def fault_of_name(name: str) -> str:
    """The reason why a paper cannot have the name ``name``. Empty if the name is valid."""
    return "" if name.isidentifier() else "a paper's name is a word of letters, digits and _"


def _load(name: str, value: str) -> Any:
    with wrap_load_errors(entry_point_name("paper", name, value), ConfigError):
        return resolve(value)


REGISTRY: Registry[Any] = Registry(
    GROUP,
    "paper",
    fault_of_name=fault_of_name,
    load=_load,
    texts=(),  # the value is a module
    built_in=lambda: {name: str(path) for name, path in built_in().items()},
)
"""The registry of papers, by name. It maps a built-in paper to the path of its ``paper.yaml``, which
:func:`madbench.papers.load_paper` reads, and an installed paper to the module that its entry point names."""


@functools.cache
def paper_folders() -> dict[str, Path]:
    """The folder of each paper, by the paper's name, built-in papers first. Papers without a folder are left out."""
    folders = {name: path.parent for name, path in built_in().items()}
    packages = {name: folder_of(point) for name, point in REGISTRY.points.items() if name not in folders}
    return folders | {name: folder for name, folder in packages.items() if folder is not None}


def files_of_papers(folder: str) -> dict[str, Path]:
    """The YAML files in the subfolder ``folder`` of all papers, such as ``variants``: file name without suffix to path.

    If two papers have a file of the same name, the file of the first paper is used.
    """
    files: dict[str, Path] = {}
    for paper in paper_folders().values():
        for path in sorted((paper / folder).glob("*.yaml")):
            files.setdefault(path.stem, path)
    return files
