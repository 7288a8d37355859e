"""Pages of functions and interfaces, from docstrings by griffe.

A function with an argument ``**NAME: Unpack[GROUP]`` may get defaults and a part of its docstring on import
(:func:`madbench.api.arguments.with_arguments`). Such functions are imported. All else is read from the source.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = {
    "functions": ("Functions", {"madbench": ()}),
    "mixers": (
        "Families of mixers",
        {"madbench.mixers": ("Family", "Allocation", "Size", "Check"), "madbench.labels.traits": ("Traits",)},
    ),
    "tasks": ("Tasks", {"madbench.tasks.base": ("TaskSetting", "Examples", "CheckedExample")}),
    "suites": ("Suites", {"madbench.suites.base": ("Suite",), "madbench.config.overrides": ("Override",)}),
    "papers": (
        "Papers",
        {"madbench.papers": ("Paper", "Item"), "madbench.papers.making": ("Measure", "Request", "ItemResult")},
    ),
    "jobs": ("Jobs and records", {"madbench.jobs": ("Job", "Record"), "madbench.details": ("Details",)}),
}  # fmt: skip
"""By page its title, and by module the names that it documents; of none named, all that the module exports."""
WITH_ENTRIES = ("Args:", "Shared arguments:", "Raises:")
"""The sections of a docstring in which a line begins with a name and a colon."""


@cache
def _package() -> griffe.Module:
    return griffe.load("madbench", search_paths=[str(ROOT)], resolve_aliases=False)


def markdown(docstring: str) -> str:
    """A docstring as Markdown: roles and double backticks become code, literal blocks and examples are fenced."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda match: f"`{match[1]}`", docstring.strip("\n"))
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    lines, blocks = text.splitlines(), []
    i = 0
    while i < len(lines):
        line = lines[i]
        if (section := line.strip()) in (*WITH_ENTRIES, "Returns:", "Yields:"):
            blocks += [f"**{section[:-1]}**", ""]
            i += 1
            while i < len(lines) and lines[i].startswith("    "):
                name, colon, what = lines[i].strip().partition(": ")
                is_entry = section in WITH_ENTRIES and not lines[i].startswith("     ") and colon
                blocks.append(f"- `{name}`: {what}" if is_entry else f"  {lines[i].strip()}")
                i += 1
        elif line.lstrip().startswith(">>> "):
            j = i
            while j < len(lines) and lines[j].strip():
                j += 1
            blocks += ["```pycon", *(part.strip() for part in lines[i:j]), "```"]
            i = j
        elif line.rstrip().endswith("::"):
            blocks += [line.rstrip()[: -1 if line.strip() != "::" else -2]]
            j = i + 1
            while j < len(lines) and (not lines[j].strip() or lines[j].startswith("    ")):
                j += 1
            block = "\n".join(lines[i + 1 : j]).strip("\n")
            blocks += ["", "```text", *re.sub(r"(?m)^ {4}", "", block).splitlines(), "```", ""]
            i = j
        else:
            if line.startswith("- ") and blocks and blocks[-1].strip() and not blocks[-1].lstrip().startswith("-"):
                blocks.append("")  # Markdown needs an empty line before a list
            blocks.append(line)
            i += 1
    return "\n".join(blocks).strip()


def _signature(function: griffe.Function) -> str:
    parameters = [parameter for parameter in function.parameters if parameter.name != "self"]
    words, kind = [], griffe.ParameterKind
    star = False
    for parameter in parameters:
        if group := _unpacked(parameter):
            words += _shared_parameters(function, group)
            continue
        if parameter.kind is kind.keyword_only and not star:
            words.append("*")
        star = star or parameter.kind in (kind.keyword_only, kind.var_positional)
        mark = {kind.var_positional: "*", kind.var_keyword: "**"}.get(parameter.kind, "")
        has_type = parameter.annotation is not None
        word = f"{mark}{parameter.name}" + (f": {_unquoted(parameter.annotation)}" if has_type else "")
        has_default = parameter.default is not None and not mark
        words.append(word + (f" = {parameter.default}" if has_default else ""))
    ending = f" -> {_unquoted(function.returns)}" if function.returns is not None else ""
    line = f"{function.name}({', '.join(words)}){ending}"
    if len(line) > 88:
        line = f"{function.name}(\n    " + ",\n    ".join(words) + f",\n){ending}"
    return line


def _unpacked(parameter: griffe.Parameter) -> str:
    """The name of the TypedDict that ``**parameter`` unpacks. Empty for any other parameter."""
    named = re.fullmatch(r"Unpack\[(\w+)\]", _unquoted(parameter.annotation))
    return named[1] if named else ""


def _shared_parameters(function: griffe.Function, group: str) -> list[str]:
    """The arguments in the TypedDict ``group``, each with its type as written and its default, or ``...``."""
    parameters = inspect.signature(_imported(function)).parameters
    types = getattr(importlib.import_module(function.module.path), group).__annotations__
    words = []
    for name, kind in types.items():
        default = parameters[name].default if name in parameters else ...
        text = "..." if default is ... else repr(str(default) if isinstance(default, Path) else default)
        words.append(f"{name}: {kind.__forward_arg__} = {text}")
    return words


def _imported(function: griffe.Function) -> Callable[..., Any]:
    module = function.module.path
    return operator.attrgetter(function.path.removeprefix(f"{module}."))(importlib.import_module(module))


def _unquoted(annotation) -> str:
    return str(annotation).strip("'\"")


def _docstring(thing: griffe.Object) -> str:
    if isinstance(thing, griffe.Function) and any(map(_unpacked, thing.parameters)):
        return markdown(inspect.getdoc(_imported(thing)) or "")
    return markdown(thing.docstring.value) if thing.docstring else ""


def _described(thing: griffe.Object, home: str, level: int = 2) -> list[str]:
    """Heading, signature and docstring, and for a class also its fields and methods."""
    parts = [f"{'#' * level} `{thing.name}` {{ #{home}.{thing.name} }}"]
    if isinstance(thing, griffe.Function):
        return [*parts, f"```python\n{_signature(thing)}\n```", _docstring(thing)]
    parts += [f"`{home}.{thing.name}`", _docstring(thing)]
    if rows := [field for name, field in thing.attributes.items() if not name.startswith("_") and field.annotation]:
        lines = ["| Field | Type | |", "| --- | --- | --- |"]
        for field in rows:
            kind = str(field.annotation).replace("|", "\\|")
            what = " ".join(_docstring(field).split())
            lines.append(f"| `{field.name}` | `{kind}` | {what.replace('|', chr(92) + '|')} |")
        parts.append("\n".join(lines))
    for name, method in thing.functions.items():
        if not name.startswith("_") and method.docstring:
            parts += _described(method, f"{home}.{thing.name}", level + 1)
    return parts


def reference_page(title: str, modules: dict[str, tuple[str, ...]]) -> str:
    """The page ``title`` with the named definitions of each module. Raises ``KeyError`` for a missing name."""
    parts = [f"# {title}", "Written from the docstrings of the source."]
    for module, names in modules.items():
        for name in names or map(str, _package().exports):
            thing = _package()[f"{module}.{name}".removeprefix("madbench.")]
            while thing.is_alias:
                thing = _package()[thing.target_path.removeprefix("madbench.")]
            parts += _described(thing, module)
    return "\n\n".join(part for part in parts if part) + "\n"
