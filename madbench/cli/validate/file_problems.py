"""The search for all problems in the content of a YAML file, for ``madbench validate``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from madbench.errors import MadbenchError


def find_problems(
    load: Callable[[Mapping[str, Any]], Any], mapping: Mapping[str, Any], sound: Mapping[str, Any], path: Path
) -> list[str]:
    """Find all errors in ``mapping``, the content of the file ``path``.

    Return one message per error, which names the file. ``load`` reads the content and raises the first error. After
    each error, a part of the content that the error names is repaired, and the content is loaded again, until there is
    no error or no repair changes it.

    A repair replaces the part by its value in ``sound``, a valid content with all required keys, or removes the part if
    ``sound`` has no such value. It never removes the only part of an inner list or mapping, because being empty is
    often an error, too.
    """

    def error_of(content: Mapping[str, Any]) -> str:
        try:
            load(content)
        except MadbenchError as error:
            names_file = str(error).startswith(str(path)) or str(error).endswith(f"in {path}")
            return str(error) if names_file else f"{path}: {error}"
        return ""

    problems: list[str] = []
    message = error_of(mapping)
    while message and message not in problems:
        problems.append(message)
        changes = _repairs(mapping, sound, message.removeprefix(str(path)))
        mapping = next((change for change in changes if error_of(change) != message), mapping)
        message = error_of(mapping)
    return problems


def _repairs(node: Any, sound: Any, message: str, name: str = "") -> Iterator[Any]:
    """Yield copies of ``node``, a list or mapping. In each, one part that the error ``message`` names is repaired.

    The part is replaced by the same part of ``sound``, or removed if ``sound`` does not have it. A copy with several
    parts that ``node`` lacks comes first, then copies with repaired inner parts. ``name`` is the key of ``node`` in the
    mapping that contains it.
    """
    is_list = isinstance(node, list)
    parts = dict(enumerate(node)) if is_list else dict(node)
    sound = sound if isinstance(sound, type(node)) else type(node)()
    absent = (
        {} if is_list else {key: value for key, value in sound.items() if key not in parts and _names(message, key)}
    )
    if len(absent) > 1:
        yield {**parts, **absent}
    for key in parts if is_list else {**parts, **sound}:
        replacement = next(iter(sound), None) if is_list else sound.get(key)
        if is_list and isinstance(replacement, float):
            replacement += key * 1e-9  # differs from item to item, because a list may not repeat a learning rate
        changes: list[Any] = []
        if isinstance(parts.get(key), (list, dict)):
            changes += _repairs(parts[key], replacement, message, str(key))
        if is_list:
            is_named = f"[{key}]" in message or ("[" not in message and name in message)
        else:
            is_named = _names(message, key)
        is_last = len(parts) == 1 and key in parts and (is_list or name)
        if is_named and not (is_last and replacement is None) and replacement != parts.get(key):
            changes.append(replacement)
        for change in changes:
            repaired = {**parts, key: change}
            if change is None:
                del repaired[key]
            yield [*repaired.values()] if is_list else repaired


def _names(message: str, key: object) -> bool:
    """True if ``message`` has ``key`` as a whole word."""
    return re.search(rf"(?<!\w){re.escape(str(key))}(?!\w)", message) is not None
