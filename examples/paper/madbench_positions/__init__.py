"""A paper for madbench: its items, claims and published numbers are in the files beside this one."""

from pathlib import Path

from madbench.papers import Paper

PAPER = Paper.load(Path(__file__).with_name("paper.yaml"))
