from __future__ import annotations

import numpy as np
import torch

from madbench.analysis.figures.inspection import figures
from madbench.analysis.inspection import Inspection
from madbench.mixers.probe import Probe


def model(layers: int) -> Inspection:
    """One whose gates are a tenth of the number of their layer throughout."""
    return Inspection(
        {}, [Probe(gates={"QK": torch.full((1, 4), layer / 10 + 0.01)}) for layer in range(1, layers + 1)]
    )


def test_gates_of_two_models_of_different_depth_are_of_the_layer_that_the_title_names():
    ((name, figure),) = figures({"deep": model(6), "shallow": model(4)})
    assert name == "gates"
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["QK, layer 1", "QK, layer 3", "QK, layer 6"]
    for axes, layer, count in zip(figure.axes, (1, 3, 6), (2, 2, 1)):
        steps = [patch.get_data() for patch in axes.patches]
        assert len(steps) == count
        for step in steps:
            place = np.argmax(step.values)
            assert step.edges[place] <= layer / 10 + 0.01 < step.edges[place + 1]
