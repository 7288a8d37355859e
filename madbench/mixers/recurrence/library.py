"""Recurrences by kernels of flash-linear-attention, on a CUDA GPU in 16 bits, for ``cd:`` labels and named layers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.errors import TrainingError
from madbench.extras import how_to_install
from madbench.mixers.ops.derivatives import refuse_second
from madbench.mixers.recurrence.forms import Dynamics

MODULES = {
    "chunk_simple_gla": "fla.ops.simple_gla",
    "chunk_gla": "fla.ops.gla",
    "chunk_gated_delta_rule": "fla.ops.gated_delta_rule",
    "chunk_kda": "fla.ops.kda",
    "chunk_dplr_delta_rule": "fla.ops.generalized_delta_rule",
}
"""The module of flash-linear-attention that has each function, by name of the function."""


@contextmanager
def silence() -> Iterator[None]:
    """A context that hides all warnings and log messages, for the import of flash-linear-attention.

    The library advises, for example, to install faster packages.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def operator(name: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the function ``name`` of flash-linear-attention, one of the keys of ``MODULES``.

    Raises ``TrainingError`` if there is no CUDA GPU, or if the library cannot be imported.
    """
    if not torch.cuda.is_available():
        raise TrainingError("path 'fla' runs on a CUDA GPU only, and there is none here; use 'auto'")
    try:
        with silence():
            function: Callable[..., tuple[Tensor, Tensor | None]] = getattr(import_module(MODULES[name]), name)
            return function
    except ImportError as error:
        command = how_to_install("fla")
        raise TrainingError(f"path 'fla' needs flash-linear-attention ({error}); install it with: {command}") from None


def arithmetic(x: Tensor) -> torch.dtype:
    """The dtype in which the kernels compute for an input x: that of autocast if it is enabled, else that of x.

    Raises ``TrainingError`` unless the dtype has 16 bits.
    """
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    if dtype not in (torch.bfloat16, torch.float16):
        raise TrainingError(f"path 'fla' computes in 16 bits, not {dtype}: call it under torch.autocast, or use 'auto'")
    return dtype


def combine(d: Dynamics, values: Tensor, dtype: torch.dtype, is_delta_rule: bool) -> Tensor:
    """Compute the sums over keys j of score times ``values`` by kernels of flash-linear-attention.

    values (B, H, T, V) -> (B, H, T, V) in ``dtype``. The scores are those of the dynamics ``d``. ``is_delta_rule`` is
    true if mirrors are along the row's own key, and their strength also scales this key. The library has a delta rule
    for keys of length 1, which multiplies each value by the strength. Values are therefore multiplied by the length of
    the key and divided by the strength first.
    """
    if d.own is not None:  # earlier rows contribute through the state of the row before
        q = d.q if d.log_gate is None else d.q * d.log_gate.exp()
        before = combine(replace(d, q=F.pad(q[:, :, 1:], (0, 0, 0, 1)), own=None), values, dtype, is_delta_rule)
        return F.pad(before[:, :, :-1], (0, 0, 1, 0)) + (d.own[..., None] * values).to(dtype)
    q, k, v = (_by_row(side).to(dtype) for side in (d.q, d.k, values))
    gate = None if d.log_gate is None else _by_row(d.log_gate.expand(*d.q.shape[:3], -1))
    is_diagonal = gate is not None and gate.shape[-1] > 1
    name: str
    inputs: tuple[Tensor | None, ...]
    mirrors = d.mirrors
    if mirrors is None:
        name, inputs = ("chunk_gla", (gate,)) if is_diagonal else ("chunk_simple_gla", (_scalar(gate),))
    elif is_delta_rule and mirrors.read is None and mirrors.length is not None:
        w, beta = _by_row(mirrors.w), _by_row(mirrors.beta)
        k, v = w.to(dtype), v * (_by_row(mirrors.length) / beta.clamp(min=torch.finfo(beta.dtype).tiny))[..., None]
        gate = torch.zeros_like(beta)[..., None] if gate is None else gate
        name, inputs = ("chunk_kda", (gate, beta)) if is_diagonal else ("chunk_gated_delta_rule", (_scalar(gate), beta))
    else:  # A = diag(lambda) - beta w r^T, where r includes the decay
        w, read, beta = _by_row(mirrors.w), _by_row(mirrors.reading), _by_row(mirrors.beta)[..., None]
        gate = torch.zeros_like(w) if gate is None else gate.expand_as(w)
        read = read if mirrors.reads_before_decay else gate.exp() * read
        name, inputs = "chunk_dplr_delta_rule", (read.to(dtype), (-beta * w).to(dtype), gate.contiguous())
    arguments = (q, k, v.to(dtype), *inputs)
    refuse_second("fla", arguments, is_always=True)
    return _by_row(operator(name)(*arguments, scale=1.0)[0])


def _scalar(gate: Tensor | None) -> Tensor | None:
    """Remove the last axis, of length 1, of gates per head: (B, T, H, 1) -> (B, T, H). None stays None."""
    return None if gate is None else gate.squeeze(-1)


def _by_row(x: Tensor) -> Tensor:
    """Exchange the axes of heads and rows: (B, H, T, ...) -> (B, T, H, ...) or back, contiguous."""
    return x.transpose(1, 2).contiguous()
