"""Texts that name a mixer of another family than theirs: ``mamba3``, ``cd:kda`` or ``fla:S-p``."""

from __future__ import annotations

import difflib
import functools
import re

from madbench.errors import LabelError, MadbenchError
from madbench.labels.diagnosis import SHOWN, point_at, show
from madbench.labels.registry import families, family_of


def problem_elsewhere(text: str) -> str | None:
    """What to say of a text that is no label, where its mixer is one of another family; else None."""
    prefix, colon, body = text.partition(":") if ":" in text else ("", "", text)
    if not body or len(text) > SHOWN:
        return None
    named, is_family = _mixers(), colon and prefix in families()
    own = {_key(name) for name in _by_family().get(prefix, ())} if is_family else set()
    name, rest = next(((body[:end], body[end:]) for end in _ends(body) if _key(body[:end]) in named), ("", ""))
    if _key(name) in own:
        return None
    suggested = [f"{label}{rest}" if _is_label(f"{label}{rest}") else label for label in named.get(_key(name), ())]
    suggested = [label for label in suggested if not is_family or not label.startswith(f"{prefix}:")]
    if colon and not suggested and _is_label(body) and not (is_family and _begins_label(f"{prefix}:{body[0]}")):
        name, suggested = body, [body]
    # of two letters too much is near, and with a dot it is the place of a module
    name_alone = re.split("[-!]", body)[0]
    if is_family and not suggested and len(_key(name_alone)) > 2 and "." not in name_alone:
        name = name_alone
        near = difflib.get_close_matches(_key(name), named, n=1, cutoff=0.8)
        suggested = [label for label in named[near[0]] if near[0] not in own] if near else []
    if not suggested:
        return None
    where = f"{prefix}: has no" if is_family else "a label begins with its family; no"
    what = f"{where} {show(name)!r}; did you mean {' or '.join(map(repr, suggested))}? Named mixers: {_listed()}"
    return point_at(text, len(prefix) + len(colon), what)


def _ends(body: str) -> list[int]:
    """Where a name that begins a body may end, the longest first."""
    ends = [match.start() for match in re.finditer("[-!]|$", body.removesuffix("!"))]
    return ends[::-1]


def _key(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _is_label(text: str) -> bool:
    try:
        family_of(text).parse(text)
    except LabelError:
        return False
    return True


def _begins_label(text: str) -> bool:
    """Whether a label of the family that a text names begins with it, as its family says, or its labels show."""
    try:
        family = family_of(text)
        if begins := getattr(family, "begins", None):
            return begins(text)
        return any(str(label).startswith(text) for label in getattr(family, "labels", tuple)())
    except MadbenchError:  # of a package that cannot be loaded, or fails
        return False


@functools.cache
def _mixers() -> dict[str, list[str]]:
    """Labels of named mixers, of all families, by name without case and hyphens."""
    labels: dict[str, list[str]] = {}
    for mixers in _by_family().values():
        for name, label in mixers.items():
            of_name = labels.setdefault(_key(name), [])
            of_name += [label] * (label not in of_name)
    return labels


@functools.cache
def _by_family() -> dict[str, dict[str, str]]:
    mixers = {}
    for name in families():
        try:
            mixers[name] = dict(getattr(family_of(f"{name}:" if name else ""), "mixers", {}))
        except MadbenchError:  # of a package that cannot be loaded
            continue
    return mixers


def _listed() -> str:
    of_others = [mixers for name, mixers in _by_family().items() if name and mixers]
    return "; ".join(", ".join(dict.fromkeys(mixers.values())) for mixers in of_others)
