"""Trackers of a sweep's curves and results."""

from madbench.trackers.tracking import NAMES, Tracking, open_trackers

__all__ = ["NAMES", "Tracking", "open_trackers"]
