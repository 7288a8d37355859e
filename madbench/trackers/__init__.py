"""Trackers: curves and results of a sweep in tensorboard, wandb or trackio, each an extra, imported only if asked.

A job is a run of its own, with its content as configuration. While it trains it gets the points ``progress/...``; when
it ends, the whole curve as ``curve/...`` (of a resumed run also what an earlier sweep trained) and the metrics as
``final/...``. The store stays the truth: a tracker that fails is left out of the rest of the sweep, which goes on.
"""

from madbench.trackers.tracking import NAMES, Tracking, open_trackers

__all__ = ["NAMES", "Tracking", "open_trackers"]
