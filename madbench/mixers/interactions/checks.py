"""What has to hold of a mixer of interactions: general checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from madbench.mixers import Check


def checks(family: Any, label: Any) -> Iterable[Check]:
    return []
