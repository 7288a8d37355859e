"""``madbench new``: write a new package that starts as a copy of an example."""

from __future__ import annotations

import keyword
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from madbench.cli.new.claims import write_claim
from madbench.cli.shared.packages import KINDS
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import FormatOption
from madbench.config import EXAMPLES, short_repr
from madbench.config.options import argument, option
from madbench.errors import ConfigError, did_you_mean, no_effect

MOST_LETTERS = 40
"""The largest number of characters of a name, which is used in headings, file names and labels."""
FILES = (".csv", ".md", ".py", ".toml", ".yaml")
"""The suffixes of the files that are copied. Other files were created by running the example."""
LABEL = {"family": "its labels begin with {0}:", "module": "its label is my:{0}"}


@dataclass(frozen=True)
class Example:
    """An example package in ``examples/`` that ``madbench new`` copies, and the texts in it that depend on its name."""

    folder: str
    package: str
    beginning: str
    """The purpose of the copied example in a few words, such as ``linear attention``. Shown to the user."""
    spellings: dict[str, str]
    """The texts in the package that depend on its name: regular expression to the text that replaces its matches.

    A replacement may contain the new name in four spellings: ``{snake}``, ``{pascal}``, ``{sentence}`` and ``{words}``.
    """


EXAMPLE = {
    "family": Example("plugin", "madbench_linear", "linear attention", {r"\blin\b": "{snake}"}),
    "task": Example(
        "task",
        "madbench_prefix_sum",
        "running sums of digits",
        {"prefix_sum": "{snake}", "PrefixSum": "{pascal}", "Prefix sum": "{sentence}", "prefix sum": "{words}"},
    ),
    "suite": Example(
        "suite",
        "madbench_counting",
        "two tasks of bits",
        {
            "Counting(?=[A-Z])": "{pascal}",
            "Counting": "{sentence}",
            "counting": "{snake}",
            r"\b(parity|majority)\b": r"{snake}_\g<0>",
        },
    ),
    "paper": Example(
        "paper",
        "madbench_positions",
        "one table, two claims and a theorem",
        {r"\bpositions\b": "{snake}", "Where Positions Come From": "{sentence}"},
    ),
    "module": Example("module", "madbench_decay", "a fading sum", {"Decay": "{pascal}", "decay": "{snake}"}),
}


def new(
    kind: Annotated[str | None, argument("KIND", "family, task, suite, paper, module or claim.")] = None,
    name: Annotated[
        str | None, argument("NAME", "Its name: lower-case letters, digits, - and _. For a claim: its sentence.")
    ] = None,
    into: Annotated[
        Path | None, option("Folder for the folder of the package.", show_default="the current one")
    ] = None,
    called: Annotated[str | None, option("Name of a claim.", "--name", show_default="made from the sentence")] = None,
    output: Annotated[
        Path | None, output_option("File of claims to append to, or to create.", show_default="printed")
    ] = None,
    format: FormatOption = "terminal",
) -> None:
    """Write a working package that extends madbench, or a claim.

    A package starts as a copy of an example under your name: code, tests that
    pass, and a README with the commands to install and try it. Nothing is
    overwritten.

    family   a grammar of labels with a budget, such as lin:elu-g
    task     token sequences and their answers: one class and one YAML file
    suite    tasks with their own profiles, columns and averages
    paper    items, claims, published numbers, theorems, sets of labels, profiles
    module   a torch.nn.Module of (B, T, D) as the label my:NAME

    A claim is data: findings, register and report use it like the claim of a
    paper.

    A > B    A is better than B: its gain is above 0, or above the number after
             by, in the units of the column: points of accuracy, nats per token,
             steps.
    A ~ B    A is as good as B: gain and loss are smaller than the number after
             within, by two one-sided tests. A = B is the same.
    A >= B   A is no worse than B: a loss is smaller than the number after within.
    Both sides are labels or sets. The mean over their pairs decides. If the
    sentence begins with every, the claim must hold for each pair. FACTOR in
    LABELS has the pairs of these labels that differ only in that factor.

    [bold]Examples[/bold]

      madbench new family wave
      madbench new task sorting --into my_packages
      madbench new module my_mixer
      madbench new claim 'G-cg-q > S on in_context_recall by 5' -o my_claims.yaml
      madbench new claim 'cd:gla ~ S on compression,memorization within 2'
      madbench new claim 'R-pc >= S-pc on mad_average within 2'
      madbench new claim 'every @quick > S on mad_average' --name all
      madbench new claim 'conv in @quick on mad_average,loss_l5'
      madbench findings --claims my_claims.yaml
    """
    kinds = [*EXAMPLE, "claim"]
    if kind is None:
        raise ConfigError(f"new: expected a kind and a name, such as new task sorting; kinds: {', '.join(kinds)}")
    if kind == "operator":
        raise ConfigError("new: an operator is a file of madbench itself; docs/pages/add-operator.md has one to copy")
    if kind not in kinds:
        raise ConfigError(f"new: unknown kind {short_repr(kind)}{did_you_mean(kind, kinds)}")
    if name is None:
        example = "a sentence in quotes, such as 'S-p > S'" if kind == "claim" else "a name, such as sorting"
        raise ConfigError(f"new {kind}: expected {example}")
    of_claims = {"--name": called, "--output": output, "--format": format if format == "json" else None}
    for flag, value in ({"--into": into} if kind == "claim" else of_claims).items():
        if value is not None:
            raise no_effect(flag, f"on a {kind}")
    if kind == "claim":
        write_claim(name, called, output, format == "json")
    else:
        _write_package(kind, name, into or Path())


def _write_package(kind: str, name: str, into: Path) -> None:
    """Write the package ``name`` to a folder of this name in ``into``, and print the commands that come next."""
    snake = _identifier(kind, name)
    folder = into / name
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder}: already exists, and nothing is overwritten; choose another name, or --into DIR")
    example = EXAMPLE[kind]
    files = dict(_renamed_files(example, name, snake))
    _write(folder, files)

    label = f"; {LABEL[kind].format(snake)}" if kind in LABEL else ""
    print(f"{folder}: the {kind} {snake} in {len(files)} files{label}; it starts as {example.beginning}")
    print(f"next{'' if into == Path() else f', in {into}'}:")
    commands = [line for line in files["README.md"].splitlines() if line.startswith("    ")]
    print("\n".join(commands))


def _identifier(kind: str, name: str) -> str:
    """The name of a new extension in code: ``name`` with underscores in place of hyphens.

    Raises ``ConfigError`` for a name that is invalid, taken, or has another meaning in the new files. ``kind`` is the
    kind of extension, such as ``task``.
    """
    import yaml

    where, snake = f"new {kind} {name[:60]!r}", name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*", name) or len(name) > MOST_LETTERS:
        valid_name = "_".join(re.findall("[a-z0-9]+", name.lower())).lstrip("0123456789_")[:MOST_LETTERS].rstrip("_")
        hint = f"; did you mean {valid_name!r}?" if valid_name else f", such as my_{kind}"
        raise ConfigError(
            f"{where}: expected at most {MOST_LETTERS} lower-case letters, digits, - and _, a letter first{hint}"
        )
    if fault := KINDS[kind].registry.fault_of_name(snake):
        raise ConfigError(f"{where}: {fault}")
    taken_names = {*KINDS[kind].names(), *KINDS[kind].broken()}
    if snake in taken_names:
        raise ConfigError(f"{where}: there is a {kind} of this name already; choose another, such as my_{snake}")
    code = [path for path in _files(EXAMPLE[kind]) if path.suffix == ".py"]
    words = {word for path in code for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    pascal = _spellings(snake)["pascal"]
    if keyword.iskeyword(pascal) or yaml.safe_load(snake) != snake or pascal in words:
        raise ConfigError(
            f"{where}: {snake} or {pascal} means something else in its files; choose another, such as my_{snake}"
        )
    return snake


def _spellings(snake: str) -> dict[str, str]:
    words = snake.replace("_", " ")
    pascal = "".join(part.capitalize() for part in snake.split("_"))
    return {"snake": snake, "pascal": pascal, "sentence": words.capitalize(), "words": words}


def _files(example: Example) -> list[Path]:
    folder = EXAMPLES / example.folder
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in FILES)
    hidden = (".", "__pycache__")
    return [path for path in paths if not any(part.startswith(hidden) for part in path.relative_to(folder).parts)]


def _renamed_files(example: Example, name: str, snake: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every file of an example package, with the new name in place of the example's.

    ``snake`` is the name in code (:func:`_identifier`).
    """
    package = f"madbench_{snake}"
    spellings = {
        f"examples/{example.folder}": name,
        example.package: package,
        example.package.replace("_", "-"): package.replace("_", "-"),
    } | {old: new.format(**_spellings(snake)) for old, new in example.spellings.items()}

    def replacement(match: re.Match[str]) -> str:
        old = next(old for old in spellings if re.compile(old).match(match.string, match.start()))
        return match.expand(spellings[old])

    def rename(text: str) -> str:
        return re.sub("|".join(spellings), replacement, text)

    for path in _files(example):
        yield rename(path.relative_to(EXAMPLES / example.folder).as_posix()), rename(path.read_text(encoding="utf-8"))


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder. If one cannot be written, the folder is deleted.

    ``folder`` is new or empty. ``files`` maps paths in the folder to texts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for place, text in files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
