"""The family of layers of flash-linear-attention, with labels such as fla:gla. They train on GPUs only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from madbench.errors import LabelError, MadbenchError, did_you_mean
from madbench.labels import Explanation
from madbench.labels.diagnosis import point_at
from madbench.mixers import Check, ListedFamily, Size, Traits
from madbench.mixers.fla.budget import NAME, Label, LayerAllocation, is_missing, library, make, solve
from madbench.mixers.fla.layers import LAYERS
from madbench.mixers.residuals import difference

if TYPE_CHECKING:
    from madbench.mixers.fla.operator import FlaMixer

CAUSAL = Size(d_model=64, n_head=2, max_len=130, budget="paper")  # size of the checks
TOLERANCE = 1e-3  # for float32 on a GPU, where products may be in TF32


@dataclass(frozen=True)
class Settings:
    """These mixers have no settings besides label and size."""


class FlaFamily(ListedFamily):
    """See :class:`madbench.mixers.Family`."""

    name = "fla"
    Settings = Settings
    mixers: ClassVar = {name: f"fla:{name}" for name in LAYERS}
    description = "Linear attention and state-space layers of the library flash-linear-attention, for GPUs."
    syntax = "layer[!]"
    example = "fla:gla"
    needs = "a CUDA GPU"

    @property
    def version(self) -> str:
        """Our version and that of the library, because its code determines the numbers."""
        try:
            return f"1 with {NAME} {metadata.version(NAME)}"
        except metadata.PackageNotFoundError:
            return "1"

    def missing_package(self) -> str:
        """The name of the library if it cannot be imported, which costs require. Empty if it can."""
        return NAME if is_missing() else ""

    def labels(self) -> list[Label]:
        """All layers at the budget, then all with the library's widths."""
        return [Label(name, over) for over in (False, True) for name in LAYERS]

    def parse(self, text: str) -> Label:
        """Parses ``fla:LAYER`` or ``fla:LAYER!``."""
        name = text.removeprefix("fla:").removesuffix("!")
        if text.startswith("fla:") and name in LAYERS:
            return Label(name, text.endswith("!"))
        alike = max((len(os.path.commonprefix([name, layer])) for layer in LAYERS), default=0)
        hint = did_you_mean(name[:60], LAYERS) or f"; expected one of {', '.join(LAYERS)}"
        raise LabelError(point_at(text, len("fla:") + alike, f"no layer of this name{hint}"))

    def factors(self, label: Label) -> dict[str, str]:
        """The layer, and whether its widths match the budget."""
        return {"layer": label.layer, "budget": "over" if label.over else "matched"}

    def explain(self, label: Label) -> list[Explanation]:
        """The layer, and its differences from the library."""
        layer = LAYERS[label.layer]
        rows = [Explanation(label.layer, f"{layer.module} of flash-linear-attention", layer.what, "", layer.source)]
        if label.over:
            what = "The library's own widths, which exceed the budget. An upper bound."
            rows.append(Explanation("!", "budget", what, "", "this label"))
        elif layer.note:
            rows.append(Explanation("", "widths", layer.note, "", "matched to 4 d^2"))
        same = f" {layer.counterpart} computes the same on a CPU." if layer.counterpart else ""
        rows.append(Explanation("", "device", f"The kernels need {self.needs}.{same}", "", "flash-linear-attention"))
        return rows

    def traits(self, label: Label) -> Traits:
        """The traits of the layer. A layer that initializes its own weights keeps them under both fidelities."""
        layer = LAYERS[label.layer]
        keeps_init = ("layer",) if layer.keeps_init else ()
        return Traits(outputs=(f"layer.{layer.output}.weight",), keeps_init=keeps_init, has_heads=layer.has_heads)

    def solve(self, label: Label, size: Size, settings: Settings) -> LayerAllocation:
        return solve(label, size)

    def build(self, allocation: LayerAllocation, settings: Any, path: str = "auto") -> FlaMixer:
        from madbench.mixers.fla.operator import FlaMixer

        return FlaMixer(allocation, path)

    def checks(self, label: Label) -> Iterable[Check]:
        """The number of parameters if the library is installed; causality, lengths and gradients if there is a GPU."""
        import torch

        from madbench.mixers.path_checks import LENGTHS, evaluate

        def parameters() -> float:
            allocation = solve(label, CAUSAL)
            layer = make(label, CAUSAL.d_model, allocation.options, "cpu")
            return abs(sum(parameter.numel() for parameter in layer.parameters()) - allocation.total)

        def mixer_and_input() -> tuple[FlaMixer, torch.Tensor]:
            torch.manual_seed(0)
            mixer = self.build(solve(label, CAUSAL), None).cuda()
            return mixer, torch.randn(1, CAUSAL.max_len, CAUSAL.d_model).cuda()

        def causality() -> float:
            mixer, x = mixer_and_input()
            changed = x.clone()
            changed[:, 20:] += 1
            return difference(mixer(changed)[:, :20], mixer(x)[:, :20])

        def lengths() -> float:
            mixer, x = mixer_and_input()
            y = mixer(x)
            return max(difference(mixer(x[:, :length]), y[:, :length]) for length in LENGTHS)

        def gradients() -> float:
            mixer, x = mixer_and_input()
            gradients_by_name = evaluate(mixer, mixer, x, range(65))
            later = float(gradients_by_name["x"][:, 65:].norm() / gradients_by_name["x"].norm())
            return later + sum(int((~gradient.isfinite()).sum()) for gradient in gradients_by_name.values())

        missing = ""
        try:
            library()
        except MadbenchError as error:
            missing = str(error)
        no_gpu = missing or ("" if torch.cuda.is_available() else "it needs a CUDA GPU")
        statement = "The number of parameters equals that of the allocation, which is counted on tensors without data."
        yield Check("parameters", statement, "the budget", parameters, reason=missing)
        statement = "Later tokens do not change earlier outputs."
        yield Check("causality", statement, "causal mixing", causality, TOLERANCE, reason=no_gpu)
        statement = "A shorter input gives the first rows of a longer one, on both sides of every block border."
        yield Check("lengths", statement, "causal mixing", lengths, TOLERANCE, reason=no_gpu)
        statement = "All gradients are finite, and gradients of earlier rows with respect to later tokens are zero."
        yield Check("gradients", statement, "causal mixing", gradients, TOLERANCE, reason=no_gpu)


FAMILY = FlaFamily()
