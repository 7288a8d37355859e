"""Experiments. An experiment is a checked plan of the jobs of a grid, and trains and stores them."""

from madbench.experiment.experiment import Experiment
from madbench.experiment.planner import ExperimentOptions, labels_of_tasks, prepare
from madbench.suites.protocol import Protocol

__all__ = ["Experiment", "ExperimentOptions", "Protocol", "labels_of_tasks", "prepare"]
