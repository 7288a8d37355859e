"""A family of another package whose methods raise errors is named, and stops only its own labels."""

from __future__ import annotations

import itertools
import json

import pytest

from installed import forget_installed

METHODS = (
    "parse", "labels", "factors", "explain", "traits", "solve", "build", "neighbors", "effective", "preset_spelling",
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
COMMANDS_BY_METHOD = {  # verbs that cannot do without the method, of a label of the family
    "parse": ["explain", "explain --cost", "verify", "run --dry-run", "ls labels"],
    "neighbors": ["ls labels ~"],
    "explain": ["explain"],
    "traits": ["run --dry-run"],
    "solve": ["explain --cost", "run --dry-run", "verify"],
    "build": ["verify"],
    "checks": ["verify"],
}


@pytest.fixture
def fail(install_example, fill, monkeypatch, tmp_path):
    """``fail("solve", "a division")``: make this method of the installed family ``bad`` fail in this way.

    The family has stored runs.
    """
    site = install_example("plugin")
    (site / "bad_family.py").write_text(FAMILY.replace("{methods}", repr(METHODS)))
    info = site / "bad-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (info / "RECORD").write_text("bad_family.py,,\n")
    (info / "entry_points.txt").write_text("[madbench.families]\nbad = bad_family:FAMILY\n")
    forget_installed()
    fill(["S", "R-c", "bad:elu", "bad:elu-g"], profile="evening", tasks=("compression",))

    def call(method: str, how: str) -> None:
        monkeypatch.setenv("FAILS", method)
        monkeypatch.setenv("HOW", how)
        forget_installed()

    return call


CASES = [*zip(METHODS, itertools.cycle(EXCEPTIONS)), ("traits", "nothing")]
each = pytest.mark.parametrize(("method", "how"), CASES)


@pytest.mark.slow
@each
def test_a_failing_method_of_a_family_stops_no_other_label(main, fail, method, how):
    fail(method, how)
    for words in ("explain S", "ls families", "validate --store", "ls runs -f json"):
        ended = main(*words.split())
        assert ended.code == 0, (words, ended.stderr)
        assert "Traceback" not in ended.stderr
    assert {row["label"] for row in json.loads(ended.stdout)} == {"S", "R-c", "bad:elu", "bad:elu-g"}


@pytest.mark.slow
@each
def test_a_table_shows_a_stored_label_or_says_why_it_is_left_out(main, fail, method, how):
    fail(method, how)
    ended = main("table", "-f", "json")
    assert ended.code == 0 and "Traceback" not in ended.stderr
    rows = {row["label"] for row in json.loads(ended.stdout)["cells"]}
    assert {"S", "R-c"} <= rows
    for label in ("bad:elu", "bad:elu-g"):
        said = f"warning: {label} is left out; family 'bad'"
        assert (label in rows) != (said in ended.stderr), ended.stderr
    named = main("table", "S", "bad:elu-g", "-f", "json")
    if "bad:elu-g" in rows:
        assert named.code == 0 and named.stderr == ""
    else:
        assert named.code == 2 and named.stdout == "" and "family 'bad'" in named.stderr
        assert method in named.stderr and "left out" not in named.stderr and "Traceback" not in named.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "how"), [("traits", "nothing"), *((method, "a division") for method in ("parse", "levels", "solve"))]
)
@pytest.mark.usefixtures("without_figures")
def test_verbs_show_the_runs_of_other_families_if_one_family_fails(main, fail, tiny, monkeypatch, method, how):
    monkeypatch.setattr("madbench.analysis.figures.files.save_figure", lambda figure, stem: [])
    fail(method, how)
    for words in ("report", "plot scores", "findings", "findings --power", "compare S R-c"):
        ended = main(*words.split())
        assert (ended.code, "Traceback" in ended.stderr) == (0, False), (words, ended.stderr)
    machine = main("validate", "--machine")
    assert "Traceback" not in machine.stdout + machine.stderr and "family bad" in machine.stdout
    ended = main("table", "--profile", tiny)  # of which there are no runs
    assert ended.code == 2 and "none of its" in ended.stderr and "S" in ended.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_family_that_fails_while_a_sweep_trains_fails_its_own_jobs(main, fail, tiny):
    fail("build", "an exit")
    words = ("S", "bad:elu", "-t", "compression", "--profile", tiny, "--device", "cpu")
    ended = main("run", *words, "-f", "json")
    content = json.loads(ended.stdout)
    (reason,) = content["failed"]
    assert ended.code == 1 and "family 'bad' (bad_family:FAMILY): build('bad:elu')" in json.dumps(reason)
    done = {row["label"]: row["done"] for row in content["cells"] if row["task"] == "compression"}
    assert done == {"S": 1, "bad:elu": 0} and "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("method", "how"), [case for case in CASES if case[0] in COMMANDS_BY_METHOD])
def test_the_error_of_a_failing_family_names_the_family_and_the_method(main, fail, method, how):
    fail(method, how)
    for words in COMMANDS_BY_METHOD[method]:
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
