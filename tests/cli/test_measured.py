"""The runs that come with the repository are whole, and make the tables of the README.

Of a folder ``quick`` with the runs of the README's sweep and no others, this packs them:

    tar --sort=name --owner=0 --group=0 --mtime=@0 -cJf quick.tar.xz quick/runs
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    with tarfile.open(ROOT / "results" / "measured" / "quick.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "quick"


def test_every_file_is_whole(unpacked, main):
    ended = main("validate", "--store", "--results", str(unpacked), "--json")
    assert ended.code == 0, ended.stderr


@pytest.mark.parametrize(
    ("command", "section", "heading"),
    [
        ("table @table1", "The quick profile", "| Label | Compr."),
        ("attribute @table1", "The quick profile", "| Factor | Compr."),
    ],
)
def test_the_tables_of_the_readme_are_theirs(command, section, heading, unpacked, main):
    text = README.split(f"## {section}\n")[1].split("\n## ")[0]
    (stated,) = [block for block in re.split(r"\n\n", text) if block.startswith(heading)]
    ended = main(*command.split(), "--results", str(unpacked), "--format", "markdown")
    assert ended.code == 0, ended.stderr
    made = [line for line in ended.stdout.splitlines() if line.startswith("| ")]
    assert made[: len(stated.splitlines())] == stated.splitlines()


def test_the_audit_holds_them_against_the_published_table(unpacked, main):
    def correlations(labels: str) -> dict[str, dict]:
        ended = main("audit", labels, "--results", str(unpacked), "--json")
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
