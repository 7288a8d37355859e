"""The identity of a user's module covers exactly the definitions that its class uses, in any file."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from installed import forget_installed
from madbench.errors import LabelError
from madbench.identity import watch
from madbench.identity.listing import KIND, MOST_BYTES, CodeState, code_state, recorded_files
from madbench.labels import label_identity, trust
from madbench.mixers.my import code
from madbench.mixers.my.code import users_code

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

MIXER = """\
import torch
from torch import nn
from helper import scale

class Mixer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(scale(x))
"""
HELPER = "def scale(x):\n    return 2 * x\n\ndef other(x):\n    return 3 * x\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = {*sys.modules}
    trust.allow(["my:mixer.Mixer", "my:mixer.Other"])
    yield tmp_path
    trust.forget_allowed()
    forget(before)


def forget(before=()):
    """Make this process forget all modules of the user that it imported."""
    for name, module in list(sys.modules.items()):
        if name not in before and "pytest-" in (
            getattr(module, "__file__", None) or str(getattr(module, "__path__", ""))
        ):
            del sys.modules[name]
    for noted in (watch.notes, watch.executed, watch.watched):
        noted.clear()
    forget_installed()


def write(files):
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def identity(label="my:mixer.Mixer"):
    forget()
    trust.allow([label])
    return label_identity(label)


def listing_of(label="mixer.Mixer"):
    forget()
    trust.allow([f"my:{label}"])
    return users_code(label).listing


MIXER_AND_HELPER = {"mixer.py": MIXER, "helper.py": HELPER}


def with_import(line, use="scale(x)"):
    return MIXER.replace("scale(x)", use).replace("from helper import scale", line)


PLACES = {
    "beside": {"mixer.py": MIXER, "helper.py": HELPER},
    "module": {"mixer.py": with_import("import helper").replace("scale(x)", "helper.scale(x)"), "helper.py": HELPER},
    "namespace package": {"mixer.py": with_import("from lib.helper import scale"), "lib/helper.py": HELPER},
    "namespace module": {
        "mixer.py": with_import("import lib.helper").replace("scale(x)", "lib.helper.scale(x)"),
        "lib/helper.py": HELPER,
    },
    "inserted path": {
        "mixer.py": "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent / 'lib'))\n"
        + MIXER,
        "lib/helper.py": HELPER,
    },
    "importlib": {
        "mixer.py": with_import("import importlib\nscale = importlib.import_module('hel' + 'per').scale"),
        "helper.py": HELPER,
    },
    "importlib in a function": {
        "mixer.py": with_import("from importlib import import_module").replace(
            "scale(x)", "import_module('hel' + 'per').scale(x)"
        ),
        "helper.py": HELPER,
    },
    "file of its own loader": {
        "mixer.py": with_import(
            "import importlib.util as util\n"
            "spec = util.spec_from_file_location('loaded', 'lib/helper.py')\n"
            "loaded = util.module_from_spec(spec)\nspec.loader.exec_module(loaded)\nscale = loaded.scale"
        ),
        "lib/helper.py": HELPER,
    },
    "star": {"mixer.py": with_import("from helper import *"), "helper.py": HELPER},
    "import in forward": {
        "mixer.py": with_import("").replace("return self", "from helper import scale\n        return self"),
        "helper.py": HELPER,
    },
    "import that may fail": {
        "mixer.py": with_import("try:\n    from helper import scale\nexcept ImportError:\n    scale = None"),
        "helper.py": HELPER,
    },
    "re-export": {"mixer.py": with_import("from lib import scale"), "lib/__init__.py": "from .helper import scale\n"}
    | {"lib/helper.py": HELPER},
    "through a second helper": {
        "mixer.py": with_import("from second import twice as scale"),
        "second.py": "import helper as h\ntwice = lambda x: h.scale(x)\n",
        "helper.py": HELPER,
    },
    "registry": {
        "mixer.py": with_import("from table import TABLE\nimport helper").replace("scale(x)", "TABLE['scale'](x)"),
        "table.py": "TABLE = {}\ndef register(f):\n    TABLE[f.__name__] = f\n    return f\n",
        "helper.py": f"from table import register\n@register\n{HELPER}",
    },
    "subclasses": {
        "mixer.py": with_import("import base, helper").replace("scale(x)", "base.Base.__subclasses__()[0].scale(x)"),
        "base.py": "class Base:\n    pass\n",
        "helper.py": "from base import Base\nclass A(Base):\n    scale = lambda x: 2 * x\n",
    },
    "getattr": {
        "mixer.py": with_import("import helper").replace("scale(x)", "getattr(helper, 'sca' + 'le')(x)"),
        "helper.py": HELPER,
    },
    "attribute of the class": {
        "mixer.py": with_import("import helper") + "\nMixer.scale = staticmethod(helper.scale)\n",
        "helper.py": HELPER,
    },
    "base class": {
        "mixer.py": "from helper import Base\nclass Mixer(Base):\n    pass\n",
        "helper.py": MIXER.replace("from helper import scale", "scale = lambda x: 2 * x").replace("Mixer", "Base"),
    },
    "made by a function": {
        "mixer.py": "from helper import Base as Made\ndef Mixer(d_model):\n    return Made(d_model)\n",
        "helper.py": MIXER.replace("from helper import scale", "scale = lambda x: 2 * x").replace("Mixer", "Base"),
    },
    "part chosen by text": {
        "mixer.py": "import parts\nfrom torch import nn\nclass Mixer(nn.Module):\n"
        "    def __init__(self, d_model):\n        super().__init__()\n"
        "        self.part = parts.make('Part', d_model)\n"
        "    def forward(self, x):\n        return self.part(x)\n",
        "parts.py": "import helper\ndef make(name, *sizes):\n    return vars(helper)[name](*sizes)\n",
        "helper.py": MIXER.replace("from helper import scale", "scale = lambda x: 2 * x").replace("Mixer", "Part"),
    },
}


def test_a_module_in_a_folder_without_an_init_file_has_an_identity(folder):
    write({"plain/mixer.py": MIXER, "helper.py": HELPER})
    first = identity("my:plain.mixer.Mixer")
    assert first == identity("my:plain.mixer.Mixer")
    write({"plain/mixer.py": MIXER.replace("scale(x))", "scale(x) + x)")})
    assert identity("my:plain.mixer.Mixer") != first


@pytest.mark.slow
@pytest.mark.parametrize("files", PLACES.values(), ids=PLACES)
def test_a_helper_in_any_folder_is_part_of_the_identity(files):
    write(files)
    first = identity()
    helper = next(Path(name) for name in files if name.endswith("helper.py"))
    helper.write_text(f"# a comment\n{helper.read_text()}")
    assert identity() == first
    helper.write_text(helper.read_text().replace("2 * x", "2.5 * x"))
    assert identity() != first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("FACTOR = float(open('lib/factor.txt').read())", "FACTOR"),
        (
            "import yaml\nfrom pathlib import Path\nFACTOR = yaml.safe_load(Path('lib/factor.txt').read_text())",
            "FACTOR",
        ),
        ("def factor():\n    with open('lib/factor.txt') as file:\n        return float(file.read())", "factor()"),
        (
            "import functools\n@functools.cache\ndef factor():\n    return float(open('lib/factor.txt').read())",
            "factor()",
        ),
        ("import numpy\nFACTOR = numpy.loadtxt('lib/factor.txt')", "float(FACTOR)"),
    ],
    ids=["open", "yaml", "in forward", "cached", "numpy"],
)
def test_only_data_files_that_the_module_opens_are_in_its_identity(line, read):
    write({"mixer.py": with_import(line).replace("scale(x)", f"x * {read}"), "lib/factor.txt": "2", "lib/b.txt": "1"})
    first = identity()
    assert list(listing_of()["data"]) == ["lib/factor.txt"]
    write({"lib/b.txt": "2"})
    assert identity() == first
    write({"lib/factor.txt": "3"})
    assert identity() != first


EDITS_OF_UNUSED_CODE = {
    "comment": MIXER + "# a comment\n",
    "formatting": MIXER.replace("scale(x)", "scale(\n            x,\n        )"),
    "docstring": MIXER.replace("class Mixer(nn.Module):", 'class Mixer(nn.Module):\n    """A mixer."""'),
    "function": MIXER + "\ndef unrelated():\n    return 1\n",
    "class": MIXER + "\nclass Unrelated(nn.Module):\n    width = 3\n",
    "constant": MIXER + "\nUNRELATED = 3\n",
    "import": MIXER.replace("import torch\n", "import math\nimport torch\n"),
    "name of an import": MIXER.replace("import nn", "import Tensor, nn"),
    "quotes and parentheses": MIXER.replace("return self.out(scale(x))", "return (self.out(scale((x))))"),
    "main guard": MIXER + "\nif __name__ == '__main__':\n    print(Mixer(16))\n",
    "names for types": MIXER.replace(
        "from helper", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x\nfrom helper"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("text", EDITS_OF_UNUSED_CODE.values(), ids=EDITS_OF_UNUSED_CODE)
def test_code_that_the_class_does_not_use_does_not_change_its_identity(text):
    write(MIXER_AND_HELPER)
    first = identity()
    write({"mixer.py": text})
    assert identity() == first
    write({"helper.py": HELPER.replace("3 * x", "4 * x"), "beside.py": "x = 1\n"})
    assert identity() == first


EDITS_OF_USED_CODE = {
    "constant": (with_import("FACTOR = 2", "FACTOR * x"), "FACTOR = 2", "FACTOR = 3"),
    "attribute": (
        with_import("", "self.factor * x").replace("    def __init__", "    factor = 2\n\n    def __init__"),
        "factor = 2",
        "factor = 3",
    ),
    "decorator": (
        with_import(
            "def double(f):\n    return lambda *a: 2 * f(*a)\n@double\ndef scale(x):\n    return x", "scale(x)"
        ),
        "2 * f",
        "3 * f",
    ),
    "lambda": (with_import("scale = lambda x: 2 * x", "scale(x)"), "2 * x", "3 * x"),
    "closure": (
        with_import(
            "def make():\n    factor = 2\n    def f(x):\n        return factor * x\n    return f\nf = make()", "f(x)"
        ),
        "factor = 2",
        "factor = 3",
    ),
    "default": (with_import("F = 2\ndef scale(x, f=F):\n    return f * x", "scale(x)"), "F = 2", "F = 3"),
    "type alias": (
        with_import("Made = nn.Identity\nMakes = {'a': Made}\ndef scale(x):\n    return Makes['a']()(x)", "scale(x)"),
        "nn.Identity",
        "nn.ReLU",
    ),
    "second definition": (
        with_import("def scale(x):\n    return x\nif True:\n    def scale(x):\n        return 2 * x", "scale(x)"),
        "2 *",
        "3 *",
    ),
    "item": (with_import("TABLE = {}\nTABLE['a'] = 2", "TABLE['a'] * x"), "= 2", "= 3"),
    "global": (with_import("F = 1\ndef set_it():\n    global F\n    F = 2\nset_it()", "F * x"), "F = 2", "F = 3"),
    "effect": (with_import("torch.set_printoptions(precision=4)", "x"), "=4", "=5"),
    "patch": (
        with_import("def relu(x):\n    return 2 * x\nnn.functional.own_relu = relu", "nn.functional.own_relu(x)"),
        "2 *",
        "3 *",
    ),
    "loop": (with_import("for n in ('a', 'b'):\n    globals()[n] = 2", "a * x"), "= 2", "= 3"),
    "f-string": (with_import("def scale(x):\n    return x * len(f'{1:.2f}')", "scale(x)"), ".2f", ".3f"),
    "import": (with_import("from math import sqrt as f", "f(4.0) * x"), "sqrt", "exp"),
    "named expression": (with_import("if (F := 2) > 1:\n    pass", "F * x"), "F := 2", "F := 3"),
    "order of effects": (with_import("L = []\nL.append(1)\nL.append(2)", "L[0] * x"), "L.append(1)\n", "L.append(3)\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "old", "new"), EDITS_OF_USED_CODE.values(), ids=EDITS_OF_USED_CODE)
def test_code_that_the_class_uses_by_name_changes_its_identity(text, old, new):
    assert old in text
    write({"mixer.py": text})
    first = identity()
    write({"mixer.py": text.replace(old, new)})
    assert identity() != first


@pytest.mark.slow
def test_relative_imports_are_in_the_identity_but_not_the_rest_of_the_package():
    files = {
        "pack/__init__.py": "",
        "pack/mixer.py": with_import("from .sub.helper import scale"),
        "pack/sub/helper.py": HELPER,
    }
    write(files | {"pack/other.py": "x = 1\n", "pack/notes.txt": "x"})
    first = identity("my:pack.mixer.Mixer")
    assert list(listing_of("pack.mixer.Mixer")["files"]) == ["pack/mixer.py", "pack/sub/helper.py"]
    write({"pack/other.py": "x = 2\n", "pack/notes.txt": "y"})
    assert identity("my:pack.mixer.Mixer") == first
    write({"pack/sub/helper.py": HELPER.replace("2 * x", "3 * x")})
    assert identity("my:pack.mixer.Mixer") != first


@pytest.mark.slow
def test_identities_of_two_classes_in_one_file_do_not_depend_on_their_order():
    text = with_import("def load(name):\n    return float(open(name).read())")
    a, b = text.replace("scale(x)", "load('a.txt') * x"), text.replace("scale(x)", "load('b.txt') * x")
    write({"mixer.py": a + b[b.index("class") :].replace("Mixer", "Other"), "a.txt": "1", "b.txt": "2"})
    alone = identity("my:mixer.Other")
    identity()
    assert label_identity("my:mixer.Other") == alone
    assert list(users_code("mixer.Other").listing["data"]) == ["b.txt"]


@pytest.mark.slow
def test_the_identity_is_the_same_if_the_module_was_already_imported():
    write({"mixer.py": with_import("F = float(open('f.txt').read())").replace("scale(x)", "F * x"), "f.txt": "2"})
    first = identity()
    forget()
    import mixer  # noqa: F401

    assert label_identity("my:mixer.Mixer") == first


@pytest.mark.parametrize("name", ["site-packages", "dist-packages", "vendored"])
def test_the_identity_of_a_module_in_site_packages_has_only_its_own_file(tmp_path, monkeypatch, name):
    site = tmp_path / name
    write({str(site / "mixer.py"): MIXER, str(site / "helper.py"): HELPER, str(site / "big.py"): "x = 1\n"})
    if name == "vendored":  # as pip install --target leaves it
        write({str(site / "helper-1.0.dist-info" / "RECORD"): "helper.py,,\n"})
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    assert list(listing_of()["files"]) == ["mixer.py"]


def test_the_identity_of_a_package_in_site_packages_has_all_used_files(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    mixer = with_import("from pack.helper import scale")
    write(
        {str(site / "pack/__init__.py"): "", str(site / "pack/mixer.py"): mixer, str(site / "pack/helper.py"): HELPER}
    )
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    assert list(listing_of("pack.mixer.Mixer")["files"]) == ["pack/mixer.py", "pack/helper.py"]


def test_the_identity_of_the_sample_and_of_torch_modules_has_one_file():
    assert list(listing_of("madbench.mixers.my.sample.GatedMean")["files"]) == ["madbench/mixers/my/sample.py"]
    assert list(listing_of("torch.nn.Identity")["files"]) == ["torch/nn/__init__.py"]


def test_the_code_of_a_label_does_not_depend_on_the_labels_named_before_it():
    write({"mixer.py": with_import("import pack.helper").replace("scale(x)", "pack.read(x)"), "factor.txt": "2"})
    write({"site-packages/pack/__init__.py": "from pack.helper import read\n"})
    write({"site-packages/pack/helper.py": "def read(x):\n    return x * float(open('factor.txt').read())\n"})
    sys.path.append(str(Path("site-packages").absolute()))
    alone = listing_of()
    assert list(alone["files"]) == ["mixer.py"] and list(alone["data"]) == ["factor.txt"]
    forget()
    trust.allow(["my:pack.helper.read", "my:torch.nn.Identity", "my:mixer.Mixer"])
    for other in ("pack.helper.read", "torch.nn.Identity"):
        users_code(other)
    assert users_code("mixer.Mixer").listing == alone


def test_an_edit_after_the_import_is_refused_and_a_comment_is_not():
    write(MIXER_AND_HELPER)
    identity()
    write({"helper.py": f"{HELPER}# a comment\n"})
    assert label_identity("my:mixer.Mixer").startswith(f"1+{KIND}-")
    write({"helper.py": HELPER.replace("2 * x", "3 * x")})
    with pytest.raises(LabelError, match=r"helper\.py was edited after this process imported it"):
        label_identity("my:mixer.Mixer")


def test_an_edit_between_import_and_first_use_is_refused():
    write(MIXER_AND_HELPER)
    forget()
    code.source("mixer.Mixer")
    write({"helper.py": HELPER.replace("2 * x", "3 * x")})
    with pytest.raises(LabelError, match=r"helper\.py was edited after this process imported it"):
        label_identity("my:mixer.Mixer")


def test_code_state_names_the_changed_file_without_importing_it(monkeypatch, tmp_path):
    write(MIXER_AND_HELPER | {"mixer.py": MIXER + "F = open('f.txt').read()\nMixer.f = F\n", "f.txt": "2"})
    stored = listing_of()
    forget()
    assert code_state(stored).kind == "same"
    recorded = recorded_files(stored)  # and files of torch that another test counts as a user's
    assert {name: recorded[name] for name in MIXER_AND_HELPER} == {
        name: Path(name).read_bytes() for name in MIXER_AND_HELPER
    }
    write(
        {"helper.py": HELPER.replace("3 * x", "4 * x"), "mixer.py": MIXER + "F = open('f.txt').read()\nMixer.f = F#\n"}
    )
    assert code_state(stored).kind == "same"
    assert recorded_files(stored)["helper.py"].startswith(b"# code that trained the run")
    write({"f.txt": "3"})
    assert code_state(stored) == CodeState("changed", "f.txt")
    write({"helper.py": HELPER.replace("2 * x", "3 * x")})
    assert code_state(stored) == CodeState("changed", "helper.py")
    Path("helper.py").unlink()
    assert code_state(stored) == CodeState("absent", "helper.py")
    Path("mixer.py").unlink()
    assert (code_state(stored).kind, code_state(stored).file) == ("absent", "mixer.py")
    assert not {"mixer", "helper"} & {*sys.modules}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        3,
        [],
        {},
        {"files": {}, "data": {}},
        {"files": {"a.py": 3}, "data": {}},
        {"files": {"a\0": ["", "*"]}, "data": {}},
    ]
    + [{"files": {"a.py": ["", [[]]]}, "data": {}}, {"files": {"a.py": ["", "*"]}, "data": []}],
)
def test_a_malformed_code_listing_has_state_unknown(stored):
    assert code_state(stored).kind == "unknown"


@pytest.mark.parametrize(("place", "size"), [("theirs.py.txt", 1), ("theirs.py", MOST_BYTES)])
def test_code_state_parses_no_foreign_and_no_huge_file(tmp_path, monkeypatch, place, size):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("madbench.identity.text.SourceText", None)
    Path("first.py").write_text("")
    Path(place).write_text("a\n" * size)
    listing = {"files": {place: ["", "*"], "first.py": ["", "*"]}, "data": {}}
    assert (code_state(listing).kind, code_state(listing).file) == ("absent", place)
    assert not any(recorded_files(listing | {"files": {place: ["", "*"]}}).values())
