"""The path ``fla``: which operator computes which label, with loops in place of the library, and the kernels on a
GPU."""

from __future__ import annotations

import pytest
import torch

from coefficient_labels import random_label
from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.checks import run_checks
from madbench.mixers.recurrence import library
from madbench.mixers.recurrence.forms import Dynamics, Mirrors, scores
from refused import skip_if_refused

LABELS = {
    "cd:id": "chunk_simple_gla",
    "cd:id-0.95": "chunk_simple_gla",
    "cd:mamba2-cg": "chunk_simple_gla",
    "cd:kelu-sm-bd-sum": "chunk_simple_gla",
    "cd:id-bi-sum": "chunk_simple_gla",
    "cd:gla": "chunk_gla",
    "cd:deltanet": "chunk_gated_delta_rule",
    "cd:gateddeltanet": "chunk_gated_delta_rule",
    "cd:id-dghk1-bw-u": "chunk_kda",
    "cd:id-hkr-u": "chunk_dplr_delta_rule",
    "cd:id-smhz1-bd": "chunk_dplr_delta_rule",
    "cd:kexp-0.95hk2-bw-sum": "chunk_dplr_delta_rule",
    "Mamba-2": "chunk_simple_gla",
    "Mamba-3": "chunk_simple_gla",
    "mLSTM": "chunk_simple_gla",
    "GLA": "chunk_gla",
    "DeltaProduct": "chunk_gated_delta_rule",
    "KDA": "chunk_kda",
}


def by_loops(name):
    """The library's operator computed row by row: q, k (B, T, H, K), v (B, T, H, V), gates as logarithms."""

    def run(q, k, v, *inputs, scale):
        state, rows = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1]), []
        for t in range(q.shape[1]):
            at = [None if part is None else part[:, t] for part in inputs]
            written = v[:, t]
            if name == "chunk_simple_gla" and at[0] is not None:
                state = state * at[0].exp()[..., None, None]
            elif name == "chunk_gla":
                state = state * at[0].exp()[..., None]
            elif name in ("chunk_gated_delta_rule", "chunk_kda"):
                gate, beta = at
                state = state * (gate[..., None] if gate.dim() == 2 else gate).exp()[..., None]
                written = beta[..., None] * (written - (k[:, t, :, None] @ state)[:, :, 0])
            elif name == "chunk_dplr_delta_rule":
                removed, along, gate = at
                state = state * gate.exp()[..., None] + along[..., None] * (removed[:, :, None] @ state)
            state = state + k[:, t, ..., None] * written[..., None, :]
            rows.append(scale * (q[:, t, :, None] @ state)[:, :, 0])
        return torch.stack(rows, dim=1), None

    return run


@pytest.fixture
def used_operators(monkeypatch) -> list[str]:
    """Replace the library by loops in float64. Returns the names of the operators that ran."""
    names = []

    def operator(name):
        names.append(name)
        return by_loops(name)

    monkeypatch.setattr(library, "operator", operator)
    monkeypatch.setattr(library, "arithmetic", lambda x: x.dtype)
    return names


def outputs(mixer, path, x):
    mixer.path = path
    mixer.zero_grad()
    y = mixer(x)
    y.square().sum().backward()
    return [y.detach(), *(parameter.grad.clone() for parameter in mixer.parameters() if parameter.grad is not None)]


def assert_same(label):
    torch.manual_seed(0)
    mixer = build(label, 16, 12, budget="paper").double()
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    for one, other in zip(outputs(mixer, "fla", x), outputs(mixer, "dense", x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9 * (1 + other.abs().max().item()))


@pytest.mark.parametrize("label, name", LABELS.items())
def test_each_recurrence_uses_the_matching_library_operator(label, name, used_operators):
    assert_same(label)
    assert used_operators == [name]


@pytest.mark.slow
def test_random_recurrent_labels_on_path_fla_equal_path_dense(used_operators):
    labels = [label for label in map(random_label, range(250)) if label.is_recurrent and not label.norm]
    assert len(labels) > 20
    for label in labels:
        assert_same(str(label))
    assert len(used_operators) == len(labels)


@pytest.mark.parametrize("is_before", [False, True])
def test_a_delta_rule_with_another_removal_key_equals_path_dense(is_before, used_operators):
    torch.manual_seed(0)
    q, k, v, w, read = torch.randn(5, 1, 2, 9, 4, dtype=torch.float64) / 2
    log_gate, beta = -torch.rand_like(q), torch.rand_like(q[..., 0])
    d = Dynamics(q, k, v, log_gate, Mirrors(w, beta, read=read, reads_before_decay=is_before))
    found = library.combine(d, v, torch.float64, is_delta_rule=True)
    torch.testing.assert_close(found, scores(d).tril() @ v)
    assert used_operators == ["chunk_dplr_delta_rule"]


@pytest.mark.filterwarnings("ignore")  # of the library, which finds no GPU
@pytest.mark.parametrize(
    "module, function, order",
    [
        ("simple_gla", "naive_recurrent_simple_gla", (0, 1, 2, 3)),
        ("gated_delta_rule", "naive_recurrent_gated_delta_rule", (0, 1, 2, 4, 3)),
        ("kda", "naive_recurrent_kda", (0, 1, 2, 3, 4)),
    ],
)
def test_the_loops_of_these_tests_equal_the_librarys_naive_functions(module, function, order):
    naive = pytest.importorskip(f"fla.ops.{module}.naive", exc_type=ImportError)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 10, 2, 8)
    k = torch.nn.functional.normalize(k, dim=-1)
    gate = -torch.rand(2, 10, 2, 8) if module == "kda" else -torch.rand(2, 10, 2)
    inputs = (q, k, v, gate, torch.rand(2, 10, 2))[: len(order)]
    expected = getattr(naive, function)(*(inputs[i] for i in order), scale=1.0)[0]
    torch.testing.assert_close(by_loops(f"chunk_{module}")(*inputs, scale=1.0)[0], expected)


def test_path_fla_is_refused_with_the_missing_condition():
    with pytest.raises(TrainingError, match="path 'fla' needs a readout that is linear in the state, not cd:exp"):
        build("cd:exp-sum", 16, 8, path="fla")
    x = torch.randn(1, 8, 16)
    with pytest.raises(
        TrainingError,
        match="path 'fla' computes in 16 bits, not torch.float32: call it under torch.autocast, or use 'auto'",
    ):
        build("cd:gla", 16, 8, budget="paper", path="fla")(x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_path_fla_without_a_gpu_is_an_error_of_one_sentence():
    with pytest.raises(TrainingError, match="runs on a CUDA GPU only"), torch.autocast("cpu", torch.bfloat16):
        build("cd:gla", 16, 8, budget="paper", path="fla")(torch.randn(1, 8, 16))


def test_importing_the_library_shows_no_warnings(monkeypatch, tmp_path):
    """Such warnings would stop the checks of every label with kernels if warnings are errors."""
    (tmp_path / "warns.py").write_text(
        "import warnings\nwarnings.warn('no flash-attn', ImportWarning)\nkernel = print\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(library.MODULES, "kernel", "warns")
    assert library.operator("kernel") is print


@pytest.mark.gpu
@pytest.mark.parametrize("label", LABELS)
def test_library_kernels_equal_path_chunked(label):
    pytest.importorskip("fla.ops", exc_type=ImportError)
    torch.manual_seed(0)
    mixer = build(label, 128, 256, n_head=2, budget="paper").cuda()
    x = torch.randn(2, 200, 128, device="cuda")
    expected = outputs(mixer, "chunked", x)
    with skip_if_refused(), torch.autocast("cuda", torch.bfloat16):
        found = outputs(mixer, "fla", x)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 0.03 * other.norm()


@pytest.mark.gpu
def test_library_kernels_pass_the_bfloat16_checks():
    pytest.importorskip("fla.ops", exc_type=ImportError)
    outcomes = run_checks("cd:kelu-0.95hk1-bz-wx", names=("bfloat16", "bfloat16 sums"))
    assert [outcome.verdict for outcome in outcomes] == ["pass", "pass"], [outcome.row for outcome in outcomes]
