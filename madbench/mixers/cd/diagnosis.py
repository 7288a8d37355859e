"""Error messages for invalid ``cd:`` labels: the wrong segment, what is expected, and the nearest valid label."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from madbench.labels.diagnosis import SHOWN, point_at
from madbench.mixers.cd.grammar import (
    ALIASES,
    GATES,
    MIRRORS,
    NORMS,
    PREFIX,
    PRESETS,
    READOUTS,
    SCALINGS,
    SEGMENTS,
    BrokenRule,
    CdLabel,
    fields_in,
    fields_of,
    preset_of,
    spell,
)  # fmt: skip

DEFAULTS = {"bn": "1/sqrt(n)", "b1n": "1/sqrt(n)", "i": "I", "1": "1", "1.": "1", "1.0": "1", "1.00": "1", "1.000": "1"}
"""Segments that a user may write for a default, and the default. Labels never spell a default."""
FEATURES = "pcugo"
FIRST = (*READOUTS, *PRESETS, *ALIASES)
REST = (*GATES, *MIRRORS, *(gate + mirror for gate in GATES for mirror in MIRRORS), *SCALINGS, *NORMS)
ORDER = "readout, A, b, eta, features, v, !"
EXAMPLES = "labels look like 'cd:exp-sum', 'cd:mamba2-cg' or 'cd:id-smhk1-bwn-cug'"


def message(text: str) -> str:
    """The error message for an invalid ``cd:`` label: a caret at the error, the reason, and a similar valid label."""
    (position, problem), suggestion = _fault(text), nearest(text)
    return point_at(text, position, f"{problem}; {f'did you mean {suggestion!r}?' if suggestion else EXAMPLES}")


def _fault(text: str) -> tuple[int, str]:
    """The position of the first error in an invalid label, and a description of the error."""
    body = text[len(PREFIX) :].removesuffix("!")
    foreign = re.search(r"[^a-zA-Z0-9.-]", body)
    end = foreign.start() if foreign else len(body)
    places = {"!": len(text) - 1}  # position of each kind of segment
    last, before, position = "", "", 0
    for segment in body.split("-"):
        if position + len(segment) > end:
            expected = (
                "'!' is the last character" if body[end] == "!" else "a label has letters, digits, '.', '-' and '!'"
            )
            return len(PREFIX) + end, f"unexpected {body[end]!a}, {expected}"
        offset, problem = _fault_of(segment, last, before)
        if problem:
            return len(PREFIX) + position + offset, problem
        kind_and_fields = fields_of(segment)
        last = kind_and_fields[0] if kind_and_fields else "eta"
        places[last] = len(PREFIX) + position
        before, position = segment, position + len(segment) + 1
    try:
        CdLabel(**fields_in(text))
    except BrokenRule as rule:
        return places.get(rule.segment, len(PREFIX)), rule.problem
    raise AssertionError(f"{text!r} is a label")


def _fault_of(segment: str, last: str, before: str) -> tuple[int, str]:
    """The offset of the error in a segment, and its description. The description is empty for a valid segment.

    ``before`` is the text of the preceding segment. ``last`` is the kind of the preceding segment, one of ``SEGMENTS``.
    Both are empty for the first segment.
    """
    fields, folded = fields_of(segment), segment.lower()
    if not last:
        if preset_of(segment) or segment in READOUTS:
            return 0, ""
        if fields:
            return 0, f"{segment!r} ({fields[0]}) cannot come first; a label begins with a readout or a preset"
        if folded in READOUTS:
            return 0, f"wrong case, {folded!r} is written in lower case"
        return 0, "unknown readout or preset" if segment else "expected a readout or a preset"
    if not segment:
        return 0, "an empty segment; write one '-' between two segments and none at the end"
    if preset_of(segment):
        return 0, f"the preset {segment!r} can only come first"
    if fields and preset_of(before) and fields[0] not in ("features", "v"):
        return 0, f"{segment!r} ({fields[0]}) after the preset {before!r}; only features, v and ! can follow a preset"
    if fields and fields[0] == last:
        return 0, f"a second {last} after {before!r}"
    if fields and SEGMENTS.index(fields[0]) < SEGMENTS.index(last):
        return 0, f"wrong order, {segment!r} ({fields[0]}) comes before {before!r} ({last}); the order is {ORDER}"
    if fields:
        return 0, ""
    if folded in DEFAULTS:
        return 0, f"{DEFAULTS[folded]!r} is the default, leave it out"
    if fields_of(folded):
        return 0, f"wrong case, {folded!r} is written in lower case"
    if re.match("[0-9.]", segment):
        return 0, "a constant gate is above 0 and below 2, with at most 3 digits after the point and no trailing 0"
    if re.fullmatch(f"(?:{'|'.join(MIRRORS)})(?:{'|'.join(GATES)}|[0-9.]+)", segment):
        return 3, f"wrong order, the gate {segment[3:]!r} comes before the mirror {segment[:3]!r}"
    if _is_features(segment):
        return _fault_of_features(segment)
    return 0, f"unknown segment; expected {', '.join(SEGMENTS[SEGMENTS.index(last) + 1 :]) or 'the end'}"


def _is_features(segment: str) -> bool:
    """True if an invalid segment was probably meant as feature letters, such as ``cug``.

    At least half of its letters are features, and no segment of another kind is similar.
    """
    return 2 * sum(letter in FEATURES for letter in segment) >= len(segment) and not _close(segment, REST)


def _fault_of_features(segment: str) -> tuple[int, str]:
    for i, letter in enumerate(segment):
        earlier = segment[:i]
        if letter not in FEATURES:
            return i, f"unknown feature {letter!r}, expected p, c, u, then g or o"
        if letter in earlier:
            return i, f"a second {letter!r}"
        later = next((other for other in earlier if FEATURES.index(other) > FEATURES.index(letter)), "")
        if later:
            return i, f"wrong order, {letter!r} comes before {later!r}"
    raise AssertionError(f"{segment!r} is valid")


def nearest(text: str) -> str | None:
    """The valid label nearest to an invalid text, corrected segment by segment. It may begin with a preset.

    None if no valid label is similar.
    """
    if len(text) > SHOWN:
        return None
    folded = unicodedata.normalize("NFKC", text).lower().removeprefix(PREFIX)
    segments = re.findall("[a-z0-9.]+", folded)
    segments.sort(key=lambda segment: segment not in FIRST)  # segments that can only come first are moved to the front
    first = next(iter(_close(segments[0], FIRST)), None) if segments else None
    if not first:
        return None
    wanted: dict[str, Any] = {"over": "!" in text}
    for segment in segments[1:]:
        fields = _corrected(segment)
        if fields is None:
            return None
        wanted |= {name: value for name, value in fields.items() if not wanted.get(name)}
    label = _mend(fields_in(PREFIX + first) | {name: value for name, value in wanted.items() if value})
    if not label:
        return None
    with_preset = spell(wanted | {"rank": label.rank, "over": label.over}, first)
    is_same = preset_of(first) and label == _mend(fields_in(with_preset), 0)
    return with_preset if is_same else str(label)


def _corrected(segment: str) -> Mapping[str, Any] | None:
    """The fields that the user probably meant to set by ``segment``, which is not the first segment of the label.

    Empty if the segment names a default or can only come first. None if no valid segment is similar.
    """
    if segment in DEFAULTS or segment in FIRST:
        return {}
    mirror_first = re.fullmatch(f"({'|'.join(MIRRORS)})(.+)", segment)
    texts = [segment, segment[:5].rstrip("0")]
    if mirror_first:
        texts.append(mirror_first[2] + mirror_first[1])
    if _is_features(segment):
        texts.append("".join(letter for letter in FEATURES if letter in segment))
    texts += _close(segment, REST)
    return next((fields[1] for text in texts if (fields := fields_of(text))), None)


def _close(segment: str, options: tuple[str, ...]) -> list[str]:
    return difflib.get_close_matches(segment, options, n=1, cutoff=0.6)


def _mend(values: Mapping[str, Any], depth: int = 4) -> CdLabel | None:
    """The label with the fields ``values``. If they break a rule, the repairs that the rule suggests are tried.

    ``depth`` is the largest number of repairs in a row. None if no repair gives a valid label.
    """
    try:
        return CdLabel(**values)
    except BrokenRule as rule:
        changed = (_mend({**values, **change}, depth - 1) for change in rule.repairs) if depth else ()
        return next(filter(None, changed), None)
