"""The fixtures that call verbs, for the tests of papers."""

from command_line import invoke, main, refuse, store

__all__ = ["invoke", "main", "refuse", "store"]
