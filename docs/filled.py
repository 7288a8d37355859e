"""Inserts generated and included text into the pages, and rewrites the tables that commands make.

``python docs/filled.py`` makes the marked tables of the README and the pages again, and ``python docs/filled.py
docs/pages/labels.md`` those of one page. The mark is a comment before the table:

- ``<!-- made: madbench table ... --results results/quick -->`` marks the table that this command prints for the runs in
  ``results/measured/quick.tar.xz`` (``results/quick+evening``: for the runs in both archives). ``; table 2`` after the
  command selects its second table, and ``; columns "Label" "L5"`` some of the columns.
- ``<!-- verdicts: madbench paper ... -->`` marks a block of text with the verdicts that a command prints.
- ``<!-- copied: FILE "first words" -->`` marks a table of another page.
- ``<!-- letters: w s -->`` marks the table of these letters of S/R/G/D/L labels.

Numbers in running text are checked by ``docs/checked.py``. ``--check`` writes nothing, and exits with 1 if a table or
a number is not what its command prints. A table is not written if more of its rows than before are marked with ¶, as
runs of other code.

Three other marks are replaced only when the site is built: ``<!-- include: FILE -->`` by the file, ``<!-- items: PAPER
-->`` and the line below it by the items of a paper, and ``<!-- operators -->`` by tables of the named operators.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs")]

from checked import CHECKED, PLAIN, split_mark, unprinted  # noqa: E402
from notebook import notebook_page  # noqa: E402

from madbench.errors import suggestion  # noqa: E402
from madbench.suites.code_marks import SIGN  # noqa: E402

BLOCK = re.compile(r"<!-- (made|copied|verdicts|letters): (.*?) -->\n\n?((?:\|.*\n)+|```text\n(?:.*\n)*?```\n)")
PAPERS = ROOT / "madbench" / "papers"
BASELINE, OPERATOR_SIZE = "S-p", (128, 2, 256)  # d_model, heads of the profile full, tokens
TRAINED = "evening"
OPERATOR_TIMES = ROOT / "results" / "measured" / "operators.csv"
TIMES = ("step_ms_ratio", "prefill_ms_ratio", "token_ms_ratio", "training_ratio")


def pages() -> list[Path]:
    """The README, the page of measured runs and every page of the documentation."""
    measured = ROOT / "results" / "measured" / "README.md"
    return [ROOT / "README.md", measured, *sorted((ROOT / "docs" / "pages").rglob("*.md"))]


def fill(text: str, page: Path) -> str:
    """``text`` of a page with the included text in place of its marks, and without links that leave the site."""
    text = re.sub(r'<!-- include: (\S+?)(?: from "(.*?)")? -->', lambda match: _included(*match.groups()), text)
    text = re.sub(r"<!-- notebook: (\S+) -->", lambda match: notebook_page(ROOT / match[1]), text)
    text = re.sub(r"<!-- items: (\w+) -->\n.*", lambda match: _items(match[1]), text)
    text = re.sub(r"<!-- operators -->\n.*", lambda match: operator_table(), text)
    text = CHECKED.sub("", text)
    up = "../" * (len(page.parts) + 1)
    return re.sub(rf"\[([^\]]+)\]\((?:{re.escape(up)})[^)]*\)", r"\1", text)


def _included(file: str, start: str | None) -> str:
    text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else f"{file} is not there.\n"
    return text[text.index(start) :] if start else text


def _items(name: str) -> str:
    """A table of every item of a paper: what it is, its state here, the last verdict, the command, and the note."""
    from madbench.execute.base import duration
    from madbench.papers import load_paper

    paper = load_paper(name)
    verdicts = json.loads((PAPERS / name / "verdicts.json").read_text(encoding="utf-8"))
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
            facts += [f"**Fewer than five seeds:** {item.fewer_seeds}."] * bool(item.fewer_seeds)
            notes += [f"### {item.place}: {item.title} {{ #{_anchor(item)} }}", *facts]
    made = sum(item.is_made_here for item in paper.items)
    about = (
        f"`madbench paper {name} ITEM` makes one of these {len(paper.items)} items ({made} are made here);"
        " without ITEM it lists them. A verdict is of one run, at the small size if there are two; numbers of several"
        " seeds, as above, come first."
    )
    parts = [about, "\n".join(lines), *notes]
    return "\n\n".join(parts) + "\n"


def operator_table() -> str:
    """Two tables of all named operators: definitions with formulas, and costs at one size, counted and measured.

    The measured ratios come from the file ``OPERATOR_TIMES``, which ``python docs/filled.py --operators`` writes.
    """
    from madbench.mixers import solve
    from madbench.mixers.named.arguments import choices
    from madbench.mixers.named.operators import OPERATORS

    definitions = [
        "| Label | Layer | Definition | Parameters | State | Paper |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, operator in OPERATORS.items():
        labels = ", ".join(f"`{text}`" for text in (name, *(f"{name}({argument})" for argument in choices(operator))))
        formulas = [f"`{text}`" for text in (operator.equation, operator.parameters, operator.state)]
        definitions.append("| " + " | ".join([labels, operator.title, *formulas, operator.source]) + " |")
    width, heads, length = OPERATOR_SIZE
    timed = operator_times()
    costs = [
        "| Label | Parameters | State | FLOPs per token | Step | Prompt | Token | Training |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for label in (BASELINE, *OPERATORS):
        found, row = solve(label, width, heads, length), timed.get(label, {})
        counts = [f"{number:,.0f}" for number in (found.total, found.state(length), found.flops_per_token(length))]
        ratios = [f"{float(row[name]):.2f}" if row.get(name) else "-" for name in TIMES]
        costs.append(f"| `{label}` | {' | '.join(counts)} | {' | '.join(ratios)} |")
    machine = next((row["machine"] for row in timed.values()), "no machine yet")
    about = (
        f"Costs of one layer at d {width}, H {heads}, T {length}, at the budget: numbers of parameters, numbers carried"
        f" after T tokens, FLOPs of a forward pass per token (causal half), and times as a multiple of `{BASELINE}`:"
        " of forward and backward, of a prompt, and of a decoded token. Training: the time of a training step of the"
        f" whole model, summed over the tasks of the profile `{TRAINED}`, in the same way. Measured by `python"
        f" docs/filled.py --operators` on {machine}"
    )
    return "\n".join([*definitions, "", about, "", *costs]) + "\n"


def letter_table(letters: Sequence[str]) -> str:
    """The table of letters of S/R/G/D/L labels: meaning, bases, parameters, settings with their defaults, and source.

    Raises ``KeyError`` for an unknown letter.
    """
    from madbench.labels import family_of
    from madbench.mixers.srg.allocation import TERMS
    from madbench.mixers.srg.grammar import LETTERS

    row_of, defaults = {row.letter: row for row in LETTERS}, vars(family_of("S").Settings())
    lines = ["| Letter | Meaning | Bases | Parameters | Settings | Source |", "| --- | --- | --- | --- | --- | --- |"]
    for row in map(row_of.__getitem__, letters):
        formulas = " + ".join(f"`{TERMS[name].formula}`" for name in row.terms)
        parameters = f"{formulas}{', on both sides of the budget' if row.raises_budget else ''}" or "none added"
        settings = ", ".join(f"`model.{name}` ({defaults[name]})" for name in row.settings)
        source = re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", row.source)
        cells = [row.letter, f"{row.name}: {row.what}", " and ".join(row.needs) or "all", parameters, settings, source]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def operator_times() -> dict[str, dict[str, str]]:
    """The rows of the file of measured times, by label."""
    with open(OPERATOR_TIMES, newline="", encoding="utf-8") as file:
        return {row["label"]: row for row in csv.DictReader(file)}


def _measure_operators() -> None:
    """Measure all named operators in turns with ``BASELINE``, and write the ratios of their times."""
    from madbench.mixers.named.operators import OPERATORS

    width, _, length = OPERATOR_SIZE
    words = [BASELINE, *OPERATORS, "--threads", 1, "--repeats", 3]
    rows = _bench("costs", *words, "--d-model", width, "--lengths", length, "--batch", 4)
    steps: dict[str, list[float]] = {label: [] for label in (BASELINE, *OPERATORS)}
    for row in _bench("training", *words, "--profile", TRAINED):
        if row["step_ms"]:
            steps[row["label"]].append(float(row["step_ms"]))
    for row in rows:
        times = steps[row["label"]]
        row["training_ratio"] = sum(times) / sum(steps[BASELINE]) if len(times) == len(steps[BASELINE]) else ""
    with open(OPERATOR_TIMES, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ("label", *TIMES, "machine"), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(row | {name: f"{float(row[name]):.3f}" for name in TIMES if row[name]})


def _bench(part: str, *words: object) -> list[dict[str, str]]:
    """The rows that ``madbench bench`` writes for a part."""
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, ROOT / "cli.py", "bench", part, *words, "--output", folder]
        subprocess.run(list(map(str, call)), check=True, stdout=subprocess.DEVNULL)
        with open(Path(folder, f"{part}.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def _has_note(item) -> bool:
    return bool(item.note or item.rule or item.needs)


def _anchor(item) -> str:
    return item.id.replace(".", "-").lower()


def rewritten(text: str, made: Callable[[str, str], str]) -> str:
    """``text`` with every marked block made again. ``made(command, format)`` returns the output of a command."""

    def block(match: re.Match) -> str:
        kind, source, old = match.groups()
        if kind == "copied":
            file, start = shlex.split(source)
            blocks = (ROOT / file).read_text(encoding="utf-8").split("\n\n")
            (new,) = [block for block in blocks if block.startswith(start)]
        elif kind == "letters":
            new = letter_table(source.split())
        elif kind == "verdicts":
            lines = re.findall(r"^(?:[a-z].{0,80}?: .*|    \S.*)$", made(source, PLAIN), re.MULTILINE)
            new = "\n".join(["```text", *(line.rstrip() for line in lines), "```"])
        else:
            command, options = split_mark(source)
            tables = re.findall(r"(?:^\|.*\n?)+", made(command, "markdown"), re.MULTILINE)
            (number,) = options.get("table", ["1"])
            new = _columns(tables[int(number) - 1], options["columns"]) if "columns" in options else "".join(tables)
            if "table" in options and "columns" not in options:
                new = tables[int(number) - 1]
        if not new.strip():
            raise SystemExit(f"{source}: no table")
        if new.count(SIGN) > old.count(SIGN):
            raise SystemExit(
                f"{source}: not written, because more rows are marked with {SIGN} (runs of other code) than before. If"
                " your edit changes no number of a stored run, run python studies/equal_code.py and commit the file"
                " that it writes, madbench/identity/known_equal.json. Otherwise see CONTRIBUTING.md, rules of a change."
            )
        return match[0].replace(old, new.strip("\n") + "\n")

    return BLOCK.sub(block, text)


def _columns(table: str, headings: list[str]) -> str:
    """The columns of a Markdown table with these headings."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
    places = [[cell.strip() for cell in rows[0]].index(heading) for heading in headings]
    return "".join("|" + "|".join(row[place] for place in places) + "|\n" for row in rows)


def parts(command: str) -> tuple[list[str], str]:
    """The words of a command without ``--results``, with full paths of files, and the name of its results."""
    words = [str(ROOT / word) if word.startswith("results/measured/") else word for word in shlex.split(command)[1:]]
    if "--results" not in words:
        return words, ""
    at = words.index("--results")
    return words[:at] + words[at + 2 :], words[at + 1].removeprefix("results/")


def run(command: str, form: str, folder: Path) -> str:
    """The output of a command of madbench in a format of tables. Its runs are first imported into ``folder``."""
    words, name = parts(command)
    call, results = [sys.executable, str(ROOT / "cli.py")], folder / name
    if name and not results.exists():
        for part in name.split("+"):
            archive = ROOT / "results" / "measured" / f"{part}.tar.xz"
            subprocess.run([*call, "import", str(archive), "--results", results], check=True, capture_output=True)
    how = {"check": True, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
    how["env"] = os.environ | {"COLUMNS": "1000"}  # a row and a caption are one line each
    options = [*(["--results", results] if name else []), *(["--format", form] if form != PLAIN else [])]
    return subprocess.run([*call, *words, *options], **how).stdout


def chosen_pages(words: Sequence[str]) -> list[Path]:
    """The pages with these paths, from the root of the repository. All pages if ``words`` is empty.

    Raises ``SystemExit`` for another path or an unknown option.
    """
    known = {page.relative_to(ROOT).as_posix(): page for page in pages()}
    for word in words:
        if word not in known:
            raise SystemExit(
                f"{word}: not a page{suggestion(word, known)}; name pages by their paths, such as docs/pages/labels.md"
            )
    return [known[word] for word in words] or list(known.values())


def main() -> None:
    """Rewrite the tables of the named or all pages and check the numbers of their sentences.

    ``--check`` before the names writes nothing. ``--verdicts RESULTS`` before the names also rewrites the verdicts of
    the papers' items. ``--operators`` measures the times of the named operators instead.
    """
    words = sys.argv[1:]
    if words == ["--operators"]:
        _measure_operators()
        return
    is_check, is_wrong = words[:1] == ["--check"], False
    is_recording = words[:1] == ["--verdicts"]
    chosen = chosen_pages(words[2 if is_recording else int(is_check) :])
    if is_recording:
        _record_verdicts(Path(words[1]))
    with tempfile.TemporaryDirectory() as folder:
        made = functools.cache(functools.partial(run, folder=Path(folder)))
        for page in chosen:
            text = page.read_text(encoding="utf-8")
            if (new := rewritten(text, made)) != text:
                is_wrong |= is_check
                print(
                    f"{page.relative_to(ROOT)}: {'a table is not what its command prints' if is_check else 'rewritten'}"
                )
                if not is_check:
                    page.write_text(new, encoding="utf-8")
            for message in unprinted(new, made):
                is_wrong = True
                print(f"{page.relative_to(ROOT)}: no command prints {message}")
    if is_wrong:
        raise SystemExit(1)


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
