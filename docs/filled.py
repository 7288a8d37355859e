"""Fills the pages with what stands elsewhere, and rewrites the tables that commands make.

``python docs/filled.py`` runs the command beside each table of the README and the pages and writes what it prints.
A table is marked by a comment before it: ``<!-- made: madbench table ... --results results/quick -->``, of the runs in
``results/measured/quick.tar.xz`` (``results/quick+evening``: in both archives), or ``<!-- copied: FILE "first words"
-->`` from another page. While the site is built ``<!-- include: FILE -->`` and ``<!-- items: PAPER -->`` are put in,
the items in place of the line below, and ``<!-- operators -->``, the named operators from their own files.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs")]

from notebook import notebook_page  # noqa: E402

TABLE = re.compile(r"<!-- (made|copied): (.*?) -->\n\n?((?:\|.*\n)+)")
PAPERS = ROOT / "madbench" / "papers"


def pages() -> list[Path]:
    """The README and every page."""
    return [ROOT / "README.md", *sorted((ROOT / "docs" / "pages").rglob("*.md"))]


def fill(text: str, page: Path) -> str:
    """``text`` of a page with its includes and items, and without links that leave the site."""
    text = re.sub(r'<!-- include: (\S+?)(?: from "(.*?)")? -->', lambda match: _included(*match.groups()), text)
    text = re.sub(r"<!-- notebook: (\S+) -->", lambda match: notebook_page(ROOT / match[1]), text)
    text = re.sub(r"<!-- items: (\w+) -->\n.*", lambda match: _items(match[1]), text)
    text = re.sub(r"<!-- operators -->\n.*", lambda match: _operators(), text)
    up = "../" * (len(page.parts) + 1)
    return re.sub(rf"\[([^\]]+)\]\((?:{re.escape(up)})[^)]*\)", r"\1", text)


def _included(file: str, start: str | None) -> str:
    text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else f"{file} is not there.\n"
    return text[text.index(start) :] if start else text


def _items(name: str) -> str:
    """Every item of a paper: what it is, its state here, the last verdict, the command, and the note."""
    from madbench.cli.printing import duration
    from madbench.papers import load_paper

    paper = load_paper(name)
    verdicts = json.loads((PAPERS / name / "verdicts.json").read_text(encoding="utf-8"))
    made = sum(item.is_made_here for item in paper.items)
    lines = ["| Item | Place | What | Verdict | Time on one core |", "| --- | --- | --- | --- | --- |"]
    notes = []
    for item in paper.items:
        verdict = verdicts.get(item.id, "not run for this page") if item.is_made_here else item.availability
        verdict += ", arithmetic" * item.arithmetic
        cost = duration(item.seconds) if item.is_made_here and item.seconds else ""
        name_of = f"[`{item.id}`](#{_anchor(item)})" if _has_note(item) else f"`{item.id}`"
        cells = [name_of, item.place, item.title, verdict, cost]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        if _has_note(item):
            facts = [f"**At its own size:** {item.needs}"] if item.needs and item.is_made_here else []
            facts += [item.needs] if item.needs and not item.is_made_here else []
            facts += [f"**Rule:** {item.rule}"] * bool(item.rule) + [item.note] * bool(item.note)
            notes += [f"### {item.place}: {item.title} {{ #{_anchor(item)} }}", *facts]
    made = sum(item.is_made_here for item in paper.items)
    about = (
        f"`madbench paper {name} ITEM` makes one of these {len(paper.items)} items ({made} are made here);"
        " without ITEM it lists them. A verdict is of one run, at the small size if there are two; numbers of several"
        " seeds, as above, come first."
    )
    parts = [about, "\n".join(lines), *notes]
    return "\n\n".join(parts) + "\n"


def _operators() -> str:
    """Every named operator: equation, source, formulas of parameters and state, and its numbers at one size."""
    from madbench.mixers import solve
    from madbench.mixers.named.arguments import choices
    from madbench.mixers.named.operators import OPERATORS

    lines = [
        "| Label | Layer | Definition | Parameters | State | At d 128, H 4, T 128: both, FLOPs per token | Paper |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, operator in OPERATORS.items():
        found = solve(name, 128, 4, 128)
        numbers = f"{found.total:,}; {found.state(128):,}; {found.flops_per_token(128):,.0f}"
        labels = ", ".join(f"`{text}`" for text in (name, *(f"{name}({argument})" for argument in choices(operator))))
        formulas = [f"`{text}`" for text in (operator.equation, operator.parameters, operator.state)]
        lines.append("| " + " | ".join([labels, operator.title, *formulas, numbers, operator.source]) + " |")
    return "\n".join(lines) + "\n"


def _has_note(item) -> bool:
    return bool(item.note or item.rule or item.needs)


def _anchor(item) -> str:
    return item.id.replace(".", "-").lower()


def rewritten(text: str, made: Callable[[str], str]) -> str:
    """``text`` with every marked table as its command makes it now; ``made(command)`` gives Markdown."""

    def table(match: re.Match) -> str:
        kind, source, old = match.groups()
        if kind == "copied":
            file, start = shlex.split(source)
            blocks = (ROOT / file).read_text(encoding="utf-8").split("\n\n")
            (new,) = [block for block in blocks if block.startswith(start)]
        else:
            new = "\n".join(line for line in made(source).splitlines() if line.startswith("|"))
            if not new:
                raise SystemExit(f"{source}: no table")
        return match[0].replace(old, new.strip("\n") + "\n")

    return TABLE.sub(table, text)


def parts(command: str) -> tuple[list[str], str]:
    """The words of a command of madbench without those of its results, files in full; the name of its results."""
    words = [str(ROOT / word) if word.startswith("results/measured/") else word for word in shlex.split(command)[1:]]
    if "--results" not in words:
        return words, ""
    at = words.index("--results")
    return words[:at] + words[at + 2 :], words[at + 1].removeprefix("results/")


def run(command: str, folder: Path) -> str:
    """What a command of madbench prints as Markdown, with the runs that come with the repository in ``folder``."""
    words, name = parts(command)
    call, results = [sys.executable, str(ROOT / "cli.py")], folder / (name or "no results")
    if name and not results.exists():
        for part in name.split("+"):
            archive = ROOT / "results" / "measured" / f"{part}.tar.xz"
            subprocess.run([*call, "import", str(archive), "--results", results], check=True, capture_output=True)
    how = {"check": True, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
    return subprocess.run([*call, *words, "--results", results, "--format", "markdown"], **how).stdout


def main() -> None:
    """Rewrites the tables of all pages; with ``--verdicts RESULTS`` the verdicts of the papers' items too."""
    if sys.argv[1:2] == ["--verdicts"]:
        _record_verdicts(Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as folder:
        for page in pages():
            text = page.read_text(encoding="utf-8")
            if (new := rewritten(text, lambda command: run(command, Path(folder)))) != text:
                page.write_text(new, encoding="utf-8")
                print(f"{page.relative_to(ROOT)}: rewritten")


def _record_verdicts(results: Path) -> None:
    """Add the verdicts of the items that were made in ``results`` to the file ``verdicts.json`` of each paper."""
    for path in sorted(PAPERS.glob("*/verdicts.json")):
        verdicts = json.loads(path.read_text(encoding="utf-8"))
        command = [sys.executable, str(ROOT / "cli.py"), "paper", path.parent.name, "-f", "json"]
        command += ["--results", str(results)]
        listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["items"]
        made = {item["item"]: item["state"] for item in listed if item["command"] and not item["is_shipped"]}
        verdicts |= {item: state for item, state in made.items() if not state.startswith(("not made", "cannot"))}
        path.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
