"""The MAD suite: six synthetic tasks."""
