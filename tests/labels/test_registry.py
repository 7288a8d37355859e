"""Families found by entry point, and their identities."""

from __future__ import annotations

import importlib
import sys

import pytest

from madbench.errors import FamilyError, LabelError
from madbench.identity import plugins
from madbench.labels import (
    differing_factors,
    expand,
    explain,
    factors,
    families,
    family_identity,
    family_of,
    levels,
    parse,
    reading_problem,
    registry,
)
from madbench.labels.parsing import as_label

SOURCE = '''
from dataclasses import dataclass

from madbench import mixers
from madbench.errors import LabelError


@dataclass(frozen=True)
class Number:
    value: int

    def __str__(self):
        return f"num:{self.value}"


@dataclass(frozen=True)
class Settings:
    """None."""


class Family(mixers.Family):
    """Numbers: canonical without leading zeros; nothing is built of them."""

    name, version, Settings = "num", "3", Settings
    explain = solve = build = checks = lambda self, *_: []

    def parse(self, text):
        digits = text.removeprefix("num:")
        if not digits.isdigit():
            raise LabelError(f"{digits!r} is no number")
        return Number(int(digits))

    def factors(self, label):
        return {"parity": "odd" if label.value % 2 else "even", "budget": "matched"}

    def neighbors(self, label):
        return [Number(label.value + 1)]


FAMILY = Family()
'''


@pytest.fixture
def install_numbers_family(tmp_path, monkeypatch):
    """A distribution on the path: the package ``numbers_family`` with the families ``num`` and, broken, ``gone``."""
    package = tmp_path / "numbers_family"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "family.py").write_text(SOURCE)
    metadata = tmp_path / "numbers_family-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers-family\nVersion: 1.5\n")
    points = (
        "num = numbers_family.family:FAMILY",
        "gone = no_such_module_at_all:Family",
        "alias = numbers_family.family:FAMILY",
    )
    (metadata / "entry_points.txt").write_text("\n".join(["[madbench.families]", *points]))
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("numbers_family")]:
        del sys.modules[name]
    monkeypatch.undo()
    forget()


def forget():
    """Search for families again, as a new process does."""
    importlib.invalidate_caches()
    for function in (registry.REGISTRY, plugins.plugin_code, plugins.plugin_identity):
        function.cache_clear()


def test_the_prefix_chooses_the_family(install_numbers_family):
    assert family_of("S-c").name == family_of(parse("S-c")).name == ""
    assert family_of("num:7").name == family_of(parse("num:7")).name == "num"
    assert {"", "num", "gone"} <= set(families())


def test_a_family_label_is_written_canonically(install_numbers_family):
    assert str(parse("num:007")) == "num:7" and parse("num:007") == parse("num:7")
    assert expand(["S", "num:{1,02,2}"]) == ["S", "num:1", "num:2"]


def test_an_object_of_the_family_is_a_label_before_any_text_was_parsed(install_numbers_family):
    label = family_of("num:7").neighbors(family_of("num:7").parse("num:7"))[0]
    assert str(label) == "num:8" and as_label(label) is label


@pytest.mark.parametrize("name", ["neighbors", "neighbours"])
def test_the_family_defines_the_neighborhood_of_a_label_also_under_the_former_name(install_numbers_family, name):
    source = install_numbers_family / "numbers_family" / "family.py"
    source.write_text(source.read_text().replace("def neighbors", f"def {name}"))
    assert expand(["~num:1"]) == ["num:1", "num:2"]
    assert [*map(str, family_of("num:1").neighbours(parse("num:1")))] == ["num:2"]


def test_labels_of_two_families_also_differ_in_the_factor_family(install_numbers_family):
    assert differing_factors(parse("num:1"), parse("num:2")) == ("parity",)
    assert differing_factors(parse("num:1"), parse("num:3")) == ()
    assert differing_factors(parse("num:1"), parse("S"))[:3] == ("family", "parity", "budget")


def test_levels_default_to_the_factors_of_the_family(install_numbers_family):
    assert levels(parse("num:1")) == {"parity": "odd", "budget": "matched"}


def test_an_error_of_the_family_reaches_the_user(install_numbers_family):
    with pytest.raises(LabelError, match="'x' is no number"):
        parse("num:x")


def test_an_unknown_family_names_the_nearest_installed_one(install_numbers_family):
    with pytest.raises(LabelError) as caught:
        parse("nun:7")
    assert str(caught.value) == "label 'nun:7'\n       ^ unknown family 'nun' before the colon; did you mean 'num'?"


def test_an_error_names_the_reason_that_a_family_cannot_be_loaded(install_numbers_family):
    with pytest.raises(LabelError, match="'gone'.*cannot be loaded.*no_such_module_at_all"):
        parse("gone:1")


@pytest.mark.parametrize(
    ("line", "instead", "fault"),
    [
        ("def neighbors", "def neigbors", "it has no 'neighbors', which every family needs; did you mean 'neigbors'"),
        (", Settings = ", ", Options = ", "it has no 'Settings', which every family needs"),
        ("= checks =", "=", "it has no 'checks', which every family needs"),
        ("(mixers.Family)", "", "its class must derive from madbench.mixers.Family"),
        ('"3", Settings', "3, Settings", "its 'version' must be a text, got 3"),
        ("def neighbors", "traits = 4\n    def neighbors", "its 'traits' must be a method, got 4"),
        ("def neighbors", "example = 4\n    def neighbors", "its 'example' must be a text, got 4"),
        ("def neighbors", "mixers = ['x']\n    def neighbors", "its 'mixers' must be texts by name, got"),
        ("def neighbors", "factor_order = None\n    def neighbors", "its 'factor_order' must be names, got None"),
        ("def neighbors", "level_order = 'abc'\n    def neighbors", "its 'level_order' must be names, got 'abc'"),
        (
            "def neighbors",
            "factor_names = {1: 'x'}\n    def neighbors",
            "its 'factor_names' must be texts by name, got",
        ),
        ("def neighbors", "factor_order = property(lambda _: 1 / 0)\n    def neighbors", "its 'factor_order' cannot"),
        ("def neighbors", "mixers = property(lambda _: 1 / 0)\n    def neighbors", "ZeroDivisionError"),
        ("def neighbors", "example = property(lambda _: 1 / 0)\n    def neighbors", "ZeroDivisionError"),
        ("def neighbors", "is_bidirectional = 1\n    def neighbors", "'is_bidirectional' must be true or false"),
        ("@dataclass(frozen=True)\nclass Settings", "class Settings", "its 'Settings' must be a frozen dataclass"),
        ('"3", Settings', '"", Settings', "its 'version' must be a text of one line that is not empty, got ''"),
        ('"3", Settings', '"3\\n", Settings', "its 'version' must be a text of one line"),
        ('version, Settings = "num", "3", ', 'Settings = "num", ', "it has no 'version', which every family needs"),
        ("FAMILY = Family()", "FAMILY = Family", "it is a class; name an instance in the entry point"),
        ('"""None."""', "width: int", "its 'Settings' have no default for 'width'"),
    ],
)
def test_a_missing_or_wrong_member_of_a_family_is_an_error_when_it_is_loaded(
    install_numbers_family, line, instead, fault
):
    source = install_numbers_family / "numbers_family" / "family.py"
    assert line in source.read_text()
    source.write_text(source.read_text().replace(line, instead))
    with pytest.raises(LabelError, match=f"family 'num' .*cannot be loaded: .*{fault}"):
        parse("num:1")


@pytest.mark.parametrize("text", ["S", "cd:exp", "7"])
def test_parse_returning_a_label_of_another_family_is_an_error(install_numbers_family, text):
    """The other family would parse the text and does not know the label."""
    source = install_numbers_family / "numbers_family" / "family.py"
    source.write_text(source.read_text().replace('f"num:{self.value}"', repr(text)))
    with pytest.raises(FamilyError, match=f"family 'num' .*: parse.*expected a label of this family, num:.*{text}"):
        parse("num:1")


@pytest.mark.parametrize("rows", ["[None]", "['a', 'b']", "'ab'"])
def test_explain_returning_wrong_types_is_an_error(install_numbers_family, rows):
    source = install_numbers_family / "numbers_family" / "family.py"
    text = source.read_text().replace("explain = solve", "solve")
    source.write_text(
        text.replace("def neighbors", f"def explain(self, label):\n        return {rows}\n\n    def neighbors")
    )
    with pytest.raises(FamilyError, match=r"family 'num' .*: explain.*expected rows of madbench.mixers.Explanation"):
        explain(parse("num:1"))


@pytest.mark.parametrize("answer", ["{1: 'odd'}", "{'parity': None}", "{'parity': 3, 'budget': 'matched'}"])
def test_factors_of_wrong_types_are_an_error(install_numbers_family, answer):
    source = install_numbers_family / "numbers_family" / "family.py"
    source.write_text(
        source.read_text().replace("def factors(self, label):", f"def factors(self, label):\n        return {answer}")
    )
    with pytest.raises(
        FamilyError, match=r"family 'num' .*: factors\('num:1'\): TypeError: expected a mapping of names to texts"
    ):
        factors(parse("num:1"))


def test_a_label_is_unreadable_if_its_family_raises_an_error_without_a_message(install_numbers_family):
    source = install_numbers_family / "numbers_family" / "family.py"
    source.write_text(source.read_text().replace('f"{digits!r} is no number"', ""))
    assert reading_problem("num:x") == "LabelError" and reading_problem("num:1") == ""


def test_control_characters_in_messages_of_a_package_are_replaced(install_numbers_family):
    source = install_numbers_family / "numbers_family" / "family.py"
    raised = 'raise ValueError("\\x1b[31mred\\x07")'
    source.write_text(source.read_text().replace('raise LabelError(f"{digits!r} is no number")', raised))
    with pytest.raises(FamilyError) as caught:
        parse("num:x")
    assert str(caught.value).endswith("parse('num:x'): ValueError: ?[31mred?")


def test_every_built_in_family_defines_traits():
    for name in registry.REGISTRY.built_in:
        family = family_of(f"{name}:" if name else "S")
        assert isinstance(getattr(family, "traits", None), type(family.parse))


def test_a_family_registered_under_another_name_is_refused(install_numbers_family):
    with pytest.raises(LabelError, match="'alias'.*calls itself 'num'"):
        parse("alias:1")


def test_the_identity_of_a_built_in_family_is_its_version():
    assert family_identity(family_of("S")) == family_of("S").version


def test_the_identity_of_a_family_changes_with_its_source_and_version(install_numbers_family):
    first = family_identity(family_of("num:1"))
    assert first.startswith("3+1.5+")
    (install_numbers_family / "numbers_family" / "__pycache__").mkdir(exist_ok=True)
    (install_numbers_family / "numbers_family" / "__pycache__" / "x.pyc").write_bytes(b"cache")
    forget()
    assert family_identity(family_of("num:1")) == first
    (install_numbers_family / "numbers_family" / "kernel.cu").write_text("// faster\n")
    forget()
    edited = family_identity(family_of("num:1"))
    assert edited != first
    metadata = install_numbers_family / "numbers_family-1.5.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.5", "Version: 1.6"))
    forget()
    assert family_identity(family_of("num:1")) == edited.replace("3+1.5+", "3+1.6+")
