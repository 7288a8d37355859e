"""Named layers that compute rows in blocks, compared with loops over rows at lengths near a border of two blocks."""

from __future__ import annotations

from typing import Any

from madbench.mixers import build
from madbench.mixers.checks.path_checks import evaluate, residuals
from madbench.mixers.checks.residuals import difference, filled_mixer

LENGTHS = [15, 16, 17, 33]


def caches_at_border(label: str, length: int) -> tuple[Any, Any]:
    """Return the two decoding caches of a layer after a prompt of ``length`` tokens: read at once, and by tokens.

    Asserts that the outputs and gradients of the prompt, and the output of the next decoding step, equal those of the
    layer's reference computation by loops.
    """
    layer, x = filled_mixer(lambda: build(label, 16, length + 1, n_head=2), batch=1)
    prompt = x[:, :length]
    expected, found = (evaluate(layer, compute, prompt, None) for compute in (layer.reference, layer))
    differences = residuals(found, expected)
    assert max(differences.values()) < 1e-11 and differences[""] < 1e-13
    _, cache = layer.prefill(prompt)
    assert difference(layer.step(x[:, length], cache)[0], layer.reference(x, [length])[:, 0]) < 1e-13
    stepped = None
    for token in prompt.unbind(1):
        _, stepped = layer.step(token, stepped)
    return cache, stepped
