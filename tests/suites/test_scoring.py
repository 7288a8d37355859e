"""The scoring objects of suites."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from madbench.errors import ConfigError
from madbench.suites.scoring import Scoring, scoring_of


def test_a_scoring_with_the_former_method_choice_is_refused(monkeypatch):
    module = ModuleType("scoring_of_a_package")
    module.Former = type("Former", (Scoring,), {"choice": lambda self, outcome: 0.0})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    suite = SimpleNamespace(scoring="scoring_of_a_package:Former")
    with pytest.raises(ConfigError, match="'choice' has no effect: scorings have 'selection_value'"):
        scoring_of.__wrapped__(suite)
