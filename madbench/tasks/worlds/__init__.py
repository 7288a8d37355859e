"""Worlds of interacting agents, the tasks of the theory: agents drawn as symbols, and the exact value of each of them.

A sequence is the symbols (L,) of L agents, a symbol all that matters of one. The value of agent i is a sum over the
others of the effect of their symbols on its own: of one other agent (``effects`` (S, S), row i, column j; eq. 2), or of
two of them (``effects`` (S, S, S), every pair j < k counted once). Source: sections 5 to 7, appendices B.1 to B.4 and
F.1 of the paper that :mod:`madbench.mixers.interactions` names; in every world the exact weights are known. Needs NumPy
alone.
"""

from madbench.tasks.worlds.agents import Alliances, Colliding, Hunters
from madbench.tasks.worlds.base import World
from madbench.tasks.worlds.examples import Genotype, Pixels, Plane, Series
from madbench.tasks.worlds.places import ring, sinusoids, wave_couplings

WORLDS: dict[str, type[World]] = {
    "colliding": Colliding,
    "hunters": Hunters,
    "alliances": Alliances,
    "plane": Plane,
    "genotype": Genotype,
    "pixels": Pixels,
    "series": Series,
}
"""By the name of the task."""

__all__ = [
    "WORLDS",
    "Alliances",
    "Colliding",
    "Genotype",
    "Hunters",
    "Pixels",
    "Plane",
    "Series",
    "World",
    "ring",
    "sinusoids",
    "wave_couplings",
]
