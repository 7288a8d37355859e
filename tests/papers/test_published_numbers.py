"""Published numbers of papers, and the claims on them."""

from __future__ import annotations

import pytest

from madbench.analysis.claims import Claim, load_claims
from madbench.papers import Paper, load_paper
from madbench.papers.claimed_rows import claims_of_item
from madbench.papers.making import Request
from madbench.papers.table_measure import published_numbers


def test_published_numbers_are_of_the_rows_that_the_item_names():
    paper = load_paper("interactions")
    numbers = [published_numbers(Request(paper, paper.item(name))) for name in ("table1", "table2")]
    assert [of_table["S"]["perplexity"] for of_table in numbers] == [62.28, 28.70]
    assert "ha:3" in numbers[0] and "ha:3" not in numbers[1]


def test_rows_with_changes_have_their_published_numbers_and_claims():
    request = Request(paper := load_paper("coefficients"), paper.item("table3"))
    made, published = claims_of_item(request), published_numbers(request)
    assert {claim.quantities for claim in made} == {("validation_loss",)}
    gaps = {name: [published[label]["perplexity"] for label in pair] for name, pair in pairs_of(made).items()}
    assert gaps.pop("mamba2-parted") == [28.84, 28.87]
    assert len(gaps) == 3 and all(better < worse for better, worse in gaps.values())


def pairs_of(made: list[Claim]) -> dict[str, tuple[str, str]]:
    return {claim.name: claim.pairs[0] for claim in made}


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_every_published_perplexity_is_claimed_to_be_below_softmax_attentions(name):
    paper = load_paper("interactions")
    item = paper.item(name)
    pairs = [pair for claim in load_claims(paper.claims_file) if claim.name in item.claims for pair in claim.pairs]
    published = {name.split()[0] for name in published_numbers(Request(paper, item))}
    assert {*pairs} == {(label, "S") for label in published - {"S"}}


def test_published_cells_that_are_no_numbers_are_left_out(tmp_path):
    (tmp_path / "table.csv").write_text("label,compression,memorization\nS,35.2,n/a\nS-p,-,nan\n")
    (tmp_path / "paper.yaml").write_text(
        "title: t\nsource: s\nitems: [{id: a, place: b, title: c, command: ls, published: table.csv}]\n"
    )
    paper = Paper.load(tmp_path / "paper.yaml")
    assert published_numbers(Request(paper, paper.item("a"))) == {"S": {"compression": 35.2}, "S-p": {}}
