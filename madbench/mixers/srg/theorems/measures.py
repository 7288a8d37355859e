"""Measurements of the S/R/G checks. Each function takes a small mixer and an input, changes one of them, and compares.

Unless stated otherwise, a function returns a relative difference, which is zero up to rounding if the check holds.
W(1), W(2), L(1), M(1), M(2), R(1) and R(2) are matrices of the HyperMLP paper, whose equations are cited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers import Family, Size
from madbench.mixers.checks import SMALL, path_checks, sample
from madbench.mixers.checks.residuals import Residual, decode_tokens, difference, filled_mixer, maximum
from madbench.mixers.srg import block_attention
from madbench.mixers.srg.allocation import SrgAllocation
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.grammar import SrgLabel
from madbench.mixers.srg.parts import EPS
from madbench.mixers.srg.reference import convolve, mixing_matrix

WIDE = Size(d_model=64, n_head=1, max_len=8, budget="paper")  # QK heads of more than one rotated pair
MIXED = Size(d_model=16, n_head=2, max_len=path_checks.LONGEST, budget="paper")
STRICT = Size(d_model=64, n_head=2, max_len=32)
WINDOW = 3  # number of tokens in a window, of sequences of 8
POSITIONS = (1, 50, 63, 64, 65, 257, 1000)
FAR = (257, 300)  # positions that bfloat16 cannot represent
LARGE_BATCH, BATCHED = 250, 65  # sequences and tokens, more than fit into one tile or one block of a convolution


def with_ranks(family: Family[SrgLabel, SrgAllocation], label: SrgLabel, **ranks: int) -> tuple[DynamicMLP, Tensor]:
    """A small mixer of a label with some given ``ranks`` (``qk``, ``vo`` or ``mix``), and an input for it.

    Other ranks are those that the family chooses. Weights are as in :func:`madbench.mixers.checks.sample`.
    """
    settings = family.Settings()

    def build() -> nn.Module:
        allocation = family.solve(label, SMALL, settings)
        return family.build(replace(allocation, ranks=allocation.ranks | ranks), settings)

    return cast("tuple[DynamicMLP, Tensor]", filled_mixer(build))


def lengths(mixer: DynamicMLP, x: Tensor) -> float:
    return difference(mixer(x[:, :5]), mixer(x)[:, :5])


def budget(family: Family[SrgLabel, SrgAllocation], label: SrgLabel) -> float:
    """A number of parameters that is zero if a mixer of this label meets its budget as closely as possible.

    It is the sum of three numbers:

    - the number of parameters above the budget;
    - the error of the allocation's count;
    - if the next larger rank fits too, the number of parameters that it would leave unused, plus one; otherwise 0.
    """
    settings = family.Settings()
    allocation = family.solve(label, STRICT, settings)
    counted = sum(parameter.numel() for parameter in family.build(allocation, settings).parameters())
    side, step = ("qk", allocation.query_heads * (1 + label.rope)) if label.rank == "v" else ("vo", STRICT.n_head)
    larger = replace(allocation, ranks=allocation.ranks | {side: allocation.ranks[side] + step})
    return abs(counted - allocation.total) + max(0, -allocation.slack) + max(0, larger.slack + 1)


def dynamic_mlp(mixer: DynamicMLP, x: Tensor) -> float:
    prefix = x[:, :5]
    actual, expected = [], mixer(x)[:, 4]
    for sequence in prefix:
        actual.append(row_of(mixer, sequence[-1], *dynamic_weights(mixer, sequence)))
    return difference(torch.stack(actual), expected)


def row_of(mixer: DynamicMLP, token: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The output row sigma(x W(1)) W(2) (D,) of a token x (D,), summed over heads (eq. 5).

    ``first`` is W(1) (H_q, D, S), and ``second`` is W(2) (H, S, D), for S slots. sigma is the activation of the base.
    """
    hidden = token @ first
    if mixer.label.has_softmax:
        a = torch.softmax(hidden / mixer.allocation.qk_width**0.5, dim=-1)
    else:
        gate = hidden[: mixer.n_head]
        a = gate / gate.square().sum(-1, keepdim=True).add(1e-12).sqrt()
        a = a if mixer.label.base == "L" else F.relu(a)
    if mixer.label.base == "G":
        a = a * F.softplus(hidden[mixer.n_head :])
    return (a[:, None] @ second).sum(0)[0]


def dynamic_weights(
    mixer: DynamicMLP, x: Tensor, gated_by: Tensor | None = None, mixed_by: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The weight matrices of the dynamic MLP that computes the last row of x (T, D), from the parameters (eq. 9, 10).

    W(1) (H_q, D, S) maps the token to hidden scores of S slots, and W(2) (H, S, D) maps activations to the output. The
    gates M(1) and M(2) are computed from the token ``gated_by`` (D,), and R(1) and R(2) from ``mixed_by`` (D,). None
    means the last token of x.
    """
    w, label, length = dict(mixer.named_parameters()), mixer.label, len(x)
    token, mixed_by = (x[-1] if own is None else own for own in (gated_by, mixed_by))
    registers = w["registers"] if label.registers else x[:0]
    count = length + len(registers)
    w_v, w_o = w["v.weight"], w["o.weight"]
    if label.adapter:
        w_v, w_o = (w[f"{side}.weight"] + w[f"{side}_up.weight"] @ w[f"{side}_down.weight"] for side in "vo")
    slots = range(length - 1, -1, -1) if mixer.by_lag else range(length)
    k_in, v_in = (convolve(x, w[f"{side}_conv.weight"]) if label.conv else x for side in "kv")
    gates = (torch.sigmoid(token @ w[f"{side}.weight"].T + w[f"{side}.bias"]) for side in ("qk_gate", "vo_gate"))
    qk_gate, vo_gate = gates if label.gates else (torch.ones(len(w[f"{side}.weight"])).double() for side in "qv")
    width = mixer.allocation.qk_width
    weights: tuple[list[Tensor], list[Tensor]] = ([], [])
    frequency = 10000.0 ** (-torch.arange(0, width, 2).double() / width) if label.rope else torch.zeros(0).double()
    turn = torch.zeros(width, width).double()
    for i, angle in enumerate(frequency):
        turn[i, i + width // 2], turn[i + width // 2, i] = angle, -angle
    for head in range(mixer.query_heads):
        rows = slice(head * width, (head + 1) * width)
        w_q, w_k, gate = w["q.weight"][rows].T, w["k.weight"][rows], torch.diag(qk_gate[rows])
        at_end = w_q @ torch.matrix_exp(turn * (length - 1)) @ gate
        columns = [w_q @ gate @ w_k @ register for register in registers]
        columns += [at_end @ torch.matrix_exp(turn * i).T @ w_k @ k_in[i] for i in slots]
        first = torch.stack(columns, dim=1)
        weights[0].append(first @ mixing_matrix(w, "mix1", head, mixed_by, count) if label.mix1 else first)
    width, pool = mixer.allocation.vo_width, torch.cat((registers, v_in[list(slots)]))
    for head in range(mixer.n_head):
        rows = slice(head * width, (head + 1) * width)
        second = pool @ w_v[rows].T @ torch.diag(vo_gate[rows]) @ w_o[:, rows].T
        weights[1].append(mixing_matrix(w, "mix2", head, mixed_by, count).T @ second if label.mix2 else second)
    return torch.stack(weights[0]), torch.stack(weights[1])


def extension(mixer: DynamicMLP, x: Tensor) -> float:
    residuals = []
    for mix in filter(None, (mixer.mix1, mixer.mix2)):
        s = mix.strengths(x[:1])[:, :, -1:]
        slots = mixer.allocation.slots
        whole, block = (mix.right(torch.eye(n).double(), s) for n in (slots, WINDOW))
        a, b = mix.A, mix.B
        expected = torch.eye(slots) + torch.diag_embed(mix.p) + (a * s[0]) @ b.transpose(-1, -2)
        transposed = mix.right_transposed(torch.eye(WINDOW).double(), s)
        residuals += [difference(block, whole[..., :WINDOW, :WINDOW]), difference(whole[0], expected)]
        residuals.append(difference(transposed.transpose(-1, -2), block))
    return maximum(*residuals)


def _scale_scores(mixer: DynamicMLP, factor: float) -> None:
    """Multiply the scores whose sign selects slots by ``factor``. For base G these are the scores of the gate."""
    mixer.q.weight[: mixer.n_head * mixer.allocation.qk_width] *= factor


def routing(mixer: DynamicMLP, x: Tensor) -> float:
    maps = mixer.maps(x)
    _scale_scores(mixer, 3.0)
    active, is_positive = maps.activations > 0, maps.hidden[:, : mixer.n_head] > 0
    return float((active != is_positive).sum() + (active != (mixer.maps(x).activations > 0)).sum())


def token_wise(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare a mixer whose tables make R(1) = R(2) = I with the mixer without mixing."""
    for mix in filter(None, (mixer.mix1, mixer.mix2)):
        mix.A.zero_(), mix.p.zero_()
    y, mixer.mix1, mixer.mix2 = mixer(x), None, None
    return difference(mixer(x), y)


def scale_branch(mixer: DynamicMLP, x: Tensor) -> float:
    """Check that the scale scores of base G change the activations of active slots, but not which slots are active.

    The sign of all scale scores is changed. Return the number of slots that become active or inactive, plus the number
    of active slots whose activation stays the same.
    """
    before = mixer.maps(x).activations
    mixer.q.weight[mixer.n_head * mixer.allocation.qk_width :].neg_()
    after = mixer.maps(x).activations
    active = before > 0
    return float(((after > 0) != active).sum() + (after[active] == before[active]).sum())


def bend(mixer: DynamicMLP, x: Tensor, is_static: bool = False) -> float:
    """The largest bend of the boundaries of up to 3 slots. Zero if all boundaries are flat.

    The boundary of a slot is the set of values of the last token at which the slot's hidden score is zero. Three points
    of the boundary are found, on three parallel lines. The bend is their deviation from a straight line. If
    ``is_static`` is true, the QK matrix L(1) = W_q M(1) W_k^T and the mixing matrix R(1) are made independent of the
    token first.
    """
    free = x.shape[-1] // 2
    mixer.k.weight[:, :free] = 0  # the token moves but its key does not, so that X stays constant
    if is_static:
        for gate in (mixer.qk_gate, mixer.mix1 and mixer.mix1.gate):
            if gate:
                gate.weight.zero_()
    across, along = torch.zeros(2, x.shape[-1]).double()
    across[:free], along[:free] = x[1, 0, :free], x[1, 1, :free]

    def hidden(u: float, s: Tensor) -> Tensor:
        """The scores after R(1) of the last row, in the first head: (points, slots), one row per value of ``s``.

        For value i, the last token is moved by ``u * across + s[i] * along``.
        """
        moved = x[:1].repeat(len(s), 1, 1)
        moved[:, -1] += u * across + s[:, None] * along
        return mixer.maps(moved).hidden[:, 0, -1]

    def switches(u: float, low: float = -8.0, high: float = 8.0) -> dict[int, tuple[float, float, float]]:
        """The first interval of s in which a slot's hidden score changes its sign, as (start, end, zero) by slot.

        The interval is a step of a grid from ``low`` to ``high``, on the line at ``u``. The zero in it is found by
        linear interpolation. Slots without a change of sign are left out.
        """
        s = torch.linspace(low, high, 33).double()
        h = hidden(u, s)
        crossings = {}
        for i, slot in reversed((h[1:].sign() != h[:-1].sign()).nonzero().tolist()):
            start, end, before, after = float(s[i]), float(s[i + 1]), float(h[i, slot]), float(h[i + 1, slot])
            crossings[slot] = start, end, start + (end - start) * before / (before - after)
        return crossings

    def bend_of(slot: int) -> float:
        cells = [crossings[slot] for crossings in coarse]
        for _ in range(2):
            cells = [switches(u, *cell[:2])[slot] for u, cell in zip(lines, cells)]
        left, middle, right = (cell[2] for cell in cells)
        return abs(left - 2 * middle + right)

    lines = (-0.5, 0.0, 0.5)
    coarse = [switches(u) for u in lines]
    return maximum(*map(bend_of, sorted(set.intersection(*map(set, coarse)))[:3]))


def update_subspace(mixer: DynamicMLP, x: Tensor) -> float:
    values = torch.linalg.svdvals(mixer(x).flatten(0, 1))
    return float(values[4] / values[0])


def null_directions(mixer: DynamicMLP, x: Tensor) -> float:
    free = 10
    for name, parameter in mixer.named_parameters():
        if name.endswith("gate.weight") or name in ("k.weight", "v.weight", "v_down.weight"):
            parameter[:, :free] = 0  # only W_q reads these channels
    moved = x.clone()
    moved[:, -1, :free] += torch.linalg.svd(mixer.q.weight[:, :free]).Vh[-1]
    return difference(mixer(moved), mixer(x))


def inactive(mixer: DynamicMLP, x: Tensor) -> float:
    """The number of slots that a row sees and whose activation is zero, over all rows and heads."""
    inactive = mixer.maps(x).activations == 0
    return float((inactive & inactive.new_ones(inactive.shape).tril(mixer.register_slots)).sum())


def linear(mixer: DynamicMLP, x: Tensor) -> float:
    """Check ReLU(h) - ReLU(-h) = h for activations: without ReLU, every slot is read with the sign of its score.

    The left side is the activations minus those for negated selecting scores. The right side is the activations without
    ReLU. Return their relative difference, plus the number of visible slots whose activation without ReLU is zero, plus
    1 if the output for negated scores is the same.
    """
    y, maps = mixer(x), mixer.maps(x)
    gate = maps.hidden[:, : mixer.n_head]
    full = gate / gate.square().sum(-1, keepdim=True).add(EPS).sqrt()
    if mixer.label.base == "G":
        full = full * F.softplus(maps.hidden[:, mixer.n_head :])
    visible = gate.new_ones(gate.shape).tril(mixer.register_slots)
    unread = float(((full == 0) & (visible == 1)).sum())
    _scale_scores(mixer, -1.0)
    signed = maps.activations - mixer.maps(x).activations
    return difference(signed, full) + unread + float((mixer(x) - y).norm() == 0)


def full_pool(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the output of base L with that of base R minus that of base R for negated scores.

    Both are equal because h = ReLU(h) - ReLU(-h).
    """
    y, mixer.label = mixer(x), replace(mixer.label, base="R")
    selected = mixer(x)
    _scale_scores(mixer, -1.0)
    return difference(selected - mixer(x), y)


def vo_gate(mixer: DynamicMLP, x: Tensor) -> float:
    assert mixer.vo_gate is not None
    y, before = mixer(x), mixer.maps(x).activations
    mixer.vo_gate.weight.neg_()
    changed = (mixer.maps(x).activations != before).sum()
    return float(changed + ((mixer(x) - y).norm() == 0))


def rope(
    mixer: DynamicMLP,
    x: Tensor,
    has_even_gate: bool = False,
    order: str = "before_gate",
    positions: Sequence[int] = POSITIONS,
    is_mixed: bool = False,
) -> float:
    """The largest relative change of scores if a sequence starts at one of ``positions`` instead of position 0.

    If ``has_even_gate`` is true, the QK gate is one half for every channel. ``order`` is the mixer's ``rope_order``. If
    ``is_mixed`` is true, scores are computed under bfloat16 autocast. Positions from 257 on would then be rounded if
    they were computed in bfloat16.
    """
    mixer.rope_order = order
    if has_even_gate and mixer.qk_gate is not None:
        mixer.qk_gate.weight.zero_(), mixer.qk_gate.bias.zero_()
    if is_mixed:
        mixer, x = mixer.float(), x.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
        here = mixer.maps(x).scores
        return maximum(*(difference(mixer.maps(x, position).scores, here) for position in positions))


def norm(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative error of the norms of hidden scores under bfloat16 autocast, compared with norms in float64.

    Both are computed from the same hidden scores.
    """
    mixer, x = mixer.float(), x.float()
    with torch.autocast("cpu", torch.bfloat16):
        p = block_attention.ordered(mixer, mixer.for_each_head(mixer.project(x, 0)))
        h, _, _, norm = block_attention.weights(mixer, block_attention.scores(mixer, p, 0), p, mixer.register_slots)
    gate = h[:, : mixer.n_head].double().tril(mixer.register_slots)
    assert norm is not None
    return difference(norm.double(), gate.square().sum(-1, keepdim=True).add(EPS).sqrt())


def sliding(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the last row of decoding with ``slide=True`` and the last row for the newest ``max_len`` tokens alone."""
    x = torch.cat((x, -x, x.roll(1, dims=1)), dim=1)
    return difference(decode_tokens(mixer, x, slide=True)[:, -1], mixer(x[:, -mixer.max_len :])[:, -1])


def sequences(family: Family[SrgLabel, SrgAllocation], label: SrgLabel) -> Residual:
    """Compare outputs and gradients of the paths ``tiled`` and ``dense``, for more sequences than fit into a tile."""
    outcomes = []
    for path in ("dense", "tiled"):
        mixer, x = sample(family, label, path, replace(SMALL, max_len=BATCHED))
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(LARGE_BATCH, *x.shape[1:], generator=generator).double()
        outcomes.append(path_checks.evaluate(mixer, mixer, x, None))
    return path_checks.worst_residual(
        [(path_checks.residuals(outcomes[1], outcomes[0]), f"of {LARGE_BATCH} sequences")]
    )


def registers(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the scores of registers with products of gated queries, before RoPE, and the keys of registers.

    Also compare the scores of tokens with those of a mixer without registers and mixing. Return the larger relative
    difference.
    """
    q, count, heads = mixer.q(x), mixer.register_slots, (mixer.query_heads, -1)
    q = q if mixer.qk_gate is None else q * torch.sigmoid(mixer.qk_gate(x))
    expected = torch.einsum("bthc,khc->bhtk", q.unflatten(-1, heads), mixer.k(mixer.registers).unflatten(-1, heads))
    expected = expected / mixer.allocation.qk_width**0.5 if mixer.label.has_softmax else expected
    scores = mixer.maps(x).scores
    mixer.registers, mixer.register_slots, mixer.mix1, mixer.mix2 = None, 0, None, None
    return maximum(difference(scores[..., :count], expected), difference(scores[..., count:], mixer.maps(x).scores))


def adapters(mixer: DynamicMLP, x: Tensor) -> float:
    assert mixer.v_down and mixer.v_up and mixer.o_down and mixer.o_up
    y, up = mixer(x), mixer.o_up.weight.clone()
    mixer.o_up.weight.zero_()
    values = torch.linalg.svdvals((y - mixer(x)).flatten(0, 1))
    mixer.o.weight += up @ mixer.o_down.weight
    mixer.v.weight += mixer.v_up.weight @ mixer.v_down.weight
    mixer.v_up.weight.zero_()
    return maximum(float(values[mixer.allocation.adapter_rank] / values[0]), difference(mixer(x), y))


def differential(mixer: DynamicMLP, x: Tensor) -> float:
    assert mixer.contrast is not None
    sums = mixer.maps(x).activations.sum(-1)
    return difference(sums, (1 - mixer.contrast()).expand_as(sums))
