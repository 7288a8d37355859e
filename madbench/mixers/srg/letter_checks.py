"""Checks of single letters of S/R/G labels, and of settings other than the defaults.

Each function builds small mixers, compares their outputs, and returns the largest relative difference with the name of
the comparison. The difference is zero, up to rounding, if the check holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from madbench.mixers import Size
from madbench.mixers.checks import SMALL
from madbench.mixers.checks.residuals import Residual, decode_tokens, difference, filled_mixer
from madbench.mixers.srg.block_attention import ordered
from madbench.mixers.srg.grammar import SrgLabel

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

TOKENS = 17
BLOCK = 5  # rows per block of the path ``chunked``
LONGER = Size(d_model=16, n_head=2, max_len=TOKENS + 2, budget="paper")
CLOSED = -1e4  # a logit whose exponential is zero
LEAST_EFFECT = 1e-3  # smallest accepted effect of a sink that has weight, or of a random head gate
OPEN = 40.0  # bias of a gate whose sigmoid is one


def _filled(build: Callable[[], DynamicMLP]) -> tuple[DynamicMLP, Tensor]:
    return cast("tuple[DynamicMLP, Tensor]", filled_mixer(build))


def one_gate(family: Any, label: SrgLabel) -> Residual:
    """Check mixers that have only one of the two gates, with ``gates=qk`` and with ``gates=vo``.

    The output must equal that of the reference, and that of a mixer whose other gate is always open. The number of
    parameters must be that of the allocation. Return the largest residual.
    """
    residuals = []
    for side, other in (("qk", "vo"), ("vo", "qk")):
        settings = family.Settings(gates=side)
        allocation = family.solve(label, SMALL, settings)
        mixer, x = _filled(partial(family.build, allocation, settings))
        both, _ = _filled(partial(family.build, replace(allocation, gates="both"), settings))
        both.load_state_dict(mixer.state_dict(), strict=False)
        gate = getattr(both, f"{other}_gate")
        nn.init.zeros_(gate.weight), nn.init.constant_(gate.bias, OPEN)
        y, uncounted = mixer(x), sum(p.numel() for p in mixer.parameters()) - allocation.total
        each = {
            "loops": difference(y, mixer.reference(x)),
            "open gate": difference(y, both(x)),
            "count": abs(uncounted),
        }
        residuals.append(_largest(each, f"with gates={side}"))
    return max(residuals)


def registers_at_the_end(family: Any, label: SrgLabel) -> Residual:
    """Compare the paths ``dense`` and ``chunked`` with the reference for ``register_place=last``.

    Without the mixing matrices R(1) and R(2), the place of the registers must also make no difference to the output.
    Return the largest relative difference.
    """
    mixers = {}
    for place in ("first", "last"):
        settings = family.Settings(register_place=place)
        allocation = family.solve(label, LONGER, settings)
        mixers[place], x = _filled(partial(family.build, allocation, settings))
        mixers[place].chunk = BLOCK
    x, mixer, each = x[:, :TOKENS], mixers["last"], {}
    expected = mixer.reference(x)
    for path in ("dense", "chunked"):
        mixer.path = path
        each[path] = difference(mixer(x), expected)
    for each_mixer in mixers.values():
        each_mixer.mix1 = each_mixer.mix2 = None
    each["without mixing"] = difference(mixer(x), mixers["first"](x))
    return _largest(each, "with register_place=last")


def windows(family: Any, label: SrgLabel) -> Residual:
    """Compare paths and decoding of a mixer with the reference, for windows of 2, 3 and all tokens.

    The paths are ``dense``, ``chunked`` and, if possible, ``sdpa``. The mixer with a window of all tokens is also
    compared with the mixer without the letter w. Return the largest relative difference.
    """
    each = {}
    for window in (2, 3, LONGER.max_len):
        settings = family.Settings(window=window)
        allocation = family.solve(label, LONGER, settings)
        mixer, x = _filled(partial(family.build, allocation, settings))
        mixer.chunk, x = BLOCK, x[:, :TOKENS]
        expected = mixer.reference(x)
        for path in ("dense", "chunked", *(["sdpa"] if mixer.uses_sdpa else [])):
            mixer.path = path
            each[f"{path} with window={window}"] = difference(mixer(x), expected)
        each[f"steps with window={window}"] = difference(decode_tokens(mixer, x), expected)
        rows, cache = mixer.prefill(x[:, :BLOCK])
        rows = torch.cat((rows, decode_tokens(mixer, x[:, BLOCK:], cache)), dim=1)
        each[f"steps after a prompt with window={window}"] = difference(rows, expected)
    allocation = family.solve(replace(label, window=False), LONGER, settings)
    unlimited, _ = _filled(partial(family.build, allocation, settings))
    unlimited.load_state_dict(mixer.state_dict())
    each["largest window"] = difference(mixer(x), unlimited(x))
    return _largest(each, "of sliding windows")


def closed_sinks(family: Any, label: SrgLabel) -> Residual:
    """Compare a mixer with sinks whose weight in the softmax is zero (letter s) with the mixer without sinks.

    Whole sequences on several paths and decoding are compared. Sinks with random logits must also change the output.
    Return the largest relative difference, or 1 if random sinks have no effect.
    """
    settings = family.Settings()
    mixer, x = _filled(partial(family.build, family.solve(label, SMALL, settings), settings))
    without, _ = _filled(partial(family.build, family.solve(replace(label, sink=False), SMALL, settings), settings))
    without.load_state_dict(mixer.state_dict(), strict=False)
    each = {"open sinks": float(difference(mixer(x), without(x)) < LEAST_EFFECT)}
    assert mixer.sink is not None
    nn.init.constant_(mixer.sink, CLOSED)
    for path in ("dense", *(["sdpa"] if mixer.uses_sdpa else [])):
        mixer.path = path
        each[path] = difference(mixer(x), without(x))
    each["steps"] = difference(decode_tokens(mixer, x), without(x))
    return _largest(each, "with sinks of no weight")


def open_head_gates(family: Any, label: SrgLabel) -> Residual:
    """Compare a mixer whose head gates are all open, or all at one half, with the mixer without head gates.

    Also checks that random head gates change the output, and that decoding with open gates gives the same rows. Return
    the largest relative difference, or 1 if random gates have no effect.
    """
    settings = family.Settings()
    allocation = family.solve(label, SMALL, settings)
    mixer, x = _filled(partial(family.build, allocation, settings))
    without, _ = _filled(partial(family.build, replace(allocation, label=replace(label, head_gate=False)), settings))
    without.load_state_dict(mixer.state_dict(), strict=False)
    x[..., 0] = 1  # a channel by which the gates, which have no bias, can be opened
    each = {"random gates": float(difference(mixer(x), without(x)) < LEAST_EFFECT)}
    assert mixer.head_gate is not None
    nn.init.zeros_(mixer.head_gate.weight)
    each["gates at one half"] = difference(2 * mixer(x), without(x))
    nn.init.constant_(mixer.head_gate.weight[:, 0], OPEN)
    each["open gates"] = difference(mixer(x), without(x))
    each["steps"] = difference(decode_tokens(mixer, x), without(x))
    return _largest(each, "of head gates")


def exclusion(family: Any, label: SrgLabel) -> Residual:
    """Check that the letter e removes the component along a token's own value from the readout, and nothing else.

    Return the larger of two residuals: the component along the value that remains, divided by the norm of the readout,
    and the relative difference between the squared norm of the readout and the sum of the squares of its two parts.
    """
    settings = family.Settings()
    mixer, x = _filled(partial(family.build, family.solve(label, SMALL, settings), settings))
    p = mixer.for_each_head(mixer.project(x, 0))
    o, v = mixer.attend(ordered(mixer, p), 0), p.v
    kept = mixer.exclude(o, p)
    sizes = o.norm(dim=-1) * v.norm(dim=-1)
    each = {
        "component along the own value": float(((kept * v).sum(-1).abs() / sizes.clamp(min=1e-30)).max()),
        "squares of both parts": difference(kept.square().sum(-1) + (o - kept).square().sum(-1), o.square().sum(-1)),
    }
    return _largest(each, "of what heads read out")


def equal_heads(family: Any, label: SrgLabel) -> Residual:
    """Compare a mixer whose heads share keys and values with one whose separate heads have copies of these weights.

    Both ``kv_heads=1`` and ``kv_heads=n_head`` are compared, for whole sequences and for decoding. Return the largest
    relative difference.
    """
    residuals = []
    for kv_heads in (1, SMALL.n_head):
        settings = family.Settings(kv_heads=kv_heads)
        allocation = family.solve(label, SMALL, settings)
        mixer, x = _filled(partial(family.build, allocation, settings))
        separate = replace(allocation, label=replace(label, shared_kv=False), kv_heads=0)
        without, _ = _filled(partial(family.build, separate, settings))
        weights, group = mixer.state_dict(), SMALL.n_head // kv_heads
        for name, heads in (("k", allocation.key_heads), ("v", kv_heads), ("v_up", kv_heads)):
            if f"{name}.weight" in weights:
                weight = weights[f"{name}.weight"].unflatten(0, (heads, -1))
                weights[f"{name}.weight"] = weight.repeat_interleave(group, 0).flatten(0, 1)
        without.load_state_dict(weights)
        each = {
            "whole": difference(mixer(x), without(x)),
            "steps": difference(decode_tokens(mixer, x), without(x)),
        }
        residuals.append(_largest(each, f"with kv_heads={kv_heads}"))
    return max(residuals)


def of_all_tokens(family: Any, label: SrgLabel) -> Residual:
    """Compare a mixer that is not causal with the reference, and its last row with that of the causal mixer.

    In the lag layout without p and c, each row is also compared with the last row of the causal mixer, for an input
    that is cyclically shifted so that it ends with the token of the row. Return the largest relative difference.
    """
    settings = family.Settings()
    allocation = family.solve(label, LONGER, settings)
    mixer, x = _filled(partial(family.build, allocation, settings, causal=False))
    causal, _ = _filled(partial(family.build, allocation, settings))
    mixer.chunk, x, each = BLOCK, x[:, :TOKENS], {}
    expected = mixer.reference(x)
    for path in ("dense", "chunked", *(["sdpa"] if mixer.uses_sdpa else [])):
        mixer.path = path
        each[path] = difference(mixer(x), expected)
    each["last row"] = difference(mixer(x)[:, -1], causal(x)[:, -1])
    if label.layout == "lag" and not (label.rope or label.conv):  # every row is the last of a shifted sequence
        rows = [causal(x.roll(TOKENS - 1 - row, dims=1))[:, -1] for row in range(TOKENS)]
        each["rows"] = max(difference(mixer(x)[:, row], of_row) for row, of_row in enumerate(rows))
    return _largest(each, "without causality")


def _largest(residuals: Mapping[str, float], where: str) -> Residual:
    name = max(residuals, key=residuals.__getitem__)
    return Residual(residuals[name], f"{name} {where}")
