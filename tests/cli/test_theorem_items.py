"""Theorem items of papers: checks on their labels cover every statement and decide the verdict."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch

from madbench.errors import ConfigError
from madbench.labels import expand, family_of, parse
from madbench.mixers import Check
from madbench.mixers.checks import CheckResult, sample
from madbench.papers import Item, built_in, load_paper
from madbench.papers.making import Request, state_of_verdicts
from madbench.papers.operators import by_loops
from madbench.papers.theorems import TheoremMeasure, outcomes_of, verdict
from madbench.suites import checks_of

NUMBERED_STATEMENTS = {
    "hypermlp": "Theorems 2.1, 2.3, 2.5, C.2, C.5, C.10, C.13, D.4, D.6, D.7, D.9, F.1, F.3 and F.5, Propositions 2.4, "
    "2.6, C.3, C.8, C.9, C.14, E.1, E.8, G.2, G.3, G.4, H.1, H.3, H.5, H.7, H.8, H.10, I.1, I.2 and I.3, Corollaries "
    "2.2, C.7, C.12, D.10, F.4 and H.4, Lemmas B.2, C.1, C.6, D.2, D.3, D.11, E.2, E.6 and G.1, Remarks C.11, C.15, "
    "C.16, D.5, E.4, E.5, E.7, E.9, E.10, F.2, G.5, H.2, H.6, H.9 and H.11",
    "interactions": "Theorems 3.1, 3.2, 4.4, 4.6, 4.8, B.2, B.6, E.2, G.4 and G.7, Corollaries 4.9, B.1 and D.3, "
    "Lemmas B.4, B.5, C.1, C.2, C.3, C.4, G.8 and G.9, Remarks B.7, D.1, D.2, E.3, F.4, F.5, F.6 and G.2",
    "coefficients": "Lemmas 1 to 14, Corollaries 2.1, 2.2 and 6.1, Remarks 1 to 5, Principles 2.1, 2.2, 3, 5 and 6",
}
"""The numbered statements of a paper that a computation can decide without training."""

CHECKED_ITEMS = [(name, item.id) for name in built_in() for item in load_paper(name).items if item.checks]
"""Papers and their items that checks decide."""

STATEMENT = re.compile(
    r"(Theorem|Lemma|Corollar|Proposition|Remark|Principle)(?:y|ies|s)? "
    r"(\w[\d.]*(?:(?:, | and | to )(?:[A-Z]\.)?\d[\d.]*)*)"
)


def checks_by_label(command: str) -> dict[str, list[Check]]:
    """The checks that run, by label of a command ``verify LABEL...``."""
    return {
        str(label): [
            check
            for check in (*family_of(label).checks(parse(label)), *checks_of(parse(label)))
            if check.run is not None
        ]
        for label in expand(command.split()[1:])
    }


def statements(text: str) -> set[tuple[str, str]]:
    """The numbered statements that a text names.

    ``Lemmas 1 to 3, Theorem B.2`` names Lemma 1, 2 and 3, and Theorem B.2.
    """
    named = set()
    for kind, numbers in STATEMENT.findall(text):
        first, _, last = numbers.partition(" to ")
        if last:
            section = first[: -len(first.split(".")[-1])]
            ends = (int(number.split(".")[-1]) for number in (first, last))
            named |= {(kind, f"{section}{number}") for number in range(next(ends), next(ends) + 1)}
        else:
            named |= {(kind, number) for number in re.split(", | and ", numbers)}
    return named


def named_checks(item: Item) -> dict[str, list[Check]]:
    """The checks of an item that names them, by label."""
    return {
        label: [check for check in checks if check.name in item.checks]
        for label, checks in checks_by_label(f"verify {' '.join(item.labels)}").items()
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Lemmas 7 to 9", "7 8 9"),
        ("Theorems 2.5, F.3 and F.5", "2.5 F.3 F.5"),
        ("Table 3, Propositions G.2 to G.4", "G.2 G.3 G.4"),
    ],
)
def test_statements_reads_theorem_numbers_from_text(text, numbers):
    assert {number for _, number in statements(text)} == set(numbers.split())
    assert statements("eq. 20, section 5") == set()


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "item"), CHECKED_ITEMS)
def test_the_checks_of_an_item_cover_every_statement_that_it_names(paper, item):
    item = load_paper(paper).item(item)
    checks = [check for of_label in named_checks(item).values() for check in of_label]
    assert {*item.checks} == {check.name for check in checks}
    assert statements(item.place) <= set().union(*(statements(check.source) for check in checks))


@pytest.mark.parametrize("paper", NUMBERED_STATEMENTS)
def test_every_numbered_statement_of_a_paper_has_an_item_without_training(paper):
    places = [statements(item.place) for item in load_paper(paper).items if item.is_made_here and not item.profiles]
    assert statements(NUMBERED_STATEMENTS[paper]) <= set().union(*places)


@pytest.mark.slow
def test_lemmas_of_coefficients_are_checked_in_every_case_they_distinguish():
    stated = {
        item.id: {check.statement for checks in named_checks(item).values() for check in checks}
        for item in load_paper("coefficients").items
        if item.checks
    }
    assert {"phi(s + r) = phi(s) + phi(r): a state of fixed size."} < stated["lemma1"]  # both ways
    assert {"phi(s + r) differs from phi(s) + phi(r): no state of fixed size."} < stated["lemma1"]
    assert {f"A share {share} of normal scores has coefficient 0." for share in ("0", "0.5")} < stated["lemma2"]
    assert {"With A = I, equal tokens have equal coefficients at all positions."} < stated["lemma3"]  # both ways
    assert {"Equal tokens at different positions have different coefficients."} < stated["lemma3"]
    kinds = ("a multiple of the identity", "diagonal", "a gate times I - beta w w^T, |w| = 1")  # a to c
    assert {f"A is {kind}." for kind in kinds} < stated["lemma4"]
    scales = ("grows as n^1", "is independent of n")  # with b = 1 and 1 / sqrt(n)
    assert {f"The variance of a score {scale}." for scale in scales} < stated["lemma5"]
    first = (
        "For equal keys with q . k = 1, the coefficient of the first"  # an A that is not stable, with and without eta
    )
    assert {f"{first} grows without bound.", f"{first} does not grow."} < stated["lemma6"]


def test_theorem2_1_is_checked_only_on_labels_with_normalized_relu():
    """Theorem 2.1 is about ReLU after L2Norm, in token-wise and context-wide form."""
    assert all(label.startswith("R-") for label in load_paper("hypermlp").item("theorem2.1").labels)


@pytest.mark.slow
def test_a_theorem_that_does_not_hold_as_printed_is_contradicted(main, tmp_path):
    made = main("paper", "interactions", "theoremB.2", "--results", tmp_path, "-f", "json")
    assert made.code == 0, made.stderr
    content = json.loads(made.stdout)
    by_check = {statement.partition(",")[0]: value for statement, value in content["verdicts"].items()}
    assert by_check["approximation in general"] == "contradicted" and by_check["narrow vectors"] == "reproduced"
    listed = json.loads(main("paper", "interactions", "--results", tmp_path, "-f", "json").stdout)["items"]
    assert {row["item"]: row["state"] for row in listed}["theoremB.2"] == "contradicted"


@pytest.mark.parametrize(
    ("contradicts", "residual", "expected"),
    [
        (False, 0.0, "reproduced"),
        (False, 2.0, "fails here"),
        (True, 0.0, "contradicted"),
        (True, 2.0, "fails here"),
    ],
)
def test_the_verdict_on_a_theorem_follows_from_its_check(contradicts, residual, expected):
    check = Check("a", "b", "c", lambda: residual, 1.0, contradicts=contradicts)
    assert verdict(CheckResult(check, residual)) == expected
    assert verdict(CheckResult(replace(check, reason="no gates"))) == "not decided"


@pytest.mark.parametrize(
    ("contradicts", "by_loops", "expected"),
    [(False, 2.0, "contradicted"), (False, 0.0, "fails here"), (False, None, "fails here"), (True, 2.0, "fails here")],
)
def test_a_failed_check_contradicts_the_paper_only_if_the_reference_fails_too(contradicts, by_loops, expected):
    check = Check("a", "b", "c", lambda: 2.0, 1.0, contradicts=contradicts)
    loops = None if by_loops is None else CheckResult(check, by_loops)
    assert verdict(CheckResult(check, 2.0), loops) == expected
    broken = CheckResult(check, error="ValueError: no such key")
    assert verdict(CheckResult(check, 2.0), broken) == "fails here"


def explicit_construction() -> Request:
    """The construction of Proposition I.2 in one label, as an item."""
    paper = load_paper("hypermlp")
    item = replace(paper.item("propositionI.2"), labels=("R-q-1o",), checks=("explicit construction",))
    return Request(paper, item)


@pytest.mark.slow
def test_an_identity_that_only_our_operator_violates_fails_here(monkeypatch):
    monkeypatch.setattr("madbench.mixers.srg.parts._norm", lambda h: torch.ones_like(h[..., :1]))
    made = TheoremMeasure().decide(explicit_construction(), None)
    assert [*made.verdicts.values()] == ["fails here"] and made.exit_code == 1
    (remark,) = made.remarks.values()
    assert "our operator alone fails it" in remark


@pytest.mark.slow
def test_an_identity_that_operator_and_reference_violate_contradicts_the_paper(monkeypatch):
    monkeypatch.setattr("madbench.mixers.srg.theorems.boundaries.EPS", 1.0)  # the paper's side of the identity
    made = TheoremMeasure().decide(explicit_construction(), None)
    assert [*made.verdicts.values()] == ["contradicted"] and made.exit_code == 1
    (remark,) = made.remarks.values()
    assert "our operator and the loops both fail it" in remark


@pytest.mark.slow
def test_a_violated_identity_of_an_operator_unlike_its_reference_fails_here(monkeypatch):
    monkeypatch.setattr("madbench.mixers.srg.theorems.boundaries.EPS", 1.0)
    monkeypatch.setattr("madbench.mixers.srg.parts._norm", lambda h: torch.ones_like(h[..., :1]))
    made = TheoremMeasure().decide(explicit_construction(), None)
    assert [*made.verdicts.values()] == ["fails here"]


@pytest.mark.slow
@pytest.mark.parametrize(("bound", "code"), [(1e-12, 0), (1.0, 1)])
def test_a_theorem_item_whose_check_fails_exits_with_1(main, monkeypatch, tmp_path, bound, code):
    monkeypatch.setattr("madbench.mixers.srg.theorems.boundaries.EPS", bound)
    made = main("paper", "hypermlp", "propositionI.2", "R-q-1o", "--results", tmp_path, "-f", "json")
    assert made.code == code
    assert json.loads(made.stdout)["state"] == ("contradicted" if code else "reproduced")


def test_by_loops_replaces_mixers_with_the_reference_only_inside_its_block():
    mixer, x = sample(family_of("R"), parse("R"))
    with by_loops() as called:
        inside = mixer(x)
    assert called == ["DynamicMLP"] and torch.equal(inside, mixer.reference(x))
    mixer(x)
    assert called == ["DynamicMLP"]
    with by_loops() as called:
        torch.nn.Linear(2, 2)(torch.zeros(2))
    assert called == []


def test_a_failed_check_of_an_item_fails_here_and_an_unknown_one_is_refused(monkeypatch):
    paper = load_paper("interactions")
    item = replace(paper.item("theoremB.6"), checks=("effect of shifts",))
    with pytest.raises(ConfigError, match="no check 'effect of shifts' of hfa:C1; did you mean 'effects of shifts'"):
        outcomes_of(Request(paper, item))
    monkeypatch.setattr("madbench.papers.interactions.theorems.representation.wave_couplings", lambda effect: 0)
    made = TheoremMeasure().decide(Request(paper, paper.item("theoremB.6")), None)
    (wrong,) = [statement for statement, value in made.verdicts.items() if value == "fails here"]
    assert state_of_verdicts(made.verdicts) == "fails here" and wrong.startswith("effects of shifts")


def test_items_without_training_refuse_options_of_training(main):
    for options in (["--seeds", "0"], ["training.epochs=2"], ["--profile", "full"], ["--device", "cpu"]):
        refused = main("paper", "interactions", "theoremB.6", *options)
        assert refused.code == 2 and "has no effect on theoremB.6" in refused.stderr


@pytest.mark.slow
def test_labels_in_statements_are_printed_unchanged(main, tmp_path):
    made = main("paper", "coefficients", "lemma2", "--results", tmp_path)
    assert made.code == 0, made.stderr
    assert "V16 constant, cd:id: c is not constant" in made.stdout
