"""The YAML of small profiles of token tasks, for tests that train in a moment or need a profile of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

USUAL = {
    "description": "A few steps.",
    "comparable_with_paper": False,
    "difficulty": "baseline",
    "precision": "float32",
    "learning_rates": [1e-3],
    "weight_decays": [0.0],
}
"""The keys that every profile needs, with one learning rate and float32."""


def profile_text(**keys: Any) -> str:
    """The YAML of the profile ``USUAL`` with ``keys`` added or replaced."""
    return yaml.safe_dump(USUAL | keys, sort_keys=False)


def with_setting(tasks: Iterable[str], **setting: int) -> dict[str, dict[str, Any]]:
    """The key ``tasks`` of a profile that trains each of ``tasks`` in one setting, of 16 tokens by default."""
    return {task: {"setting": {"seq_len": 16} | setting} for task in tasks}


def counts(train: int, judged: int) -> dict[str, int]:
    """The keys of a setting for the numbers of examples: ``train`` for training, ``judged`` for each other split."""
    return {"num_train_examples": train, "num_validation_examples": judged, "num_test_examples": judged}
