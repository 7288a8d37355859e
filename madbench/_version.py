"""The version of madbench."""

__version__ = "0.2.0"
