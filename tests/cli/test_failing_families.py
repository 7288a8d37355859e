"""A family of another package whose methods fail when they are used is named, and stops its own labels alone."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.conftest import forget_installed

METHODS = (
    "parse", "labels", "factors", "explain", "traits", "solve", "build", "neighbours", "effective", "preset_spelling",
    "levels", "checks",
)  # fmt: skip
FAMILY = '''
import os
from dataclasses import dataclass
from madbench.errors import LabelError
from madbench_linear import Label, LinearAttention

@dataclass(frozen=True)
class BadLabel(Label):
    def __str__(self):
        return super().__str__().replace("lin:", "bad:")

class Family(LinearAttention):
    """Linear attention with faults."""
    name, syntax, example = "bad", "elu|relu|id[-g]", "bad:elu"
    def parse(self, text):
        return BadLabel(*next(((one.map, one.gate) for one in super().labels() if f"bad:{str(one)[4:]}" == text)))
    def labels(self):
        return [BadLabel(one.map, one.gate) for one in super().labels()]
    def levels(self, label):
        return self.factors(label)
    def effective(self, allocation, settings):
        return settings
    def preset_spelling(self, label):
        return str(label)

def failing(name):
    sound = getattr(Family, name)
    def method(self, *arguments, **choices):
        if os.environ.get("FAILS") == name:
            if os.environ["HOW"] == "a division":
                return 1 / 0
            if os.environ["HOW"] == "an exit":
                raise SystemExit("mend me")
            return None
        return sound(self, *arguments, **choices)
    return method

METHODS = {methods}
FAMILY = type("Failing", (Family,), {name: failing(name) for name in METHODS})()
'''
EXCEPTIONS = {"a division": "ZeroDivisionError", "an exit": "SystemExit: mend me", "nothing": "None"}
OWN = {  # verbs that cannot do without the method, of a label of the family
    "parse": ["explain", "budget", "verify", "run --dry-run", "ls labels"],
    "factors": [],
    "neighbours": ["ls labels ~"],
    "explain": ["explain"],
    "traits": ["run --dry-run"],
    "solve": ["budget", "run --dry-run", "verify"],
    "build": ["verify"],
    "checks": ["verify"],
}


@pytest.fixture
def fail(install_example, fill, monkeypatch, tmp_path):
    """``fail("solve", "a division")``: from now on this method of the installed family ``bad`` does; it has runs."""
    site = install_example("plugin")
    (site / "bad_family.py").write_text(FAMILY.replace("{methods}", repr(METHODS)))
    info = site / "bad-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (info / "RECORD").write_text("bad_family.py,,\n")
    (info / "entry_points.txt").write_text("[madbench.families]\nbad = bad_family:FAMILY\n")
    forget_installed()
    fill(["S", "R-c", "bad:elu", "bad:elu-g"], profile="quick", tasks=("compression",))

    def call(method: str, how: str) -> None:
        monkeypatch.setenv("FAILS", method)
        monkeypatch.setenv("HOW", how)
        forget_installed()

    return call


each = pytest.mark.parametrize(("method", "how"), [*zip(METHODS, itertools.cycle(EXCEPTIONS))])


@each
def test_a_failing_method_stops_no_other_label(main, fail, method, how):
    fail(method, how)
    for words in ("explain S", "table --format json", "ls runs --json", "ls families", "validate --store"):
        ended = main(*words.split())
        assert ended.code == 0, (words, ended.stderr)
        assert "Traceback" not in ended.stderr
        if words.startswith(("table", "ls runs")):
            assert '"S"' in ended.stdout
    rows = {row["label"] for row in json.loads(main("ls", "runs", "--json").stdout)}
    assert rows == {"S", "R-c", "bad:elu", "bad:elu-g"}


@each
def test_its_own_labels_end_in_a_sentence_that_names_the_family_and_the_method(main, fail, method, how):
    fail(method, how)
    for words in OWN.get(method, ()):
        verb, *options = words.split()
        if "~" in words:
            command = [verb, "labels", "~bad:elu"]
        elif verb == "ls":
            command = [verb, "labels", "bad:elu"]
        else:
            command = [verb, "bad:elu", *options]
        ended = main(*command)
        said = " ".join((ended.stdout + ended.stderr).split())
        assert ended.code != 0, command
        assert f"family 'bad' (bad_family:FAMILY): {method}" in said or verb == "verify", said
        assert EXCEPTIONS[how] in said or verb == "verify", said
        assert "Traceback" not in said
