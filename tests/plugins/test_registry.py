"""The registry of every kind of extension behaves in the same way."""

from __future__ import annotations

import ast
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import madbench
from madbench.cli.shared.packages import KINDS
from madbench.errors import MadbenchError
from madbench.plugins.registry import Registry, entry_point_name

ABSENT = "no_such_module_at_all:X"


@pytest.fixture
def registry(request, monkeypatch):
    """The registry of a kind, with entry points of another package: a broken one, and names that are refused."""
    registry = KINDS[request.param].registry
    taken = next(iter(registry.built_in), None)
    points = [("gone", ABSENT), ("dotted.name", ABSENT), ("twice", "a:X"), ("twice", "b:X")]
    points += [(taken, ABSENT)] if taken else []
    monkeypatch.setattr(metadata, "entry_points", lambda group: [EntryPoint(*point, group) for point in points])
    registry.cache_clear()
    yield registry
    monkeypatch.undo()
    registry.cache_clear()


def test_every_kind_has_a_registry_and_a_group_of_its_own():
    registries = [kind.registry for kind in KINDS.values()]
    assert [registry.noun for registry in registries] == list(KINDS)
    assert len({registry.group for registry in registries}) == len(KINDS)


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_loading_a_broken_extension_is_an_error_with_the_reason(registry):
    assert registry.names == (*registry.built_in, "gone")
    assert registry.built_in.keys().isdisjoint(registry.points)
    with pytest.raises(registry.error, match="no_such_module_at_all"):
        registry.load("gone")
    assert "no_such_module_at_all" in registry.problem("gone") and registry.problem("unknown") == ""
    assert registry.where("gone") == entry_point_name(registry.noun, "gone", ABSENT)
    assert registry.code("unknown") is None


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_refused_extension_names_have_a_reason(registry):
    assert {"dotted.name", "twice"} <= registry.refused.keys()
    assert registry.refused["twice"].endswith("a:X has this name already; uninstall one of the packages")
    assert all(reason.startswith(f"{registry.noun} ") for reason in registry.refused.values())
    for name in registry.built_in.keys() & registry.refused.keys():
        assert registry.refused[name].endswith("the package has to be mended")
    with pytest.raises(registry.error, match="twice"):
        registry.check("twice")
    with pytest.raises(registry.error, match=f"here: unknown {registry.noun} 'gne'; did you mean 'gone'"):
        registry.check("gne", "here: ")


def test_an_extension_is_imported_once_and_only_when_it_is_loaded(monkeypatch):
    loads = []

    def load(name, value):
        loads.append(name)
        if name == "bad":
            raise MadbenchError("it is bad")
        return value

    registry = Registry(
        "madbench.things",
        "thing",
        fault_of_name=lambda name: "",
        load=load,
        built_in=lambda: {"bad": "a:X", "good": "b:X"},
        error=MadbenchError,
    )
    assert registry.names == ("bad", "good") and loads == []
    for _ in range(2):
        assert dict(registry.loadable()) == {"good": "b:X"} and registry.broken() == {"bad": "it is bad"}
        with pytest.raises(MadbenchError, match="^there: it is bad"):
            registry.load("bad", "there: ")
    assert loads == ["bad", "good"]


@pytest.mark.parametrize(
    "texts", [{"title": ""}, {"title": None}, {"heading": "a\x1b[1m"}, {"name": " "}, {"version": 3}]
)
def test_extensions_whose_texts_are_not_one_line_are_refused(monkeypatch, texts):
    value = type("Extension", (), {"title": "Mine"} | texts)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [EntryPoint("mine", "other:X", group)])
    registry = Registry("madbench.things", "thing", fault_of_name=lambda name: "", load=lambda name, _: value)
    assert f"its {next(iter(texts))!r} must be a text of one line" in registry.problem("mine")


def test_an_extension_that_raises_anything_when_it_is_loaded_fails_alone(monkeypatch):
    class Meta(type):
        @property
        def heading(cls):
            raise RuntimeError("no license")

    def load(name, value):
        assert hasattr(Meta("Task", (), {}), "heading")

    monkeypatch.setattr(metadata, "entry_points", lambda group: [EntryPoint("mine", "other:X", group)])
    registry = Registry("madbench.things", "thing", fault_of_name=lambda name: "", load=load)
    assert registry.broken() == {"mine": "thing 'mine' (other:X): cannot be loaded: RuntimeError: no license"}


def test_a_shipped_package_cannot_take_a_name_of_the_core(monkeypatch, tmp_path):
    (tmp_path / "paper").mkdir()
    points = "[madbench.others]\nother = x:Y\n\n[madbench.things]\nmine = paper.thing:X\nown = paper.thing:Z\n"
    (tmp_path / "paper" / "entry_points.txt").write_text(points)
    monkeypatch.setattr("madbench.plugins.registry.PAPERS", tmp_path)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [EntryPoint("mine", "other:X", group)])
    registry = Registry(
        "madbench.things",
        "thing",
        fault_of_name=lambda name: "",
        load=lambda name, value: value,
        built_in=lambda: {"own": "core:X"},
    )
    assert dict(registry.loadable()) == {"own": "core:X", "mine": "paper.thing:X"}
    assert registry.identity("mine") == "" and registry.code("mine") is None
    assert "paper.thing:X has this name already" in registry.refused["mine"]


@pytest.mark.slow
def test_nothing_but_the_registry_reads_entry_points():
    package = Path(madbench.__file__).parent
    readers = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree)}
        if names & {"entry_points", "_entry_points"}:
            readers.add(path.relative_to(package).as_posix())
    assert readers == {"plugins/registry.py"}
