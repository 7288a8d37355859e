"""Sequence mixers: one idea a file. ``dynamic_mlp`` composes them; ``reference`` is the truth they are tested by."""
