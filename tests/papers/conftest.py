"""Fixtures that call commands, for the tests of papers."""

from command_line import invoke, main, refuse, store

__all__ = ["invoke", "main", "refuse", "store"]
