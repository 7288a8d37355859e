"""A claim on a store has the same verdict in every item and command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from madbench.analysis.quantities import p_text
from madbench.papers import load_paper
from madbench.papers.claim_family import judge_item
from madbench.papers.making import Request, measure_of
from madbench.papers.shipped import MEASURED, results_in
from madbench.store.archive import unpack
from madbench.store.runs import Store


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> Path:
    """A store with the runs of a profile of MAD and of two protocols of language models."""
    results = tmp_path_factory.mktemp("shipped") / "results"
    for name in ("evening", "papers/tiny"):
        unpack(MEASURED / f"{name}.tar.xz", Store.open(results))
    return results


def judgments_of(item: str, results: Path) -> Iterator[tuple[str, str, str, str]]:
    """Statement, verdict, reason and command of each claim of an item."""
    paper = load_paper("hypermlp")
    request = Request(paper, paper.item(item), seeds="0-2", results=results)
    verdicts, remarks, command = judge_item(request, results_in(request, measure_of(request.item)))
    assert verdicts and command
    return ((statement, verdicts[statement], remarks[statement], command) for statement in verdicts)


@pytest.mark.slow
def test_items_quote_the_verdicts_and_p_values_of_findings(main, shipped):
    said: dict[str, set[tuple[str, str]]] = {}
    for item in ("table1", "quick"):
        for statement, verdict, remark, command in judgments_of(item, shipped):
            assert command == "madbench findings --claims hypermlp"
            said.setdefault(statement, set()).add((verdict, remark))
    assert len(said) > 3 and {len(each) for each in said.values()} == {1}
    found = json.loads(main("findings", "--claims", "hypermlp", "--results", shipped, "-f", "json").stdout)
    by_statement = {f"{row['title']}, {row['quantity']}": row for row in found["cells"]}
    for statement, ((verdict, remark),) in said.items():
        row = by_statement[statement]
        assert row["verdict"] == verdict and f"p {p_text(row['p_holm'])} after Holm" in remark


@pytest.mark.slow
@pytest.mark.parametrize("item", ["table1_language", "table1_language_long_decay"])
def test_an_item_under_another_protocol_names_its_own_findings_command(main, shipped, item):
    lines = [*judgments_of(item, shipped)]
    (command,) = {command for *_, command in lines}
    assert "-t language_model -p tiny" in command
    found = json.loads(main(*command.split()[1:], "--results", shipped, "-f", "json").stdout)
    by_statement = {f"{row['title']}, {row['quantity']}": row for row in found["cells"]}
    for statement, verdict, remark, _ in lines:
        row = by_statement[statement]
        assert row["verdict"] == verdict and f"p {p_text(row['p_holm'])} after Holm" in remark


@pytest.mark.slow
def test_verdicts_from_chosen_settings_have_a_note(main, shipped):
    ended = main("paper", "hypermlp", "quick", "--seeds", "0-2", "--no-figures", "--results", shipped)
    note = "settings chosen by the published order of @choosing"
    assert f"supported ({note}): Sequence mixing is a large gain" in ended.stdout
    assert f"(quick, {note})" in main("paper", "hypermlp", "--results", shipped).stdout
    found = main("findings", "-p", "evening", "--results", shipped)
    assert "supported §" in found.stdout and f"§: {note}" in " ".join(found.stdout.split())
    cells = json.loads(main("findings", "-p", "evening", "--results", shipped, "-f", "json").stdout)["cells"]
    assert {cell["verdict_note"] for cell in cells if cell["n"]} == {note}
