"""HyperAttention (Def. 6.1, G.1, G.3): an effect of tuples of tokens."""
