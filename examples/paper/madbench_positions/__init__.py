"""A paper for madbench: where attention's positions come from."""

from pathlib import Path

from madbench.papers import Paper

PAPER = Paper.load(Path(__file__).with_name("paper.yaml"))
