"""Every figure of the registry, by name."""

from madbench.analysis.figures import figure_names
from madbench.analysis.figures.registry import drawing_of

FIGURES = {name: drawing_of(name) for name in figure_names()}
