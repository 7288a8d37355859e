"""The study of tile sizes of kernels: the timed sizes, and that a wrong result is not timed."""

from __future__ import annotations

import os
import sys

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")

import cuts
from madbench.bench.mixer import InputShape, WrongResultError
from madbench.bench.parts import BenchSetup
from madbench.bench.timing import TimingLimits
from madbench.errors import ConfigError
from madbench.mixers.srg.kernels import lag

SHAPE, SMALL = InputShape(1, 17, 16), (16, 1, 1)
needs_interpreter = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="runs the kernels in Triton's interpreter"
)


@pytest.fixture
def setup():
    return BenchSetup(["R-12o!"], "cpu", "float32", TimingLimits(1), "full")


@pytest.mark.slow
@needs_interpreter
def test_a_kernel_is_timed_with_its_usual_and_with_other_tile_sizes(setup):
    before = dict(lag.CUTS)
    usual, other = cuts.measure(SHAPE, setup, "keys", [SMALL])
    assert [usual["is_usual"], other["is_usual"]] == [True, False]
    assert (other["rows"], other["warps"], other["stages"]) == SMALL
    assert usual["step_ms"] > 0 and other["step_ms"] > 0
    assert lag.CUTS == before


@pytest.mark.slow
@needs_interpreter
def test_a_tile_size_with_wrong_results_has_a_reason_and_no_time(setup, monkeypatch):
    def check(*_):
        if lag.CUTS["keys_kernel"] == (SMALL, SMALL):
            raise WrongResultError("wrong: relative error 1.0e+00, at most 1e-04 is allowed")

    monkeypatch.setattr(cuts, "check_path", check)
    usual, other = cuts.measure(SHAPE, setup, "keys", [SMALL])
    assert "step_ms" in usual and "step_ms" not in other and other["error"].startswith("wrong")


@pytest.mark.parametrize("label", ["R-12!", "G-cg-q-12o/R-12o!"])
def test_a_label_without_o_and_a_hybrid_are_refused_by_the_study_of_tile_sizes(setup, label):
    setup = BenchSetup([label], *(getattr(setup, name) for name in ("device", "precision", "limits", "profile")))
    with pytest.raises(ConfigError, match=f"{label}: expected a label with o, such as G-cg-q-12o"):
        next(cuts.measure(SHAPE, setup, "keys"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "words, problem",
    [
        (["--kernels", "columns"], "no 'columns'; there are sums, readout"),
        (["--shape", "8x12"], "--shape 8x12: expected BxTxD"),
        ([], "the kernels run on a CUDA GPU, and torch finds none"),
    ],
)
def test_the_study_of_cuts_refuses_wrong_words(words, problem, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cuts", *words])
    with pytest.raises(SystemExit):
        cuts.main()
    assert problem in " ".join(capsys.readouterr().err.split())
