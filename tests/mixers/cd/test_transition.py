"""The general transition of a state in every computed form, beside loops in float64: outputs and gradients.

A_t = (I - beta_t w_t r_t^T) diag(lambda_t), or diag(lambda_t) - beta_t w_t r_t^T if r reads before the decay.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from madbench.mixers.checks.residuals import difference
from madbench.mixers.recurrence import forms

DECAYS = torch.tensor([1e-6, 1e-3, 1.0, 30.0, 3000.0], dtype=torch.float64)
"""-log lambda of the channels, times a random number in (0, 1)."""


def sample(length, gate, is_before, is_along_keys):
    """Random rows of a delta rule that reads along another direction than it writes."""
    generator = torch.Generator().manual_seed(length)
    shape = (1, 2, length, len(DECAYS))

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k, w, read = (drawn(*shape) for _ in range(4))
    w, read = (side / side.norm(dim=-1, keepdim=True) for side in (w, read))
    size = drawn(*shape[:3]).sigmoid()
    decays = {"none": None, "head": DECAYS[2:3], "channel": DECAYS}[gate]
    log_gate = None if decays is None else -torch.rand(shape[:3] + (1,), generator=generator).double() * decays
    k = w * size[..., None] if is_along_keys else k
    v, beta = drawn(*shape[:3], 3), drawn(*shape[:3]).sigmoid()
    return forms.Dynamics(q, k, v, log_gate, forms.Mirrors(w, beta, size if is_along_keys else None, read, is_before))


def loops(d):
    """The outputs and the state, computed by the definition of the transition."""
    n, rows = d.q.shape[-1], []
    w, beta, _, read, reads_before_decay = d.mirrors
    eye = torch.eye(n, dtype=torch.float64)
    state = d.q.new_zeros(*d.q.shape[:2], n, d.v.shape[-1])
    for t in range(d.q.shape[2]):
        decay = eye if d.log_gate is None else torch.diag_embed(d.log_gate[:, :, t].exp().expand(1, 2, n))
        removal = beta[:, :, t, None, None] * w[:, :, t, :, None] * read[:, :, t, None]
        transition = decay - removal if reads_before_decay else (eye - removal) @ decay
        state = transition @ state + d.k[:, :, t, :, None] * d.v[:, :, t, None]
        rows.append(d.q[:, :, t, None] @ state)
    return torch.cat(rows, dim=2), state


def decode_by_steps(d):
    state, rows = torch.zeros_like(d.k[:, :, 0, :, None] * d.v[:, :, 0, None]), []
    for row in forms.each_row(d):
        state = forms.evolve(state, row) + row.k.mT @ row.v
        rows.append(row.q @ state)
    return torch.cat(rows, dim=2), state


COMPUTED_FORMS = {
    "dense": lambda d: (forms.scores(d).tril() @ d.v, None),
    "chunked": lambda d: forms.chunked(d, 4, d.v),
    "long chunks": lambda d: forms.chunked(d, 18, d.v),
    "by halves": lambda d: forms.chunked(d, 7, d.v, by_halves=d.log_gate is not None and d.log_gate.shape[-1] > 1),
    "steps": decode_by_steps,
}


def with_gradients(compute, d):
    """The rows, the state, and the gradients of both."""
    is_along_keys, of_mirrors = d.mirrors.length is not None, d.mirrors._asdict()
    names = ["q", "v", "w", "beta", "read", "length" if is_along_keys else "k"]
    names += ["log_gate"] if d.log_gate is not None else []
    leaves = {name: (vars(d) | of_mirrors)[name].clone().requires_grad_() for name in names}
    k = leaves["w"] * leaves["length"][..., None] if is_along_keys else leaves["k"]
    mirrors = d.mirrors._replace(**{name: leaf for name, leaf in leaves.items() if name in of_mirrors})
    others = {name: leaf for name, leaf in leaves.items() if name not in of_mirrors}
    rows, state = compute(replace(d, **others | {"k": k, "mirrors": mirrors}))
    state = rows[:, :, -1:] if state is None else state
    weights = (
        torch.randn(each.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        for each in (rows, state)
    )
    total = sum((each * weight).sum() for each, weight in zip((rows, state), weights))
    gradients = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    return {"rows": rows.detach(), "state": state.detach(), **dict(zip(names, gradients))}


@pytest.mark.parametrize("gate", ["none", "head", "channel"])
@pytest.mark.parametrize("is_before", [False, True])
@pytest.mark.parametrize("is_along_keys", [False, True])
def test_every_form_of_a_general_transition_equals_the_reference_loops(gate, is_before, is_along_keys):
    for length in (1, 2, 19):
        d = sample(length, gate, is_before, is_along_keys)
        expected, without_state = with_gradients(loops, d), with_gradients(lambda d: (loops(d)[0], None), d)
        for name, compute in COMPUTED_FORMS.items():
            wanted = without_state if name == "dense" else expected
            for part, value in with_gradients(compute, d).items():
                assert difference(value, wanted[part]) < 1e-12, (name, part, length)


@pytest.mark.parametrize("gate", ["none", "head", "channel"])
@pytest.mark.parametrize("is_before", [False, True])
@torch.no_grad()
def test_blocks_of_every_size_equal_the_reference_loops(gate, is_before):
    for length, size in ((1, 1), (2, 2), (19, 3), (19, 8), (40, 40)):
        d = sample(length, gate, is_before, is_along_keys=False)
        for by_halves in (False, True):
            for part, expected in zip(forms.chunked(d, size, d.v, by_halves), loops(d)):
                assert difference(part, expected) < 1e-12, (length, size, by_halves)


@pytest.mark.parametrize("width", [1, 5])
@torch.no_grad()
def test_blocks_without_a_removal_equal_all_pairs(width):
    d = replace(sample(19, "channel", False, False), mirrors=None)
    d = replace(d, log_gate=d.log_gate[..., :width])
    for by_halves in (False, True):
        rows, _ = forms.chunked(d, 3, d.v, by_halves)
        assert difference(rows, forms.scores(d).tril() @ d.v) < 1e-12, by_halves


def test_reading_before_and_after_the_decay_differ():
    d = sample(9, "channel", False, False)
    assert difference(loops(d)[0], loops(replace(d, mirrors=d.mirrors._replace(reads_before_decay=True)))[0]) > 1e-3


@pytest.mark.parametrize("is_before", [False, True])
def test_blocks_of_a_bounded_decay_equal_the_reference_loops(is_before):
    for length, size in ((2, 1), (3, 4), (19, 6), (40, 40)):
        d = sample(length, "channel", is_before, is_along_keys=False)
        d = replace(d, log_gate=-torch.rand_like(d.q))
        expected = with_gradients(loops, d)
        found = with_gradients(lambda d, size=size: forms.chunked(replace(d, least_log_gate=-1.0), size, d.v), d)
        for part, value in found.items():
            assert difference(value, expected[part]) < 1e-12, (part, length)


def test_the_bound_of_a_decay_is_used_only_in_blocks_whose_exponents_fit():
    """If gates are far below the bound, exponents that rely on it overflow."""
    d = sample(9, "channel", True, False)
    d = replace(d, log_gate=torch.full_like(d.log_gate, -1000.0), least_log_gate=-5.0)
    assert not forms.split(d, 8).scores.isfinite().all()
    assert forms.split(d, 9).scores.isfinite().all()


@pytest.mark.parametrize("is_before", [False, True])
def test_a_float32_state_survives_closed_gates(is_before):
    d = sample(200, "channel", is_before, False)
    narrow = {name: getattr(d, name).float() for name in ("q", "k", "v", "log_gate")}
    w, beta, _, read, _ = d.mirrors
    narrow["mirrors"] = forms.Mirrors(w.float(), beta.float(), None, read.float(), is_before)
    expected, _ = loops(d)
    for by_halves in (False, True):
        rows, _ = forms.chunked(replace(d, **narrow), 16, d.v.float(), by_halves)
        assert difference(rows.double(), expected) < 1e-5
    bounded = replace(d, log_gate=-torch.rand_like(d.q))
    narrow |= {"log_gate": bounded.log_gate.float(), "least_log_gate": -1.0}
    rows, _ = forms.chunked(replace(d, **narrow), 40, d.v.float())
    assert difference(rows.double(), loops(bounded)[0]) < 1e-5
