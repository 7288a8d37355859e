"""Texts that name a mixer of another family than theirs, such as ``cd:kda``, or several as a hybrid: ``S-p|cd:gdn``."""

from __future__ import annotations

import difflib
import functools
import re

from madbench.errors import LabelError, MadbenchError
from madbench.labels.diagnosis import SHOWN, point_at, show
from madbench.labels.registry import families, family_of

MODULE = "my:"
"""Beginning of labels whose parser imports code, which no search for other labels does."""
_LONGEST_HYBRID = 300  # characters of a text in which labels are looked for


def problem_elsewhere(text: str) -> str | None:
    """What to say of a text that is no label, where its mixer is one of another family; else None."""
    if problem := _problem_of_hybrid(text):
        return problem
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
    options = [f"{label!r}{f', which needs {needs}' if (needs := _needs(label)) else ''}" for label in suggested]
    what = f"{where} {show(name)!r}; did you mean {' or '.join(options)}? Named mixers: {_listed()}"
    return point_at(text, len(prefix) + len(colon), what)


def _problem_of_hybrid(text: str) -> str | None:
    """A sentence on a text that joins labels to one model, or asks for a hybrid in words; None for other texts."""
    if text.startswith(MODULE):
        return None
    labels, end, position = [], 0, None
    prefixes = "|".join(f"{re.escape(name)}:" for name in families() if name)
    part_of_text = f"-*(?:[0-9]+[x*]?(?=[A-Za-z]))?((?:{prefixes})?(?:(?!->|--)[A-Za-z0-9.!-])+)"
    for part in re.finditer(part_of_text, text[:_LONGEST_HYBRID]):
        label = part[1]
        if label.startswith(MODULE) or _key(label) in _mixers() or _is_label(label):
            position = end if labels and position is None else position
            labels.append(label)
            end = part.end()
    word = re.search("hybrid|alternat|interleav", text, re.IGNORECASE)
    if len(labels) < 2 and not word:
        return None
    if position is None:
        position = word.start() if word else 0
    parts = ["there are no hybrids: a label is one mixer, the same in every block"]
    if len(labels) > 1:
        parts.append(f"{' '.join(dict.fromkeys(labels))} as separate words are trained each by itself")
    parts.append(f"a module of your own ({MODULE}) can hold several, see madbench new module NAME")
    return point_at(text, position, "; ".join(parts))


def _needs(label: str) -> str:
    """The device that the mixers of a label's family need, such as a CUDA GPU; empty if they run anywhere."""
    return getattr(family_of(label), "needs", "")


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
    texts = []
    for name, mixers in _by_family().items():
        if name and mixers:
            needs = _needs(f"{name}:")
            labels = ", ".join(dict.fromkeys(mixers.values()))
            texts.append(f"{labels} ({'they need' if len(mixers) > 1 else 'it needs'} {needs})" if needs else labels)
    return "; ".join(texts)
