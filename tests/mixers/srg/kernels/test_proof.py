"""Before kernels are chosen automatically they are compared with plain operators. Wrong kernels are not used."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")

from madbench.mixers import build
from madbench.mixers.srg.kernels import fused, position, proof
from madbench.models.shapes import ModelConfig
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job, train_job

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float16  # which the interpreter multiplies rightly


@pytest.fixture(autouse=True)
def nothing_known():
    """Forget all compared kernel programs."""
    proof.problem.cache_clear()
    yield
    proof.problem.cache_clear()


@pytest.fixture
def fast(monkeypatch):
    """Pretend that kernels are fast, as in 16 bits on a GPU, so that labels use them by default."""
    monkeypatch.setattr(fused, "is_fast", lambda device, dtype: True)


@pytest.fixture
def wrong_sums(monkeypatch):
    """Drop a part of the sums over rows in gradients. The output o stays right."""
    read_sums = position.Launch.read_sums
    monkeypatch.setattr(position.Launch, "read_sums", lambda *args: read_sums(*args) * (0.5 if len(args) == 6 else 1.0))


def program(base="R", mixings=(False, True), length=19, by_lag=False):
    return proof.Program(base, by_lag, mixings, (3, 5, 2), TYPE, 1, length)


@pytest.mark.slow
@pytest.mark.parametrize("by_lag, base, mixings", [(False, "S", (True, True)), (True, "R", (False, True))])
def test_correct_kernels_pass_the_proof(by_lag, base, mixings):
    assert proof.problem(program(base, mixings, by_lag=by_lag), DEVICE) == ""


@pytest.mark.slow
def test_wrong_gradients_are_found_though_the_output_is_right(wrong_sums):
    found = proof.problem(program(), DEVICE)
    assert found.startswith("the kernels compute wrong numbers here: relative error ")


def test_kernels_that_cannot_be_compiled_are_a_problem_with_its_reason(monkeypatch):
    def fail(*_):
        raise RuntimeError("PTXAS error: Internal Triton PTX codegen error\nptxas fatal: no such register")

    monkeypatch.setattr(fused, "attention", fail)
    reason = "the kernels fail here (RuntimeError: PTXAS error: Internal Triton PTX codegen error)"
    assert proof.problem(program(), DEVICE) == reason


@pytest.mark.slow
def test_each_kernel_program_is_verified_once(fast):
    mixer = build("R-q-2", 64, 1024, n_head=2, budget="paper")
    assert {mixer.resolve_path(3, length) for length in (1, 3, 13, 3)} == {"fused"}
    assert (proof.problem.cache_info().misses, proof.problem.cache_info().hits) == (1, 3)


def test_kernel_programs_are_verified_at_few_lengths():
    def programs(label, n_head, lengths):
        allocation = build(label, 64, 1024, n_head=n_head, budget="paper").allocation
        made = [proof.Program.from_allocation(allocation, torch.float32, length) for length in lengths]
        return [*dict.fromkeys(made)]

    few = programs("R-q-2", 4, (1024, 512, 1000, 300, 48, 17, 16, 3, 1))
    assert [one.length for one in few] == [272, 259, 64, 29, 16, 13]
    assert few[0].has_mixing == (False, True) and few[0].dtype == torch.float32
    assert not few[0].by_lag and few[0].heads == 2
    (by_lag,) = programs("R-q-2o", 32, (65,))
    assert (by_lag.length, by_lag.by_lag, by_lag.heads) == (259, True, 16)


@pytest.mark.slow
def test_torchs_random_numbers_are_left_alone():
    before = torch.get_rng_state()
    proof.largest_error(program(), DEVICE)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
def test_a_run_with_wrong_kernels_uses_another_path_and_states_why(fast, wrong_sums, tmp_path):
    counts = {"num_train_examples": 16, "num_validation_examples": 16, "num_test_examples": 16}
    sizes = {"setting": {"seq_len": 16, **counts}, "model": ModelConfig(d_model=16), "mixer": {"mix_rank": 2}}
    job, said = mad_job("R-q-2", "in_context_recall", **sizes, training=TrainingConfig(epochs=1, batch_size=16)), []
    record = train_job(job, tmp_path, said.append, device=str(DEVICE))
    problem = record.details["kernel_problem"]
    assert record.details["path"] == "dense" and problem.startswith("the kernels compute wrong numbers here")
    assert said[0]["warning"] == f"{problem}; path dense is used instead"


def test_a_named_path_fused_is_used_without_a_proof(fast, wrong_sums):
    mixer = build("R-q-2", 16, 32, budget="paper", path="fused")
    assert mixer.resolve_path(1, 32) == "fused" and mixer.kernel_problem == ""
