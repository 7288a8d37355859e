"""Claims as sentences, such as ``my:gla > S on in_context_recall by 5``: parsing, and writing to a file of claims."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from madbench.analysis.claims import Claim, complete_claim, load_claims
from madbench.analysis.quantities import suite_of_column, unknown_column
from madbench.config import short_repr
from madbench.errors import ConfigError
from madbench.files import explain_os_errors, output_file, write_atomically

FORM = "[every] A > B on COLUMN[,COLUMN] [by NUMBER], or A >= B or A ~ B on COLUMN within NUMBER"
_SENTENCE = re.compile(
    r"(?P<every>every\s+)?(?P<contrast>.+?)(?:\s+(?P<first_word>by|within)\s+(?P<first_number>\S+))?"
    r"\s+on\s+(?P<columns>\S.*?)(?:\s+(?P<word>by|within)\s+(?P<number>\S+))?"
)


def parse_claim(sentence: str, name: str = "") -> tuple[Claim, dict[str, Any]]:
    """Parse a sentence ``CONTRAST on COLUMN[,COLUMN] [by NUMBER | within NUMBER]``, such as ``A > B on COLUMN``.

    Return the claim and its entry in a file of claims. The name of the claim is ``name``, by default made from the
    sentence. The contrasts are:

    - ``A > B``: A is better, by more than the number after ``by``, in the units of the column.
    - ``A ~ B`` or ``A = B``: A and B differ by less than the number after ``within``.
    - ``A >= B``: A is better than B, or worse by less than the number after ``within``.
    - ``FACTOR in LABELS``: for the pairs of these labels that differ only in this factor, the label with the factor is
      better.

    A and B are labels or sets of labels. The claim is about the mean over all pairs, or about each pair if the sentence
    begins with ``every``. ``by`` or ``within`` may also stand before ``on``. Raises ``ConfigError`` for other
    sentences, and for an unknown label or column.
    """
    match = _SENTENCE.fullmatch(sentence.strip())
    if match is None:
        raise ConfigError(f"{short_repr(sentence)}: expected {FORM}")
    columns = [part for part in re.split(r"[,\s]+", match["columns"]) if part and part != "and"]
    for column in columns:
        _check_column(sentence, column)
    sign = re.search(r" (>=|~|=) ", match["contrast"])
    is_equality = sign is not None
    if match["word"] and match["first_word"]:
        raise ConfigError(f"{short_repr(sentence)}: has two numbers; expected {FORM}")
    word, number = match["word"] or match["first_word"], match["number"] or match["first_number"]
    if is_equality != (word == "within"):
        needs = f"{sign[1]} needs a margin: within NUMBER" if sign else "within has no effect on '>'; write by NUMBER"
        raise ConfigError(f"{short_repr(sentence)}: {needs}")
    entry: dict[str, Any] = {"name": name or _name(sentence), "contrast": match["contrast"].strip()}
    entry |= {"sentence": sentence.strip(), "quantities": columns}
    if word:
        try:
            entry[word] = float(number)
        except ValueError:
            raise ConfigError(f"{short_repr(sentence)}: {word} {number}: expected a number") from None
        if is_equality and entry[word] <= 0:
            raise ConfigError(f"{short_repr(sentence)}: within {number}: expected a number above 0")
    if match["every"]:
        entry["judges"] = "every pair"
    fields_of_claim = {field.name for field in fields(Claim)}
    assert entry.keys() <= fields_of_claim
    return complete_claim(Claim(**{**entry, "quantities": tuple(columns)}), repr(sentence)), entry


def add_claim(entry: dict[str, Any], path: Path) -> int:
    """Append a claim to the file of claims ``path``, or create the file. Return the number of claims in the file.

    ``entry`` is the entry that :func:`parse_claim` returns. The content and the comments of the file are kept. Raises
    ``ConfigError`` if the file is invalid, has a claim of this name already, or has no line ``claims:``.
    """
    text, before = "", tuple[Claim, ...]()
    if path.exists():
        before, text = load_claims(path), path.read_text(encoding="utf-8")
        if entry["name"] in [claim.name for claim in before]:
            raise ConfigError(f"{path}: has a claim {short_repr(entry['name'])} already; give this one another --name")
        if not re.search(r"^claims:[ \t]*(#.*)?$", text, re.MULTILINE):
            raise ConfigError(f"{path}: expected a line 'claims:', with one list item per claim below it")
    indent = (re.search(r"^claims:[^\n]*\n(?:\s*#[^\n]*\n|\s*\n)*( *)- ", text, re.MULTILINE) or ["", "  "])[1]
    yaml_text = yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=10_000)
    lines = "".join(f"{indent}{line}\n" for line in yaml_text.splitlines())
    start = text if not text or text.endswith("\n") else text + "\n"
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output_file(path), f"{start or 'claims:' + chr(10)}{lines}".encode())
    return len(load_claims(path))


def _check_column(sentence: str, name: str) -> None:
    if suite_of_column(name) is None:
        raise ConfigError(f"{short_repr(sentence)}: {unknown_column(name)}")


def _name(sentence: str) -> str:
    """The default name of a claim, made from its sentence, such as ``my-gla-over-S-on-in_context_recall``."""
    plain = re.sub(r"[^A-Za-z0-9_.!+-]+", "-", _in_words(sentence))
    return plain.strip("-")


def _in_words(sentence: str) -> str:
    for sign, word in {">=": "no-worse-than", ">": "over", "~": "like", " = ": " like "}.items():
        sentence = sentence.replace(sign, f" {word} ")
    return sentence
