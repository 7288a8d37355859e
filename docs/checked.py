"""Checks numbers and verdicts in the running text of the pages against the output of commands.

``<!-- numbers: madbench compare ... --results results/quick; rows "MAD avg" -->`` stands at the end of a sentence, a
paragraph or a list item. Every number and every verdict of this text, back to the last mark, must be in the lines of
the command's output that contain one of the texts after ``rows``, or in the lines below them that are indented more.
Without ``rows`` it may be anywhere in the output. The text may round a number. Several marks in a row share the text.
``<!-- not checked: REASON -->`` stands after text with numbers that no command makes from the archives.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

PLAIN = "text"
"""The format that commands print without ``--format``."""
CHECKED = re.compile(r"(?:\s*<!-- (?:numbers|not checked): .*? -->)+")
NUMBER = re.compile(r"(?<![\w.-])[+−-]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[+−-]?\d+)?(?!\w)")
VERDICT = re.compile(
    r"\b(?:(?:not )?supported|contradicted|reproduced|not (?:decided|enough data|significant|testable))\b"
)
RESULT = re.compile(r"± ?\d|\bp (?:<|below|of)? ?0?\.\d|\d \[[+−-]?\.?\d|[+−-]\d*\.\d")
NO_RESULT = re.compile(
    r"`[^`]*`|\]\([^)]*\)|<[^>]*>|\b95%|R\(\d\)|(?:(?:Table|Figure|Section|Theorem|Definition|Principle)s?|Appendix|eq\."
    r"|Lemma|Corollary|Proposition|Example|Remark) [A-Z]?\.?\d[\w.]*",
    re.IGNORECASE,
)
"""Parts of a sentence whose digits are no results: code, addresses, tags, the level of intervals, R(1), Table 2."""


def unchecked(text: str) -> list[str]:
    """The paragraphs and list items of a page with an interval, a p-value or a signed number, and without a mark."""
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *\|.*$|^ {4,}.*$", "", text, flags=re.MULTILINE)  # tables and formulas
    text = re.sub(r"<!-- ([\w -]+) -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)  # of studies/evidence.py
    rests, end = [], 0
    for marks in CHECKED.finditer(text):
        rests.append(text[end : _start(text, end, marks.start())])
        end = marks.end()
    items = re.split(r"\n\n|\n(?=- )", "".join([*rests, text[end:]]))
    return [" ".join(item.split()) for item in items if RESULT.search(item)]


def _start(text: str, last: int, end: int) -> int:
    """The start of the text that the marks at ``end`` cover: a blank line, a list item or the ``last`` mark."""
    return max([last, *(match.end() for match in re.finditer(r"\n\n|\n(?=- )", text[:end]))])


def unprinted(text: str, made: Callable[[str, str], str]) -> list[str]:
    """The numbers and verdicts of checked sentences that their commands do not print, each with its sentence."""
    wrong, end = [], 0
    for marks in CHECKED.finditer(text):
        said = " ".join(text[_start(text, end, marks.start()) : marks.start()].split())
        end = marks.end()
        if "<!-- not checked: " in marks[0]:
            continue
        printed = "\n".join(_printed(mark, made) for mark in re.findall(r"<!-- numbers: (.*?) -->", marks[0]))
        results = NO_RESULT.sub(" ", said)
        wrong += [f"{number}: {said}" for number in NUMBER.findall(results) if not is_printed(number, printed)]
        printed = printed.replace("not enough data", "not enough data, not decided")
        wrong += [f"{verdict}: {said}" for verdict in VERDICT.findall(results) if verdict not in printed]
    return wrong


def _printed(mark: str, made: Callable[[str, str], str]) -> str:
    """The lines of a command's output that a mark selects, with the lines below each that are indented more."""
    command, options = split_mark(mark)
    lines = made(command, PLAIN).splitlines()
    chosen: list[str] = []
    for row in options.get("rows", []):
        found = [
            place for place, line in enumerate(lines) if re.search(rf"(?<![\w:+!-]){re.escape(row)}(?![\w:+!-])", line)
        ]
        if not found:
            raise SystemExit(f"{command}: no line has {row!r}")
        for place in found:
            depth = _indentation(lines[place])
            chosen += [lines[place]]
            for line in lines[place + 1 :]:
                if not line.strip() or _indentation(line) <= depth:
                    break
                chosen += [line]
    return "\n".join(chosen if "rows" in options else lines)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def is_printed(number: str, printed: str) -> bool:
    """True if a number of ``printed``, rounded, is ``number``. A sign must agree if both have one."""
    value, decimals = _value(number), len(number.partition(".")[2])
    for other in NUMBER.findall(printed):
        both_signed = number[0] in "+−-" and other[0] in "+−-"
        signs_agree = not both_signed or (number[0] == "+") == (other[0] == "+")
        is_equal = abs(abs(_value(other)) - abs(value)) <= (0.0 if "e" in number else 0.5 * 10**-decimals + 1e-9)
        if signs_agree and is_equal and ("e" in other or len(other.partition(".")[2]) >= decimals):
            return True
    return False


def _value(number: str) -> float:
    return float(number.replace("−", "-").replace(",", ""))


def split_mark(source: str) -> tuple[str, dict[str, list[str]]]:
    """The command of a mark, and the words of each option after it."""
    command, *options = source.split("; ")
    words = [shlex.split(option) for option in options]
    return command, {name: values for name, *values in words}
