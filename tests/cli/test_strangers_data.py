"""No reader of a results folder imports code that the data of a stranger names.

Each reader is tried on a folder with a trap.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import madbench
from madbench.errors import TrainingError
from madbench.jobs import KEEP, WEIGHTS, Record
from madbench.labels import trust
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.training.checkpoints import save_weights
from sample_jobs import language_job

pytestmark = pytest.mark.slow

IDENTITY = f"1+{'e' * 64}"
MODULE = """\
from pathlib import Path
from torch import nn

with open({mark!r}, "a") as mark:
    mark.write(__name__)

class Mixer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(x)
"""
GRID = "labels: [S-p, '{label}']\ntasks: [compression]\nprofile: {profile}\nclaims: [mine]\n"
CLAIMS = "claims:\n  - {{name: mine, contrast: 'S-p > {label}', quantities: [compression]}}\n"


class Trap(NamedTuple):
    folder: Path  # the working folder
    results: Path
    label: str
    mad: str  # id of a run of a MAD task
    model: str  # id of a language model with weights
    mark: Path
    profile: str

    @property
    def is_untouched(self) -> bool:
        """True if no trap was imported since the last check."""
        touched = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        for name in [name for name in sys.modules if name.split(".")[0] in ("results", "runs", "beside", "inside")]:
            del sys.modules[name]
        return not touched


@pytest.fixture(params=["in a run", "beside", "in mixers.yaml"])
def trap(request, main, store, fill, language_run, tiny, tmp_path, monkeypatch) -> Trap:
    """A store with two runs and a language model of a label whose import leaves a mark.

    Its module is a file of another run, or lies in the working folder, or is named by a ``mixers.yaml`` in the results
    folder, which is then the working folder.
    """
    mark = tmp_path / "mark"
    fill("S-p", 0.5, seeds=range(20))
    jobs = list(store.jobs().values())
    host = next(job.id for job in jobs if job.id[0].isalpha())
    folder, results = tmp_path, Path("results")
    if request.param == "in a run":
        label, file = f"my:results.runs.{host}.evil.Mixer", store.root / "runs" / host / "evil.py"
    elif request.param == "beside":
        label, file = "my:beside.Mixer", tmp_path / "beside.py"
    else:
        label, file = "my:inside.Mixer", store.root / "inside.py"
        (store.root / "mixers.yaml").write_text("mine: inside:Mixer\n")
        folder, results = store.root, Path(".")
        monkeypatch.chdir(folder)
    file.write_text(MODULE.format(mark=str(mark)))
    for job in jobs:
        if job.seed < 3:
            details = {"budget_ratio": 1.01, "mixer_parameters": 1040, "device": "an abacus"}
            record = Record("finished", {"accuracy": 0.6, "selection_accuracy": 0.5, "ceiling": 1.0}, [], details)
            mad = replace(job, label=label, family=IDENTITY, mixer={})
            store.finish(mad, record)
    model = replace(language_job("S"), label=label, family=IDENTITY, mixer={})
    with store.lock(model) as work:
        (work / KEEP).mkdir()
        save_weights(work / KEEP / WEIGHTS, suite_of(model).Trial.build(language_job("S")), model)
        store.finish(model, language_run("S").record)
    trust.forget_allowed()
    made = Trap(folder, results, label, mad.id, model.id, mark, tiny)
    assert made.is_untouched
    return made


def test_reading_verbs_import_no_module_that_a_record_names(trap, main, tmp_path):
    where, of_mad = ["--results", trap.results], ["-p", trap.profile, "-t", "compression,in_context_recall"]
    for name, text in {
        "claims.yaml": CLAIMS,
        "grid.yaml": GRID,
        "set.yaml": "description: x\nlabels: ['{label}']\n",
    }.items():
        (trap.folder / name).write_text(text.format(label=trap.label, profile=trap.profile))
    (trap.folder / "variants").mkdir()
    (trap.folder / "variants" / "theirs.yaml").write_text((trap.folder / "set.yaml").read_text())
    archive = tmp_path / "theirs.tar.xz"
    commands = [
        ["ls"],
        ["ls", "variants"],
        ["ls", "labels", "@theirs"],
        ["ls", "runs", *where],
        ["ls", "sweeps", *where],
        ["table", *where],
        ["table", *of_mad, *where],
        ["table", *of_mad, *where, "--format", "json"],
        ["table", "S-p", trap.label, *of_mad, *where],
        ["table", "@set.yaml", *of_mad, *where],
        ["table", "-t", "language_model", *where],
        ["compare", "S-p", trap.label, *of_mad, *where],
        ["compare", "S-p", "@theirs", *of_mad, *where],
        ["plot", *where],
        ["plot", *of_mad, *where],
        ["plot", "loss", "-t", "language_model", *where],
        ["attribute", *of_mad, *where],
        ["audit", *of_mad, *where],
        ["findings", *of_mad, *where],
        ["findings", *of_mad, *where, "--claims", "claims.yaml"],
        ["register", "grid.yaml", "--claims", "claims.yaml", *where],
        ["findings", "--power", *of_mad, *where],
        ["report", *where, "--output", "report.html"],
        ["report", *of_mad, *where, "--output", "report.html"],
        ["validate", "--store", *where],
        ["validate", "claims.yaml", "grid.yaml", "set.yaml"],
        ["inspect", trap.mad, *where],
        ["inspect", trap.model, *where],
        ["lm", "sample", trap.model, *where],
        ["lm", "sample", trap.results / "runs" / trap.model / WEIGHTS],
        ["lm", "evaluate", trap.model, *where],
        ["lm", "export", trap.model, *where],
        ["lm", "export", trap.model, "--format", "hf", *where],
        ["explain", "@set.yaml"],
        ["explain", "@set.yaml", "--cost"],
        ["verify", "@set.yaml"],
        ["bench", "mixers", "@set.yaml", "--lengths", "16", "--d-model", "16"],
        ["paper", "hypermlp", *where],
        ["archive", "--output", archive, *where],
        ["import", archive, "--results", tmp_path / "imported"],
        ["report", "--archive", archive, "--output", "board.html"],
        ["table", *of_mad, "--results", tmp_path / "imported"],
    ]
    for command in commands:
        ended = main(*command)
        assert trap.is_untouched, command
        assert ended.code in (0, 1, 2), command
        assert "Traceback" not in ended.stderr, command
    for command in (["table", *of_mad, *where], ["compare", "S-p", trap.label, *of_mad, *where]):
        shown = main(*command)
        assert shown.code == 0 and trap.label in shown.stdout, (command, shown.stderr)


def test_training_stored_runs_again_imports_no_untrusted_module(trap, main, tmp_path):
    for job_id, job in Store.open(trap.results).jobs().items():
        if job.label == "S-p" and job_id != trap.mad:
            shutil.rmtree(trap.results / "runs" / job_id)  # one of the trap is left, and nothing that takes time
    ended = main("again", trap.results, "--share", "1")
    assert trap.is_untouched
    assert ended.code == 2 and "code of a module: name the label with --trust" in ended.stderr
    if trap.label == "my:beside.Mixer":
        assert main("again", trap.results, "--share", "1", "--trust", trap.label).code == 1
        assert not trap.is_untouched


def test_opening_a_trained_model_imports_no_untrusted_module(trap):
    weights = trap.results / "runs" / trap.model / WEIGHTS
    for run in (trap.model, trap.label, weights):
        with pytest.raises(TrainingError, match=f"trust={trap.label!r}"):
            madbench.load(str(run), results=trap.results, trust="my:another.Mixer")
        assert trap.is_untouched


def test_opening_an_exported_folder_imports_no_untrusted_module(trap, language_run, tmp_path):
    transformers = pytest.importorskip("transformers")
    from madbench.huggingface.digests import job_digest
    from madbench.huggingface.export import export
    from madbench.text.tokenizers import Tokenizer

    job = language_job("S")
    export(tmp_path / "exported", suite_of(job).Trial.build(job), job, Tokenizer(), language_run("S").record)
    config = tmp_path / "exported" / "config.json"
    text = json.loads(config.read_text())
    text["job"] |= {"label": trap.label, "family": IDENTITY, "mixer": {}}
    text["digests"]["job"] = job_digest(text["job"])
    config.write_text(json.dumps(text))
    for settings in ({}, {"trust_remote_code": False}):
        with pytest.raises(TrainingError, match="trust_remote_code=True"):
            transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported", **settings)
        assert trap.is_untouched
