"""What the HyperMLP paper claims of its own design: each claim with the pairs of labels that isolate it.

A pair of a claim differs in the claim's factors and in nothing else (:func:`madbench.labels.diff`). Claims that no two
labels isolate are in ``NOT_ISOLATED``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from madbench.analysis.contrasts import Pair
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.config import PUBLISHED, from_mapping, read_yaml

PREDICTIONS = "Appendix I.3"
"""The group of claims about one task each."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that pairs of labels can support or contradict."""

    name: str
    title: str  # in at most 32 characters
    sentence: str  # what the paper says
    source: str
    theory: str  # why it should hold
    group: str  # heading of the claims around it
    factors: tuple[str, ...]  # in which the labels of a pair differ, of madbench.labels.FACTORS
    pairs: tuple[Pair, ...]  # the paper's own pair first
    expects: Literal["gain", "no loss", "no gain"] = "gain"
    """The first label of a pair is better; not worse by the margin; not better by the margin."""
    rivals: dict[str, tuple[Pair, ...]] = field(default_factory=dict)
    """Pairs of every factor that ``factors`` should outdo, as many as ``pairs`` and in the same surroundings."""
    quantities: tuple[str, ...] = (MAD_AVERAGE, LOSS)
    note: str = ""  # where the paper's text and its table disagree, and what the pairs leave out

    @property
    def sign(self) -> int:
        """1 where a gain speaks for the claim, -1 where it speaks against it."""
        return -1 if self.expects == "no gain" else 1

    def labels(self, cases: Iterable[int]) -> tuple[str, ...]:
        """The labels of some of its pairs, given by index, and of their rivals."""
        found = [pairs[case] for case in cases for pairs in (self.pairs, *self.rivals.values())]
        return tuple(dict.fromkeys(label for pair in found for label in pair))


@dataclass(frozen=True)
class _File:
    claims: tuple[Claim, ...]


_PATH = PUBLISHED / "hypermlp_claims.yaml"
CLAIMS = from_mapping(_File, read_yaml(_PATH), str(_PATH)).claims

NOT_ISOLATED = "gates on the readout side alone, linear attention, registers (Proposition 2.6 ii-iv), larger models"
"""Claims of the paper that no two labels isolate. The paper claims nothing of RoPE by itself."""
