"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236) as a family of madbench.

::

    label = "lin:", map, [ "-g" ]       lin:elu  lin:relu-g
    map   = "elu" | "relu" | "id"       phi: elu(x) + 1, ReLU, or x (without normalization)
    g                                   output gate from the current token; the rank is reduced to pay for it
"""

from __future__ import annotations

from dataclasses import dataclass

from madbench.errors import BudgetError, ConfigError, LabelError, did_you_mean
from madbench.mixers import Explanation, ListedFamily, Size, Traits
from madbench.mixers.checks import general_checks

MAPS = {"elu": "phi(x) = elu(x) + 1", "relu": "phi(x) = ReLU(x)", "id": "phi(x) = x"}


@dataclass(frozen=True)
class Label:
    map: str
    gate: bool = False

    def __str__(self) -> str:
        return f"lin:{self.map}-g" if self.gate else f"lin:{self.map}"


@dataclass(frozen=True)
class Settings:
    """The settings of linear attention besides its label and size."""

    eps: float = 1e-6
    """Added to the denominator, which only elu and relu have."""

    def __post_init__(self):
        if self.eps <= 0:
            raise ConfigError(f"eps must be positive, got {self.eps}")


@dataclass(frozen=True)
class Allocation:
    """The rank r shared by q, k, v and o. Parameters: 4 d r, and (d + 1) r more with a gate."""

    label: Label
    size: Size
    ranks: dict[str, int]

    @property
    def terms(self) -> dict[str, int]:
        d, r = self.size.d_model, self.ranks["r"]
        return {"projections": 4 * d * r} | ({"gate": (d + 1) * r} if self.label.gate else {})

    total = property(lambda self: sum(self.terms.values()))
    target = property(lambda self: 4 * self.size.d_model**2)
    ratio = property(lambda self: self.total / self.target)

    def flops_per_token(self, seq_len: int) -> float:
        """FLOPs per token: the projections, and the scores and weighted values of (seq_len + 1) / 2 causal pairs."""
        return 2.0 * self.total + 4 * self.ranks["r"] * (seq_len + 1) / 2

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Zero, because the state has the same size at every length."""
        return 0.0

    def state(self, seq_len: int) -> int:
        """The number of entries of the state: sums of k v^T and of k for every head."""
        return self.ranks["r"] * (self.ranks["r"] // self.size.n_head + 1)


class LinearAttention(ListedFamily):
    """Linear attention. The members that it does not define have the defaults of :class:`madbench.mixers.Family`."""

    name, version, Settings = "lin", "1", Settings
    syntax, example = "elu|relu|id[-g]", "lin:elu-g"

    def parse(self, text: str) -> Label:
        labels = {str(label): label for label in self.labels()}
        if text not in labels:
            raise LabelError(f"label {text[:60]!r} is not one of linear attention{did_you_mean(text[:60], labels)}")
        return labels[text]

    def factors(self, label: Label) -> dict[str, str]:
        return {"map": label.map, "gate": "g" if label.gate else "", "budget": "matched"}

    def labels(self) -> list[Label]:
        return [Label(name, gate) for name in MAPS for gate in (False, True)]

    def explain(self, label: Label) -> list[Explanation]:
        source = "Katharopoulos et al. 2020, eq. 4-6"
        what = "Queries and keys go through a feature map, and their products weigh the values."
        rows = [Explanation(label.map, "feature map", what, MAPS[label.map], source)]
        if label.gate:
            what = "The current token scales each channel of the output."
            rows.append(Explanation("g", "output gate", what, "o_t * sigmoid(x_t W_g + b_g)", "this package"))
        return rows

    def solve(self, label: Label, size: Size, settings: Settings) -> Allocation:
        d, heads = size.d_model, size.n_head
        fitting = 4 * d * d // (4 * d + (d + 1) * label.gate) if size.budget == "strict" else d
        rank = fitting // heads * heads
        if rank < heads:
            raise BudgetError(
                f"{label}: d_model {d} is too narrow for {heads} heads; use n_head {max(fitting, 1)} or less"
            )
        return Allocation(label, size, {"r": rank})

    def traits(self, label: Label) -> Traits:
        """``o`` writes to the residual stream. The feature map ``id`` has no denominator, so it does not use eps."""
        return Traits(outputs=("o.weight",), settings=() if label.map == "id" else ("eps",))

    def checks(self, label: Label):
        return general_checks(self, label)

    def build(self, allocation: Allocation, settings: Settings, path: str = "auto"):
        from madbench_linear.mixer import LinearMixer

        return LinearMixer(allocation, settings.eps, path)


FAMILY = LinearAttention()
