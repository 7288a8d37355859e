"""Sequence mixers by family: the protocol, and one folder a family."""
