"""Layers of flash-linear-attention as mixers: the baselines of the papers, from the library that owns them."""
