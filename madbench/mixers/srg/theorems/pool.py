"""Checks of the pool of a context, the measure that its slots define (HyperMLP, Appendices D.1, E, H and I).

A pool is the measure sum_j delta(u_j, v_j) of the atoms (u_j, v_j), the rows of U = R(1)^T X and V = R(2)^T X. The
output of a head is the integral of Psi(x; u, v) = ReLU(alpha(x; u)) v L(2)^T over the pool, divided by the norm of the
hidden scores, where alpha(x; u) = x L(1) u^T. This holds for base R without RoPE. With RoPE, L(1) would differ from
token to token.

Omega_t is the set of atoms within the bounds of Assumption D.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.checks.residuals import difference, maximum
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import EPS, SequenceMixing
from madbench.mixers.srg.reference import convolve, mixing_matrix

SHORTEST = 3  # smallest number of tokens of a context
DRAWN = 64  # number of random atoms, measures or gates


@dataclass(frozen=True)
class Pool:
    """The pool of one head for the last row of a sequence with S slots, and the matrices that define the pool.

    The pool has one atom (u_j, v_j) per slot: rows of U = R(1)^T X and V = R(2)^T X, where X is the context and R(1)
    and R(2) are the mixing matrices. L(1) and L(2) are the matrices of the QK side and of the VO side.
    """

    token: Tensor
    """The token x of the row, (D,)."""
    address: Tensor
    """L(1), the matrix of the QK side, (D, D)."""
    readout: Tensor
    """L(2)^T, the transposed matrix of the VO side, (D, D)."""
    u: Tensor
    """U = R(1)^T X (S, D), the vectors u_j of the atoms, computed by the mixer's own mixing."""
    v: Tensor
    """V = R(2)^T X (S, D), the vectors v_j of the atoms, computed by the mixer's own mixing."""
    r1: Tensor
    """R(1), the matrix that mixes scores, (S, S), computed from its equation."""
    r2: Tensor
    """R(2), the matrix that mixes activations, (S, S), computed from its equation."""
    context: tuple[Tensor, Tensor]
    """The context X (S, D) twice: as the keys read it and as the values read it, each after its own convolution."""

    def coefficients(self, u: Tensor) -> Tensor:
        """The scores alpha = x L(1) u^T (..,) of atoms u (.., D) for the pool's token x. Their signs select slots."""
        return u @ (self.token @ self.address)

    def features(self, u: Tensor, v: Tensor) -> Tensor:
        """The features Psi = ReLU(x L(1) u^T) v L(2)^T (.., D) of atoms u and v (.., D) for the pool's token x."""
        return F.relu(self.coefficients(u))[..., None] * (v @ self.readout)

    @property
    def norm(self) -> Tensor:
        """The norm of the hidden scores of the pool's row, by which the head's output is divided."""
        return (self.coefficients(self.u).square().sum() + EPS).sqrt()


@dataclass(frozen=True)
class Reach:
    """The bounds of Assumption D.1 for a set of pools. They define Omega_t, the set of admissible atoms (Lemma D.2).

    Each norm is the largest over these pools.
    """

    u: float
    """Bound of |u|: C_R1 B_X, the largest spectral norm of the mixing matrix R(1) times the largest norm of a context
    X."""
    v: float
    """Bound of |v|: C_R2 B_X, the largest spectral norm of the mixing matrix R(2) times the largest norm of a context
    X."""
    token: float
    """Largest norm of a token, B_x."""
    address: float
    """Largest spectral norm of L(1), the matrix of the QK side, C_L1."""
    readout: float
    """Largest spectral norm of L(2), the matrix of the VO side, C_L2."""

    @property
    def features(self) -> float:
        """The bound of Lemma D.3 on the norm of the features Psi of any atom within these bounds."""
        return self.token * self.address * self.readout * self.u * self.v


def pools(mixer: DynamicMLP, x: Tensor, head: int) -> Iterator[Pool]:
    """The pools of one head for the rows of x (B, T, D) that see at least ``SHORTEST`` tokens, sequence by sequence."""
    for sequence in x:
        for length in range(SHORTEST, len(sequence) + 1):
            yield pool(mixer, sequence[:length], head)


def pool(mixer: DynamicMLP, x: Tensor, head: int) -> Pool:
    """The :class:`Pool` of one head for the last row of x (T, D)."""
    w, label, token = dict(mixer.named_parameters()), mixer.label, x[-1]
    order = range(len(x) - 1, -1, -1) if mixer.by_lag else range(len(x))
    registers = w["registers"] if label.registers else x[:0]
    context = (convolve(x, w[f"{side}_conv.weight"]) if label.conv else x for side in "kv")
    keys, values = (torch.cat((registers, side[list(order)])) for side in context)
    w_v, w_o = w["v.weight"], w["o.weight"]
    if label.adapter:
        w_v, w_o = (w[f"{side}.weight"] + w[f"{side}_up.weight"] @ w[f"{side}_down.weight"] for side in "vo")
    gates = (torch.sigmoid(token @ w[f"{side}.weight"].T + w[f"{side}.bias"]) for side in ("qk_gate", "vo_gate"))
    qk_gate, vo_gate = gates if label.gates else (torch.ones(len(w[f"{side}.weight"])).to(x) for side in "qv")
    of_qk, of_vo = (
        slice(head * width, (head + 1) * width) for width in (mixer.allocation.qk_width, mixer.allocation.vo_width)
    )
    address = w["q.weight"][of_qk].T @ torch.diag(qk_gate[of_qk]) @ w["k.weight"][of_qk]
    readout = w_v[of_vo].T @ torch.diag(vo_gate[of_vo]) @ w_o[:, of_vo].T
    eye = torch.eye(len(keys)).to(x)
    matrices = (
        mixing_matrix(w, name, head, token, len(keys)) if mix else eye
        for name, mix in (("mix1", mixer.mix1), ("mix2", mixer.mix2))
    )
    atoms = (_mix_columns(mix, side, token, head) for mix, side in ((mixer.mix1, keys), (mixer.mix2, values)))
    (key_atoms, value_atoms), (r1, r2) = atoms, matrices
    return Pool(token, address, readout, key_atoms, value_atoms, r1, r2, (keys, values))


def _mix_columns(mix: SequenceMixing | None, context: Tensor, token: Tensor, head: int) -> Tensor:
    """Return R^T X (S, D) for the context X (S, D), computed by the mixer's own module. X if there is no mixing.

    R is the mixing matrix of one head for a token (D,). Each column of X is mixed like a row of scores.
    """
    if mix is None:
        return context
    columns = context.T.expand(1, mix.heads, -1, -1)
    strengths = mix.strengths(token[None, None]).expand(-1, -1, columns.shape[-2], -1)
    return mix.right(columns, strengths)[0, head].T


def _reach(of_head: list[Pool]) -> Reach:
    widest = max(float(side.norm()) for each in of_head for side in each.context)
    most = {
        name: max(float(torch.linalg.matrix_norm(getattr(each, name), 2)) for each in of_head)
        for name in ("r1", "r2", "address", "readout")
    }
    token = max(float(each.token.norm()) for each in of_head)
    return Reach(most["r1"] * widest, most["r2"] * widest, token, most["address"], most["readout"])


def _of_heads(mixer: DynamicMLP, x: Tensor) -> Iterator[list[Pool]]:
    for head in range(mixer.n_head):
        yield [*pools(mixer, x, head)]


def reachable(mixer: DynamicMLP, x: Tensor) -> float:
    """Check that a context of a single token has the atom (u, v) = (token, token), so any vector is reachable.

    This is Proposition C.9. The context of each token of x (B, T, D) has this token only. Return a residual, which is 0
    if the proposition holds: the largest relative difference of the atoms of a head from (token, token) or, if it is
    larger, the number of tokens of x minus the number of distinct atoms of a head.
    """
    away, tokens = [0.0], x.flatten(0, 1)
    for head in range(mixer.n_head):
        own = [pool(mixer, token[None], head) for token in tokens]
        atoms = torch.stack([torch.cat((each.u[-1], each.v[-1])) for each in own])
        away += [difference(atoms, tokens.repeat(1, 2)), float(len(tokens) - len(atoms.unique(dim=0)))]
    return maximum(*away)


def integral(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare output rows with the sums of the features Psi over their pools, divided by the norm (eq. 45, 47).

    Pools are computed from the equations. The sums are over atoms and heads.
    """
    rows = []
    for of_head in _of_heads(mixer, x):
        # from the equation, not from the mixer's own mixing
        written = (replace(each, u=each.r1.T @ each.context[0], v=each.r2.T @ each.context[1]) for each in of_head)
        rows.append(torch.stack([each.features(each.u, each.v).sum(0) / each.norm for each in written]))
    return difference(sum(rows[1:], rows[0]), mixer(x)[:, SHORTEST - 1 :].flatten(0, 1))


def atoms(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest ratio of the norm of an atom to the bound of Lemma D.2, over all atoms, heads and rows.

    An atom consists of two vectors u and v, whose bounds are those of :class:`Reach`. The lemma holds if the result is
    at most 1.
    """
    ratios = []
    for of_head in _of_heads(mixer, x):
        reach = _reach(of_head)
        for each in of_head:
            ratios += [float(each.u.norm(dim=-1).max()) / reach.u, float(each.v.norm(dim=-1).max()) / reach.v]
    return maximum(*ratios)


def features(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest ratio of the norm of the features Psi to its bound, over heads, rows and atoms (Lemma D.3).

    Atoms are drawn from Omega_t, the set within the bounds of Assumption D.1, and include the maximizer. The lemma
    holds if the result is at most 1.
    """
    ratios = []
    for of_head in _of_heads(mixer, x):
        reach = _reach(of_head)
        for each in of_head:
            u, v = _atoms_of(reach, each)
            ratios.append(float(each.features(u, v).norm(dim=-1).max()) / reach.features)
    return maximum(*ratios)


def _atoms_of(reach: Reach, each: Pool) -> tuple[Tensor, Tensor]:
    """Atoms u and v (N, D) within the bounds ``reach``, the set Omega_t.

    They are random atoms on the boundary, the maximizer of Psi for the token of the pool ``each``, and the atoms of
    this pool.
    """
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.randn(DRAWN, len(each.token), generator=generator).to(each.token) for _ in range(2))
    u = torch.cat((u, (each.token @ each.address)[None]))
    v = torch.cat((v, torch.linalg.svd(each.readout).U[:, :1].T))
    u, v = F.normalize(u, dim=-1) * reach.u, F.normalize(v, dim=-1) * reach.v
    return torch.cat((u, each.u)), torch.cat((v, each.v))


def readouts(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest ratio of the norm of an integral of Psi to its bound, over measures mu (Theorem D.4).

    The bound is sup |Psi| times the total variation of mu. The measures are single atoms and random signed measures on
    atoms within the bounds of Assumption D.1. The theorem holds if the result is at most 1.
    """
    ratios, generator = [], torch.Generator().manual_seed(1)
    for of_head in _of_heads(mixer, x):
        sets = [_atoms_of(_reach(of_head), each) for each in of_head]
        most = max(float(each.features(u, v).norm(dim=-1).max()) for each, (u, v) in zip(of_head, sets))
        for each, (u, v) in zip(of_head, sets):
            weights = torch.cat((torch.eye(len(u)), torch.randn(DRAWN, len(u), generator=generator))).to(u)
            masses = total_variation(torch.cat((u, v), dim=-1), weights)
            ratios.append(float(((weights @ each.features(u, v)).norm(dim=-1) / (most * masses)).max()))
    return maximum(*ratios)


def total_variation(atoms: Tensor, weights: Tensor) -> Tensor:
    """The total variations |mu|_TV (N,) of N measures sum_j weights_j delta(atoms_j).

    ``weights`` are (N, S), and ``atoms`` (S, C). Equal atoms count as one atom.
    """
    _, place = atoms.unique(dim=0, return_inverse=True)
    return torch.zeros_like(weights).index_add(1, place, weights).abs().sum(1)


def restriction(mixer: DynamicMLP, x: Tensor) -> float:
    """The error of the statement that selection restricts a measure to its active slots. Zero if the statement holds.

    It is made in Theorem D.6, Lemma E.6 and Remark E.7. The error is the larger of two numbers, over heads and rows:
    the increase of the total variation of random signed measures on a pool when inactive slots are removed, and the
    number of slots whose activity is not given by the sign of their score alpha. Two tokens of the context are equal,
    so that pools without mixing and convolution have two equal atoms.
    """
    x = x.clone()
    x[:, 2] = x[:, 1]
    maps, generator, excesses = mixer.maps(x), torch.Generator().manual_seed(0), [0.0]
    for head in range(mixer.n_head):
        for b, sequence in enumerate(x):
            for length in range(SHORTEST, x.shape[1] + 1):
                each = pool(mixer, sequence[:length], head)
                slots = length + mixer.register_slots
                gate = (maps.activations[b, head, length - 1, :slots] > 0).to(x)
                excesses.append(float((gate - (each.coefficients(each.u) > 0).to(x)).abs().sum()))
                atoms = torch.cat((each.u, each.v), dim=-1)
                weights = torch.randn(DRAWN, slots, generator=generator).to(x)
                change = total_variation(atoms, gate * weights) - total_variation(atoms, weights)
                excesses.append(float(change.max()))
    return maximum(*excesses)


def outputs(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest ratio of |row| |scores| to its bound, over heads and rows (Proposition E.8).

    |row| is the norm of the part of an output row that one head adds, and |scores| the norm of the head's hidden
    scores. The bound is the largest |Psi| of the atoms of the head's pools, times the number of active slots. The
    proposition holds if the result is at most 1.
    """
    ratios, maps, w_o, width = [0.0], mixer.maps(x), mixer.o.weight.clone(), mixer.allocation.vo_width
    if mixer.o_up and mixer.o_down:
        w_o += mixer.o_up.weight @ mixer.o_down.weight
        mixer.o_up.weight.zero_()
    for head in range(mixer.n_head):
        own = slice(head * width, (head + 1) * width)
        mixer.o.weight.zero_()
        mixer.o.weight[:, own] = w_o[:, own]
        rows = mixer(x)[:, SHORTEST - 1 :].flatten(0, 1)
        mixer.o.weight.copy_(w_o)
        counts = (maps.activations[:, head, SHORTEST - 1 :] > 0).sum(-1).flatten().tolist()
        of_head = [*pools(mixer, x, head)]
        most = max(float(each.features(each.u, each.v).norm(dim=-1).max()) for each in of_head)
        for each, row, count in zip(of_head, rows, counts):
            size = float(row.norm() * each.norm)
            ratios.append(size / (most * count) if count else (math.inf if size else 0.0))
    return maximum(*ratios)


def variation_norm(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest relative violation of the norm properties in Theorem D.7, for two random functions f per head.

    |f|_var is the least total variation of a measure that represents f, found by linear programming. Four properties
    are tested:

    - |f| is at most sup |Psi| |f|_var.
    - |f|_var is at most the total variation of the measure that f was made from.
    - The norm of the sum of both functions is at most the sum of their norms.
    - |3 f|_var is 3 |f|_var.

    Zero if all of them hold.
    """
    away, generator = [0.0], torch.Generator().manual_seed(0)
    for of_head in _of_heads(mixer, x[:1, -SHORTEST - 2 :]):
        u, v = (side[-DRAWN // 2 :] for side in _atoms_of(_reach(of_head), of_head[-1]))
        table = torch.stack([each.features(u, v) for each in of_head])  # (N, atoms, D)
        most = float(table.norm(dim=-1).max())
        weights = torch.randn(2, len(u), generator=generator).to(u)
        made = [torch.einsum("s,nsd->nd", row, table) for row in weights]
        norms = [_least_variation(table, f) for f in (*made, made[0] + made[1], 3 * made[0])]
        for f, norm, row in zip(made, norms, weights):
            away += [float(f.norm(dim=-1).max()) / (most * norm) - 1, norm / float(row.abs().sum()) - 1]
        away += [norms[2] / (norms[0] + norms[1]) - 1, abs(norms[3] / norms[0] - 3) / 3]
    return maximum(*away)


def _least_variation(table: Tensor, f: Tensor) -> float:
    """The smallest sum of |w_s| such that sum_s w_s table[:, s] = f, found by linear programming.

    ``table`` (N, S, D) is Psi for N tokens and S atoms, and ``f`` is (N, D).
    """
    from scipy.optimize import linprog

    matrix, target = table.movedim(1, -1).flatten(0, 1).numpy(), f.flatten().numpy()
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    rank = int((sizes > 1e-10 * sizes[0]).sum())  # number of independent equations
    rows, sides = right[:rank], left[:, :rank].T @ target / sizes[:rank]
    solved = linprog(np.ones(2 * matrix.shape[1]), A_eq=np.concatenate((rows, -rows), axis=1), b_eq=sides)
    if not solved.success:
        raise ArithmeticError(f"linear programming found no representation of a representable f: {solved.message}")
    return float(solved.fun)


def prompt(mixer: DynamicMLP, x: Tensor) -> float:
    """The error of Proposition H.1 on the effect of an earlier document on the last row. Zero if the proposition holds.

    It is the sum of two numbers. The first is the difference between the change of the last row and its two predicted
    terms, which are the atoms of the document and the change of the norm. The second is the number of slots whose
    activity is not as predicted: slots of the old context must stay as they are, and a slot of the earlier document
    must be active exactly if its score is positive.
    """
    first, second, token = x[0, :SHORTEST], x[1, : SHORTEST + 1], x[0, -1:]
    short, whole = torch.cat((first, token)), torch.cat((second, first, token))
    change, moved = mixer(whole[None])[0, -1] - mixer(short[None])[0, -1], 0.0
    expected = torch.zeros_like(change)
    active = [mixer.maps(each[None]).activations[0, :, -1, mixer.register_slots :] > 0 for each in (short, whole)]
    active = active if mixer.by_lag else [each.flip(-1) for each in active]  # newest first
    for head in range(mixer.n_head):
        before, after = (pool(mixer, each, head) for each in (short, whole))
        kept = before.features(before.u, before.v).sum(0)
        new = after.features(second, second).sum(0)
        expected = expected + (1 / after.norm - 1 / before.norm) * kept + new / after.norm
        is_selected = torch.cat((active[0][head], after.coefficients(second.flip(0)) > 0))
        moved += float((active[1][head] != is_selected).sum())
    return difference(change, expected) + moved


def spurious(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest difference between the number of active noise slots and half the number of noise slots.

    It is the largest over heads and sequences. All tokens of x but the last are noise. Active slots are counted for x
    and for x with negated noise, and the mean of both counts is taken.
    """
    negative = -x
    negative[:, -1] = x[:, -1]
    counts = []
    for noise in (x, negative):
        active = mixer.maps(noise).activations[:, :, -1, mixer.register_slots :] > 0
        counts.append((active[..., 1:] if mixer.by_lag else active[..., :-1]).sum(-1).double())
    return float((sum(counts[1:], counts[0]) / 2 - (x.shape[1] - 1) / 2).abs().max())
