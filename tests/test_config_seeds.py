"""Lists of seeds such as ``0,1,2`` and ``0-4``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.config import parse_seeds, seed_list
from madbench.errors import ConfigError


@pytest.mark.parametrize(("text", "seeds"), [("0", [0]), ("0,1, 2", [0, 1, 2]), ("3-5,9", [3, 4, 5, 9])])
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "1.5", "0-", "0,,1", "1_0", "\u0663", "2-1", "0,0", "0-1000000000000"])
def test_text_that_is_not_a_list_of_seeds_is_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_a_range_that_counts_down_is_refused_among_other_seeds():
    with pytest.raises(ConfigError, match="did you mean '1-3'"):
        parse_seeds("0,3-1")


@pytest.mark.slow
@given(st.lists(st.integers(0, 40), min_size=1, unique=True))
def test_writing_and_parsing_a_list_of_seeds_is_the_identity(seeds):
    assert parse_seeds(seed_list(seeds)) == sorted(seeds)
