"""Durations, quantities, and messages that fit a terminal and cannot control it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from madbench.cli.shared.printing import in_words, quantity
from madbench.execute.base import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.4, "0 s"), (42, "42 s"), (59, "59 s"), (59.7, "1.0 min"), (60, "1.0 min"), (150, "2.5 min"),
        (3599, "1.0 h"), (3600, "1.0 h"), (9000, "2.5 h"), (86400, "24.0 h"), (172799, "2.0 days"),
        (172800, "2.0 days"), (1e6, "11.6 days"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_in_a_readable_unit(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (950, "950"), (999, "999"), (999.6, "1.0 k"), (1000, "1.0 k"), (68_412, "68.4 k"),
        (999_949, "999.9 k"), (999_951, "1.0 M"), (1.2e6, "1.2 M"), (3e9, "3.0 G"), (4.5e12, "4.5 T"), (1e18, "1.0 E"),
        (1e21, "1000.0 E"),
    ],
)  # fmt: skip
def test_a_quantity_has_one_decimal_and_a_prefix(value, text):
    assert quantity(value) == text


def test_messages_wrap_on_a_terminal_but_commands_do_not():
    message = "no run of S or R belongs to profile evening; this trains it:\n  madbench run S R --profile evening"
    broken = in_words(message, Console(file=io.StringIO(), force_terminal=True, width=30), indent=2)
    assert broken.splitlines() == [
        "  no run of S or R belongs to", "  profile evening; this trains", "  it:",
        "    madbench run S R --profile evening",
    ]  # fmt: skip
    assert in_words(message, Console(file=io.StringIO(), force_terminal=False, width=30)) == message


def test_control_characters_in_messages_are_replaced():
    for force in (True, False):
        console = Console(file=io.StringIO(), force_terminal=force, width=80)
        assert in_words("no \x1b[2J\x9b\u202e\n here", console) == "no ?[2J??\n here"
