"""mypy checks here that families derive from the base class with their own labels and allocations.

A hybrid of one mixer is the label of another family, and the families of the interactions paper share the types of
their labels, so these are not among them.
"""

from __future__ import annotations

from madbench.labels.family import Family
from madbench.mixers.cd.budget import CdAllocation
from madbench.mixers.cd.family import CoefficientFamily
from madbench.mixers.cd.grammar import CdLabel
from madbench.mixers.my.family import ModuleFamily, ModuleLabel
from madbench.mixers.my.measures import ModuleAllocation
from madbench.mixers.named.budget import NamedAllocation, NamedLabel
from madbench.mixers.named.family import NamedFamily
from madbench.mixers.srg.allocation import SrgAllocation
from madbench.mixers.srg.family import SrgFamily
from madbench.mixers.srg.grammar import SrgLabel

CD: Family[CdLabel, CdAllocation] = CoefficientFamily()
MODULE: Family[ModuleLabel, ModuleAllocation] = ModuleFamily()
NAMED: Family[NamedLabel, NamedAllocation] = NamedFamily()
SRG: Family[SrgLabel, SrgAllocation] = SrgFamily()
