"""Families beside S/R/G, provided by entry points."""

from __future__ import annotations

from importlib import metadata

import pytest

from madbench.errors import LabelError
from madbench.labels import expand, families, family_of, parse
from madbench.labels import registry as family


class Doubler:
    """A family of numbers: canonical without leading zeros."""

    @staticmethod
    def parse(text: str) -> int:
        if not text.isdigit():
            raise LabelError(f"{text!r} is no number")
        return int(text)


@pytest.fixture
def installed(monkeypatch):
    points = {
        "num": metadata.EntryPoint("num", f"{__name__}:Doubler", family.GROUP),
        "gone": metadata.EntryPoint("gone", "no_such_module_at_all:Family", family.GROUP),
    }
    monkeypatch.setattr(family, "_installed", lambda: points)
    monkeypatch.setattr(family, "load_family", lambda name: Doubler if name == "num" else _real_load(name))


_real_load = family.load_family.__wrapped__


def test_the_prefix_chooses_the_family(installed):
    assert family_of("S-c") == "" and family_of("num:7") == "num"
    assert families() == ("gone", "num")


def test_a_family_label_is_written_canonically(installed):
    assert str(parse("num:007")) == "num:7" and parse("num:007") == parse("num:7")
    assert expand(["S", "num:{1,02,2}"]) == ["S", "num:1", "num:2"]


def test_an_error_of_the_family_reaches_the_user(installed):
    with pytest.raises(LabelError, match="'x' is no number"):
        parse("num:x")


def test_an_unknown_family_lists_the_installed_ones(installed):
    with pytest.raises(LabelError) as caught:
        parse("zzz:7")
    assert str(caught.value) == (
        "label 'zzz:7'\n       ^ unknown family 'zzz' before the colon; expected one of: gone, num"
    )


def test_a_family_that_cannot_be_loaded_says_why(installed):
    with pytest.raises(LabelError, match="'gone'.*cannot be loaded.*no_such_module_at_all"):
        parse("gone:1")


def test_another_family_has_no_neighbourhood(installed):
    with pytest.raises(LabelError, match="S/R/G"):
        expand(["~num:1"])
