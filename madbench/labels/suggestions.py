"""Error messages for texts that are no labels but show which label is meant, such as ``cd:kda`` or ``S-p|cd:gdn``.

The text names a mixer with the prefix of another family, or several mixers, or a class without a prefix.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

from madbench.errors import LabelError, MadbenchError
from madbench.labels.diagnosis import SHOWN, escape, point_at
from madbench.labels.family import LoadedFamily
from madbench.labels.patterns import OF_PATTERNS, SEPARATOR
from madbench.labels.registry import OF_NAMES, families, family_name, family_of, loaded_families, name_key

MODULE = "my:"
"""The prefix of labels whose parser imports code. A search for suggestions never parses such labels."""
_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,9}(\(.*\))?"
"""A dotted path of a class, which may have arguments. A label has no dot outside of parentheses."""
_LONGEST_HYBRID = 300  # number of characters at the start of a text that are searched for labels


def message_with_suggestion(text: str) -> str | None:
    """Return the error message that suggests a label in place of ``text``, which is no label.

    Labels are suggested if ``text`` names a mixer of another family, resembles a mixer's name, or describes a hybrid.
    The prefix ``my:`` is suggested if ``text`` is the dotted path of a class. None for any other text.
    """
    loaded = loaded_families()
    labels_by_name = _labels_by_name(loaded)
    if problem := _problem_of_hybrid(text, labels_by_name):
        return problem
    if re.fullmatch(_DOTTED, text) and not _is_label(text.partition(".")[0]):
        return point_at(text, 0, f"a class of your own has {MODULE} before its path: {MODULE}{text}")
    prefix, colon, body = text.partition(":") if ":" in text else ("", "", text)
    # The parsers of the families OF_NAMES and OF_PATTERNS point at the error themselves.
    if not body or len(text) > SHOWN or family_name(text) in (OF_NAMES, OF_PATTERNS):
        return None
    is_family = colon and prefix in families()
    names_of_family = set(map(name_key, loaded[prefix].mixers)) if is_family and prefix in loaded else set()
    name, rest = next(
        ((body[:end], body[end:]) for end in _ends(body) if name_key(body[:end]) in labels_by_name), ("", "")
    )
    if name_key(name) in names_of_family:
        return None
    suggestions = [_with_rest(label, rest) for label in labels_by_name.get(name_key(name), ())]
    suggestions = [label for label in suggestions if not is_family or not label.startswith(f"{prefix}:")]
    if colon and not suggestions and _is_label(body) and not (is_family and _begins_label(f"{prefix}:{body[0]}")):
        name, suggestions = body, [body]
    # names of up to two letters resemble too many others, and a name with a dot is a module's path
    name_alone = re.split("[-!]", body)[0]
    if (is_family or not colon) and not suggestions and len(name_key(name_alone)) > 2 and "." not in name_alone:
        name = name_alone
        close_names = difflib.get_close_matches(name_key(name), labels_by_name, n=1 if is_family else 2, cutoff=0.8)
        if not is_family:
            names_of_family = set(map(name_key, loaded[""].mixers))  # suggested by the parser of S/R/G
        suggestions = [label for key in close_names if key not in names_of_family for label in labels_by_name[key]]
    if not suggestions:
        return None
    suggestions.sort(key=lambda label: (bool(_needs(label)), ":" in label))  # first those that train on any device
    operator = next(
        (label for label in labels_by_name.get(name_key(name), ()) if name_key(label) == name_key(name)), ""
    )
    if is_family:
        where = f"{prefix}: has no {escape(name)!r}"
    elif colon:
        where = f"unknown family {escape(prefix)!r} before the colon"
    elif rest and operator:
        where = f"{operator} takes no letters"
    else:
        where = f"there is no label {escape(name)!r}"
    options = [f"{label!r}{f', which needs {needs}' if (needs := _needs(label)) else ''}" for label in suggestions]
    what = f"{where}; did you mean {' or '.join(options)}? madbench ls operators lists all"
    return point_at(text, len(prefix) + len(colon), what)


def _problem_of_hybrid(text: str, names: Collection[str]) -> str | None:
    """Return the error message for a text that joins several labels, or has a word such as ``hybrid``.

    ``names`` has the :func:`name_key` of every named mixer. None for any other text, and for a text with ``/``, whose
    parser reports the error itself.
    """
    if text.startswith(MODULE) or SEPARATOR in text:
        return None
    labels: list[str] = []
    end, position = 0, None
    prefixes = "|".join(f"{re.escape(name)}:" for name in families() if name)
    part_of_text = f"-*(?:[0-9]+[x*]?(?=[A-Za-z]))?((?:{prefixes})?(?:(?!->|--)[A-Za-z0-9.!-])+)"
    for part in re.finditer(part_of_text, text[:_LONGEST_HYBRID]):
        label = part[1]
        if label.startswith(MODULE) or name_key(label) in names or _is_label(label):
            position = end if labels and position is None else position
            labels.append(label)
            end = part.end()
    word = re.search("hybrid|alternat|interleav", text, re.IGNORECASE)
    if len(labels) < 2 and not word:
        return None
    if position is None:
        position = word.start() if word else 0
    different = list(dict.fromkeys(labels))
    pattern = SEPARATOR.join(different) if len(different) > 1 else "3xKDA/S-p"
    parts = [f"the layers of a hybrid are separated by {SEPARATOR!r}, with counts before an x: {pattern}"]
    if len(labels) > 1:
        parts.append(f"to train each alone, write {' '.join(different)} as separate words")
    return point_at(text, position, "; ".join(parts))


def _needs(label: str) -> str:
    """The hardware that the mixers of a label's family need, such as ``a CUDA GPU``. Empty if they run anywhere."""
    return family_of(label).needs


def _ends(body: str) -> list[int]:
    """The positions in ``body``, a label without its prefix, at which a mixer's name may end. The last comes first."""
    ends = [match.start() for match in re.finditer("[-!]|$", body.removesuffix("!"))]
    return ends[::-1]


def _with_rest(label: str, rest: str) -> str:
    """The label extended by ``rest``, as letters or as an argument in parentheses. ``rest`` starts with ``-`` or ``!``.

    ``label`` alone if neither form is a valid label.
    """
    return next((text for text in (f"{label}{rest}", f"{label}({rest[1:]})") if _is_label(text)), label)


def _is_label(text: str) -> bool:
    try:
        family_of(text).parse(text)
    except LabelError:
        return False
    return True


def _begins_label(text: str) -> bool:
    """True if some label of the text's family begins with ``text``. False if the family cannot be loaded."""
    try:
        return family_of(text).begins(text)
    except MadbenchError:  # the package cannot be loaded, or fails
        return False


def _labels_by_name(loaded: Mapping[str, LoadedFamily]) -> dict[str, list[str]]:
    """The labels of each named mixer of these families, by :func:`name_key` of the mixer's name or title."""
    labels: dict[str, list[str]] = {}
    for mixers in [*(family.mixers for family in loaded.values()), family_of(f"{OF_NAMES}:").titles]:
        for name, label in mixers.items():
            labels_of_name = labels.setdefault(name_key(name), [])
            if label not in labels_of_name:
                labels_of_name.append(label)
    return labels
