"""Experiments. A grid is planned as an experiment, which is a checked plan of jobs, and training stores its runs."""

from madbench.experiment.experiment import Experiment
from madbench.experiment.planner import ExperimentOptions, labels_of_tasks, prepare
from madbench.suites.protocol import Protocol

__all__ = ["Experiment", "ExperimentOptions", "Protocol", "labels_of_tasks", "prepare"]
