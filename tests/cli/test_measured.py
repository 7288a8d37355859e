"""The shipped runs are complete and reproduce the tables, verdicts and numbers of the README and the pages.

``madbench archive`` packs such runs from a results folder with a single sweep.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from docs_folder import load_script
from madbench.papers import operators

filled, checked = load_script("filled"), load_script("checked")
ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "results" / "measured"
PAGES = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in filled.pages()}
MARKED_PAGES = [page for page, text in PAGES.items() if re.search("<!-- (?:made|verdicts|numbers): ", text)]
"""The pages with tables, verdicts or numbers of commands."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Callable[[str], Path]:
    """``unpacked(name)``: the results folder with the runs of all archives in a name such as ``quick+evening``."""
    folder = tmp_path_factory.mktemp("measured")

    @functools.cache
    def unpack(name: str) -> Path:
        results = folder / f"results {name.replace('/', ' ')}"
        for part in filter(None, name.split("+")):
            if not (folder / part).exists():
                with tarfile.open(MEASURED / f"{part}.tar.xz") as archive:
                    archive.extractall(folder / part, filter="data")
            (runs,) = (folder / part).glob("*/runs")
            shutil.copytree(runs, results / "runs", dirs_exist_ok=True)
        return results

    return unpack


@pytest.mark.slow
def test_the_shipped_quick_archive_validates(unpacked, main):
    ended = main("validate", "--store", "--results", str(unpacked("quick")), "-f", "json")
    assert ended.code == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", MARKED_PAGES)
def test_tables_and_numbers_of_pages_equal_the_output_of_their_commands(page, unpacked, main, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    # the items of a page have operators in common, and each item checks its own before it is shown
    monkeypatch.setattr(operators, "run_checks", functools.cache(operators.run_checks))

    @functools.cache
    def made(command: str, form: str) -> str:
        words, results = filled.parts(command)
        options = ["--results", str(unpacked(results))] if results else []
        options += [] if form == checked.PLAIN else ["--format", form]
        ended = main(*words, *options)
        assert ended.code == 0, ended.stderr
        return ended.stdout

    assert filled.rewritten(PAGES[page], made) == PAGES[page]
    assert checked.unprinted(PAGES[page], made) == []


def test_copied_tables_equal_the_original_page():
    copied = [
        match for text in PAGES.values() for match in re.findall(r'<!-- copied: (\S+) "(.*?)" -->\n((?:\|.*\n)+)', text)
    ]
    assert copied
    for file, start, stated in copied:
        assert f"\n\n{stated}\n" in (ROOT / file).read_text(encoding="utf-8") and stated.startswith(start)


@pytest.mark.slow
def test_audit_correlations_of_the_shipped_runs_have_the_documented_values(unpacked, main):
    def correlations(labels: str) -> dict[str, dict]:
        ended = main("audit", labels, "-p", "quick", "--results", str(unpacked("quick")), "-f", "json")
        assert ended.code == 0, ended.stderr
        return {record["column"]: record for record in json.loads(ended.stdout)["cells"]}

    of_all, of_matched = correlations("@table1"), correlations("@matched")
    assert {name: round(record["published"], 2) for name, record in of_all.items()} == {
        "compression": -0.03,
        "fuzzy_in_context_recall": 0.38,
        "in_context_recall": 0.71,
        "memorization": 0.52,
        "noisy_in_context_recall": 0.74,
        "selective_copying": 0.78,
        "mad_average": 0.36,
    }
    average = of_all["mad_average"]
    assert round(average["outcome_correlation"], 2) == -0.43 and round(average["published_with_outcome"], 2) == -0.76
    average = of_matched["mad_average"]
    assert round(average["published"], 2) == 0.51 and round(average["published_with_outcome"], 2) == -0.87
    counts = {name: round(33 * record["share_solved"]) for name, record in of_all.items() if record["share_solved"]}
    assert (counts["memorization"], counts["fuzzy_in_context_recall"]) == (26, 17)
    assert of_all["in_context_recall"]["share_at_heuristic"] == pytest.approx(9 / 33)
