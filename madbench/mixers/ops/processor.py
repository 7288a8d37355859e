"""The description of this machine's processor, read from ``/proc/cpuinfo`` of Linux."""

from __future__ import annotations

from pathlib import Path


def cpuinfo() -> str:
    """The text of ``/proc/cpuinfo``. Empty on other systems."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
