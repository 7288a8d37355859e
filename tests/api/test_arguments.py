"""Arguments of types of NumPy, pandas and torch are accepted, and the caller's random state is unchanged."""

from __future__ import annotations

import inspect
import random
import re

import numpy as np
import pandas as pd
import pytest
import torch

import madbench
from api_calls import CHOSEN, TINY
from madbench.errors import ConfigError
from madbench.suites import suite_of
from madbench.training.checkpoints import save_weights
from sample_jobs import mad_job


def random_state() -> tuple:
    return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()


@pytest.mark.slow
def test_public_functions_leave_the_random_state_alone(stored_arguments, tmp_path, fake_executor, corpus, monkeypatch):
    """``build`` draws weights, so it is left out. A module that draws from NumPy and Python changes no state either."""
    (tmp_path / "drawing.py").write_text(
        "import random, numpy as np, torch\n"
        "class Mixer(torch.nn.Linear):\n"
        "    def __init__(self, d_model):\n"
        "        super().__init__(d_model, d_model)\n"
        "        self.factor = float(np.random.rand()) + random.random()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    labels, training = ["my:drawing.Mixer", "S"], {"device": "cpu", "results": tmp_path / "results"}
    model = suite_of(job := mad_job("S")).Trial.build(job)
    save_weights(tmp_path / "model.safetensors", model, job)
    calls = {
        "parse": lambda: madbench.parse("my:drawing.Mixer"),
        "plan": lambda: madbench.plan(labels, tasks="compression", **training),
        "verify": lambda: madbench.verify(["my:drawing.Mixer", "S-p", "cd:gdn", "hfa:2"]),
        "run": lambda: madbench.run(labels, tasks="compression", overrides=TINY, **training),
        "sweep": lambda: madbench.sweep("S", set={"model.d_model": 16}, tasks=["compression"], **training),
        "run_language_model": lambda: madbench.run_language_model(
            "S", profile="tiny", corpus=corpus, tokenizer="none:64", **training
        ),
        "load": lambda: madbench.load(tmp_path / "model.safetensors"),
        "table": lambda: madbench.table(**stored_arguments),
        "compare": lambda: madbench.compare(["R-cg-q", "R-g-q"], **stored_arguments),
        "attribute": lambda: madbench.attribute(**stored_arguments),
        "audit": lambda: madbench.audit(**stored_arguments),
        "findings": lambda: madbench.findings(**stored_arguments),
        "plot": lambda: madbench.plot("scores", **stored_arguments),
        "open": lambda: madbench.open(stored_arguments["results"]).select(**CHOSEN).table(),
    }
    assert calls.keys() == {*madbench.__all__} - {"build", "MadbenchError"}
    random.seed(5), np.random.seed(6), torch.manual_seed(7)
    for name, call in calls.items():
        before = random_state()
        call()
        assert random_state() == before, name


@pytest.mark.parametrize(
    "seeds", [np.arange(3), [np.int64(0), np.int32(1), 2], pd.Series([0, 1, 2]), torch.arange(3)], ids=type
)
def test_seeds_may_be_numpy_pandas_or_torch_integers(seeds):
    assert [job.seed for job in madbench.plan("S-p", tasks="memorization", seeds=seeds).jobs] == [0, 1, 2]


@pytest.mark.parametrize("as_other", [np.float64, np.float16, torch.tensor, np.array])
def test_overrides_with_numpy_or_torch_numbers_plan_the_same_jobs(as_other):
    usual = {"learning_rates": [0.5], "weight_decays": 0.25}
    others = {"learning_rates": [as_other(0.5)], "weight_decays": as_other(0.25)}
    first, second = (madbench.plan("S-p", tasks="memorization", overrides=changes).jobs for changes in (usual, others))
    assert [job.id for job in first] == [job.id for job in second]


def test_a_truth_value_of_numpy_is_a_setting():
    first, second = (
        madbench.plan("cd:gdn", tasks="memorization", overrides={"model.value_skip": value}).jobs
        for value in (True, np.True_)
    )
    assert [job.id for job in first] == [job.id for job in second]


def test_a_sweep_varies_over_arrays_of_numpy(fake_executor, tmp_path):
    axes = {"model.d_model": np.array([16, 32])}
    frame = madbench.sweep(["S-pc"], vary=axes, tasks=["memorization"], seeds=np.int64(4), results=tmp_path)
    assert set(frame.seed) == {4}
    assert frame["model.d_model"].tolist() == [16, 32]


def test_overrides_and_seeds_of_other_types_are_refused():
    with pytest.raises(ConfigError, match="training.epochs"):
        madbench.plan("S-p", tasks="memorization", overrides={"training.epochs": object()})
    with pytest.raises(ConfigError):
        madbench.plan("S-p", tasks="memorization", seeds=np.array([0.0, 1.0]))


@pytest.mark.parametrize("seeds", [[0, 0], np.array([1, 2, 1]), "0,0", "0-2,1"], ids=str)
@pytest.mark.parametrize("function", [madbench.plan, madbench.run, madbench.sweep, madbench.run_language_model])
def test_repeated_seeds_are_refused(function, seeds, fake_executor, tmp_path):
    with pytest.raises(ConfigError, match=r"^seeds\b.*: [01] appears twice; leave one out$"):
        function(["S-p"], seeds=seeds, results=tmp_path)


def test_public_functions_document_every_argument():
    for name in madbench.__all__:
        function = getattr(madbench, name)
        names = inspect.signature(function).parameters if inspect.isfunction(function) else ()
        missing = [each for each in names if not re.search(rf"``{each}\b|^ *{each}: ", function.__doc__, re.MULTILINE)]
        assert not missing, name


def test_errors_of_users_are_caught_by_a_public_name():
    with pytest.raises(madbench.MadbenchError, match="did you mean 'memorization'"):
        madbench.plan("S-p", tasks="memorisation")
    public = {name for name in dir(madbench) if not name.startswith("_")}
    assert public == {*madbench.__all__}
