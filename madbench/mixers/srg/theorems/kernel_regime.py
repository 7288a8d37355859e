"""Checks of training near its start: the tangent kernel and stable selection (HyperMLP, Appendix D.2).

f is the last output row of every sequence, and the loss is half the squared error of f. The tangent kernel of two rows
is the product of their Jacobians with respect to all parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from madbench.mixers.checks.residuals import difference
from madbench.mixers.srg.dynamic_mlp import DynamicMLP

STEP = 1e-5  # size of the whole move in a central difference
STEPS = 6  # steps of gradient descent
SLOW, SLOWER = 1e4, 1e5  # factors of the output; the larger the factor, the less parameters move


def _jacobian(mixer: DynamicMLP, x: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The Jacobian (B D, number of parameters) of the last output row of each sequence of x (B, T, D)."""
    with torch.enable_grad():
        for parameter in parameters:
            parameter.requires_grad_()
        rows = mixer(x)[:, -1].flatten()
        slopes = [torch.autograd.grad(row, parameters, retain_graph=True, materialize_grads=True) for row in rows]
    return torch.stack([torch.cat([part.flatten() for part in of_row]) for of_row in slopes])


def _move(parameters: Sequence[nn.Parameter], by: Tensor) -> None:
    for parameter, part in zip(parameters, by.split([parameter.numel() for parameter in parameters])):
        parameter.data += part.view_as(parameter)


def _targets(rows: Tensor) -> Tensor:
    return torch.randn(rows.shape, generator=torch.Generator().manual_seed(2)).to(rows)


def prediction_dynamics(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the change of outputs for other sequences during training with the prediction of the tangent kernel.

    The change is the derivative of the last output rows of the other sequences along the gradient flow on the training
    sequences x (Theorem D.9). Return the relative difference.
    """
    parameters = [*mixer.parameters()]
    train, other = x, x.flip(1)
    error = mixer(train)[:, -1].flatten()
    error = error - _targets(error)
    gradients = _jacobian(mixer, train, parameters).T @ error
    expected = -_jacobian(mixer, other, parameters) @ gradients
    step = STEP / gradients.norm()
    _move(parameters, -step * gradients)
    ahead = mixer(other)[:, -1].flatten()
    _move(parameters, 2 * step * gradients)
    behind = mixer(other)[:, -1].flatten()
    return difference((ahead - behind) / (2 * step), expected)


def _descend(mixer: DynamicMLP, x: Tensor, parameters: Sequence[nn.Parameter], factor: float) -> tuple[Tensor, Tensor]:
    """Train ``parameters`` by gradient descent. Return the change of the scaled output, and its prediction.

    Both are (B D,). The scaled output is ``factor`` times the last output rows. The prediction is gradient descent with
    the tangent kernel of the initial parameters.
    """
    start = mixer(x)[:, -1].flatten().detach()
    jacobian, moved, targets = _jacobian(mixer, x, parameters), torch.zeros_like(start), _targets(start)
    kernel = jacobian @ jacobian.T
    rate, predicted = 0.5 / torch.linalg.eigvalsh(kernel)[-1], moved
    for _ in range(STEPS):
        slopes = _jacobian(mixer, x, parameters)
        _move(parameters, -rate / factor * slopes.T @ (moved - targets))
        moved = factor * (mixer(x)[:, -1].flatten().detach() - start)
        predicted = predicted - rate * kernel @ (predicted - targets)
    return moved, predicted


def constant_kernel(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare gradient descent in W_o alone with the prediction by the initial tangent kernel (Corollary D.10).

    The kernel has only the Jacobians with respect to W_o. It stays constant during training, because the mixer is
    linear in W_o, so the prediction is exact. Return the relative difference between the actual and the predicted
    change of the output.
    """
    return difference(*_descend(mixer, x, [cast(nn.Parameter, mixer.o.weight)], 1.0))


def laziness(mixer: DynamicMLP, x: Tensor) -> float:
    """The error of the tangent-kernel prediction at a large scale of the output, divided by that at a small scale.

    The error is the relative difference between gradient descent in all parameters and descent with the initial kernel.
    The large scale is ``SLOWER``, and the small scale is ``SLOW``, a tenth of it. A result of 0.1 means that the kernel
    changes in proportion to the change of the parameters.
    """
    x, start, parameters, away = x[:1], [p.detach().clone() for p in mixer.parameters()], [*mixer.parameters()], []
    for factor in (SLOW, SLOWER):
        for parameter, value in zip(parameters, start):
            parameter.data.copy_(value)
        away.append(difference(*_descend(mixer, x, parameters, factor)))
    return away[1] / away[0]


def stability(mixer: DynamicMLP, x: Tensor) -> float:
    """The number of rows whose active slots change although no hidden score moves by the row's margin (Lemma D.11).

    The margin of a row is its smallest absolute hidden score. All parameters move along random directions, in growing
    steps. Rows are counted for each head, and again after each step. If no row stays within its margin, or no row
    beyond its margin changes its active slots, nothing is measured: the result is then the number of all rows.
    """
    parameters, generator = [*mixer.parameters()], torch.Generator().manual_seed(0)
    start = _selecting_scores(mixer, x)
    visible = torch.ones(start.shape[-2:], dtype=torch.bool).tril(mixer.register_slots)
    margins = start.abs().masked_fill(~visible, torch.inf).min(-1).values
    changed = within = beyond = 0
    for _ in range(4):
        size = sum(parameter.numel() for parameter in parameters)
        direction = torch.randn(size, generator=generator).to(x)
        moved = 0.0
        for step in (1e-3, 1e-2, 0.1, 0.3):
            _move(parameters, (step - moved) * direction)
            moved = step
            is_within = (_selecting_scores(mixer, x) - start).abs().max(-1).values < margins
            is_other = ((mixer.maps(x).activations > 0) != (start > 0)).any(-1)
            within, beyond = within + int(is_within.sum()), beyond + int((is_other & ~is_within).sum())
            changed += int((is_other & is_within).sum())
        _move(parameters, -moved * direction)
    return changed if within and beyond else margins.numel()


def _selecting_scores(mixer: DynamicMLP, x: Tensor) -> Tensor:
    """The hidden scores (B, H, T, S) whose signs make slots active or inactive. For G these are scores of the gate."""
    return mixer.maps(x).hidden[:, : mixer.n_head]
