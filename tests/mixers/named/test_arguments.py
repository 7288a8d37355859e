"""Labels of named operators: names in any case, and arguments in parentheses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from installed import forget_installed
from madbench.errors import LabelError
from madbench.labels import differing_factors, expand, explain, family_of, parse
from madbench.mixers import solve
from madbench.mixers.named.arguments import all_instances, choices, integer
from madbench.mixers.named.budget import NamedLabel
from madbench.mixers.named.family import FAMILY
from madbench.mixers.named.operators import OPERATORS
from madbench.mixers.named.operators.gdn import GDN


@dataclass(frozen=True)
class MadeUp(GDN):
    """An operator with a flag and an integer."""

    name: ClassVar = "MadeUp"
    meanings: ClassVar = {**GDN.meanings, "n": "steps per token"}
    n: int = integer(default=2, least=1, most=4)


@pytest.fixture(autouse=True, scope="module")
def made_up():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPERATORS, "MadeUp", MadeUp)
        patch.setitem(FAMILY.mixers, "MadeUp", "MadeUp")
        forget_installed()
        yield
    forget_installed()


@pytest.mark.parametrize(
    "text, label",
    [
        ("kda", "KDA"),
        ("Gdn( neg )!", "GDN(neg)!"),
        ("GDN()", "GDN"),
        ("mamba2", "Mamba-2"),
        ("MAMBA-2!", "Mamba-2!"),
        ("named:KDA", "KDA"),
        ("named:madeup(n=3)", "MadeUp(n=3)"),
        ("named:madeup( n = 03 , neg)!", "MadeUp(neg,n=3)!"),
        ("named:madeup(n=2)", "MadeUp"),
    ],
)
def test_a_name_is_read_in_any_case_and_its_arguments_in_any_order(text, label):
    assert str(parse(text)) == label and family_of(text).name == "named"
    assert parse(f"named:{label}") == parse(text)


@pytest.mark.parametrize(
    "text, at, hint",
    [
        ("KDA(x)", 4, "its arguments: neg"),
        ("Mamba-2(neg)", 8, "its arguments: none"),
        ("GDN(neg, neg)", 9, "stands twice"),
        ("GDN(neg=1)", 4, "'neg' takes no value: write GDN(neg), or leave it out"),
        ("KDA(neg", 3, r"expected (argument)"),
        ("named:KDB", 0, "did you mean 'KDA'"),
        ("named:MadeUp(neg,m=3)", 17, "no argument 'm'; its arguments: neg, n=1...4"),
        ("named:MadeUp(n)", 13, "'n' is an integer from 1 to 4, as in MadeUp(n=2)"),
        ("named:MadeUp(n=5)", 13, "'n' is an integer from 1 to 4, not '5', as in MadeUp(n=2)"),
        ("named:MadeUp(n=-1)", 13, "not '-1'"),
        ("named:MadeUp(n=2.0)", 13, "not '2.0'"),
        ("named:MadeUp(n=2,n=2)", 17, "stands twice"),
    ],
)
def test_the_message_on_wrong_arguments_points_at_the_wrong_character(text, at, hint):
    with pytest.raises(LabelError) as error:
        parse(text)
    first, second = str(error.value).splitlines()
    assert hint in second and second.index("^") == first.index(text) + at


def test_an_integer_argument_can_be_varied_and_is_explained():
    assert expand(["MadeUp(n={1,2,3},neg)"]) == ["MadeUp(neg,n=1)", "MadeUp(neg)", "MadeUp(neg,n=3)"]
    one, three = parse("MadeUp(n=1)"), parse("MadeUp(n=3)")
    assert differing_factors(one, three) == ("n",) and differing_factors(parse("MadeUp"), parse("GDN")) == ("operator",)
    assert [(row.letter, row.name) for row in explain(three)[1:-2]] == [("(n=3)", "n")]
    found = solve("MadeUp(n=3)", 64, 2)
    assert found.operator.symbols(found.dims)["n"] == 3
    neighbors = {*map(str, FAMILY.neighbors(three))}
    assert {"MadeUp(n=4)", "MadeUp(neg,n=3)", "MadeUp(n=3)!", "GDN"} <= neighbors and "MadeUp(neg)" not in neighbors


def test_every_operator_describes_each_of_its_arguments():
    for operator in OPERATORS.values():
        assert [word.partition("=")[0] for word in choices(operator)] == [*operator.meanings]
        assert "|" not in operator.equation + operator.parameters + operator.state  # it ends a cell of the docs' table
        first, *others = all_instances(operator)
        assert first == operator() and len(others) < 40


def test_the_page_of_operators_names_all_of_them():
    first = (Path(__file__).parents[3] / "docs/pages/operators.md").read_text("utf-8").split("\n```")[0]
    assert [name for name in OPERATORS if name != "MadeUp" and f"`{name}`" not in first] == []


def test_labels_of_the_srg_grammar_are_not_named_operators():
    assert all(family_of(text).name == "" for text in ("S-p", "G-cg-q-12o", "HyperGLU", "GDNX"))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_label_is_explained_and_differs_from_a_neighbor_in_one_factor(name):
    for label in map(NamedLabel, all_instances(OPERATORS[name])):
        assert parse(str(label)) == label
        rows = explain(label)
        assert rows[0].equation and rows[0].source and any(row.name == "library" for row in rows)
        others = expand([f"~{label}"])
        assert len(others) > 1 and all(len(differing_factors(label, parse(other))) == 1 for other in others[1:])
