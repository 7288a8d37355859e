"""Worlds of interacting agents, which are the tasks of the paper's theory.

A sample has the symbols (L,) of L agents. A symbol is the full state of an agent. The value of agent i is a sum of
effects of agents' symbols on its own symbol. An effect comes from one agent (``effects`` (S, S), row i, column j; eq.
2), or from two agents (``effects`` (S, S, S), every pair j < k counted once). Source: sections 5 to 7, appendices B.1
to B.4 and F.1 of the paper. The exact weights are known in every world. Importing this package imports NumPy and no
other package.
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
"""The class of each world, by the name of its task."""

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
