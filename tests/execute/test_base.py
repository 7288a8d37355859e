"""A policy that lets no job run is refused."""

from __future__ import annotations

import pytest

from madbench.errors import ConfigError
from madbench.execute.base import Policy


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"max_failures": 0}, "max_failures must be at least 1, got 0"),
        ({"time_limit": 0.0}, "time_limit must be a number of seconds above 0, got 0.0"),
        ({"time_limit": float("nan")}, "time_limit must be a number of seconds above 0, got nan"),
    ],
)
def test_a_policy_with_limits_of_zero_is_an_error(choice, message):
    with pytest.raises(ConfigError, match=message):
        Policy(**choice)
