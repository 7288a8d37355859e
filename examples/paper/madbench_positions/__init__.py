"""A paper for madbench. Its items, claims and published numbers are in the other files of this folder."""

from pathlib import Path

from madbench.papers import Paper

PAPER = Paper.load(Path(__file__).with_name("paper.yaml"))
