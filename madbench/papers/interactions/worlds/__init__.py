"""Worlds of interacting agents, the tasks of the theory: agents drawn as symbols, and the exact value of each agent.

A sequence is the symbols (L,) of L agents; a symbol is the full state of an agent. The value of agent i is a sum of
effects of other agents' symbols on its own. An effect comes from one other agent (``effects`` (S, S), row i, column j;
eq. 2), or from two (``effects`` (S, S, S), every pair j < k counted once). Source: sections 5 to 7, appendices B.1 to
B.4 and F.1 of the paper. The exact weights are known in every world. Needs only NumPy.
"""

from madbench.papers.interactions.worlds.agents import Alliances, Colliding, Hunters
from madbench.papers.interactions.worlds.base import World
from madbench.papers.interactions.worlds.examples import Genotype, Pixels, Plane, Series
from madbench.papers.interactions.worlds.places import ring, sinusoids, wave_couplings

WORLDS: dict[str, type[World]] = {
    "colliding": Colliding,
    "hunters": Hunters,
    "alliances": Alliances,
    "plane": Plane,
    "genotype": Genotype,
    "pixels": Pixels,
    "series": Series,
}
"""The class of each world, by the name of the task."""

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
