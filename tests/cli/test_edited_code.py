"""What verbs say and show of stored runs whose code was edited: of a user's module, and of this package."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from conftest import forget_installed
from madbench import labels
from madbench.identity import watch
from madbench.jobs import Record
from madbench.suites.code import code_details
from madbench.suites.mad.suite import MAD

LABEL = "my:edited_mixer.Mixer"
TASKS = ("compression", "in_context_recall")
MIXER = """\
from torch import nn

class Mixer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(x.cumsum(1))
"""


@pytest.fixture
def module(store, monkeypatch):
    """``edited_mixer.py`` in the working folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(store.root.parent)])
    path = store.root.parent / "edited_mixer.py"
    path.write_text(MIXER)
    forget()
    yield path
    forget()


def forget():
    """Makes this process one that has imported nothing of the user."""
    sys.modules.pop("edited_mixer", None)
    for noted in (watch.events, watch.executed, watch.watched):
        noted.clear()
    forget_installed()
    if trust := getattr(labels, "trust", None):
        trust.allow([LABEL])


@pytest.fixture
def fill_edited(store, tiny, module):
    """Stores runs of the labels with the digests of the code as it is, without training them."""

    def call(*names, seeds=(0, 1), accuracy=0.5, **changes):
        forget()
        metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
        details = {"budget_ratio": 0.99, "mixer_parameters": 1000, "device": "an abacus"}
        curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": 1.0}]
        curve[0] |= {"validation_token_accuracy": accuracy, "validation_batch_macro_accuracy": accuracy}
        for job in MAD.jobs(names or [LABEL], MAD.Profile.load(tiny), tasks=TASKS, seeds=seeds):
            own = code_details(job)
            own["package_code"] |= changes
            store.finish(job, Record("finished", metrics, curve, details | own))

    return call


def edit(module, text=None):
    module.write_text(text or MIXER.replace("x.cumsum(1)", "2 * x.cumsum(1)"))
    forget()


def plan(main, tiny, *words):
    return main("run", *(words or [LABEL]), "--profile", tiny, "-t", ",".join(TASKS), "--seeds", "0-1", "--dry-run")


@pytest.mark.slow
def test_a_comment_trains_nothing_again_and_an_edit_says_why(main, tiny, module, fill_edited):
    fill_edited()
    edit(module, MIXER + "# a comment\n\ndef unrelated():\n    return 1\n")
    ended = plan(main, tiny)
    assert "4 done, 0 to do" in ended.stdout and "changed" not in ended.stderr
    edit(module)
    ended = plan(main, tiny)
    assert "0 done, 4 to do" in ended.stdout
    assert f"edited_mixer.py changed since 4 stored runs of {LABEL}; training again" in " ".join(ended.stderr.split())


@pytest.mark.slow
def test_runs_whose_code_an_earlier_madbench_identified_are_named(main, tiny, module, store, fill_edited):
    fill_edited()
    for run in list(store.runs()):
        details = {name: value for name, value in run.record.details.items() if name not in ("code", "package_code")}
        store.finish(replace(run.job, family=f"1+{'0' * 64}"), replace(run.record, details=details))
    edit(module)
    said = " ".join(plan(main, tiny).stderr.split())
    assert f"edited_mixer.py changed since 4 stored runs of {LABEL}" in said
    assert f"4 stored runs of {LABEL} had other code" in said


@pytest.mark.slow
def test_a_registration_names_the_file_that_changed(main, tiny, module, store, fill_edited, tmp_path):
    claim = {"name": "mine", "contrast": f"{LABEL} > S", "sentence": "Mine.", "source": "me"}
    (tmp_path / "claims.yaml").write_text(json.dumps({"claims": [claim | {"quantities": ["compression"]}]}))
    grid = {"labels": ["S", LABEL], "profile": str(tiny), "tasks": [*TASKS], "seeds": "0-1", "claims": ["mine"]}
    (tmp_path / "own.yaml").write_text(json.dumps(grid))
    fill_edited("S", LABEL)
    ended = main("findings", "--register", "own.yaml", "--claims", "claims.yaml")
    assert ended.code == 0, ended.stderr
    edit(module)
    ended = main("findings", "--registered", "own.registered.json")
    assert "edited_mixer.py" in ended.stderr + ended.stdout
