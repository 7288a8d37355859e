"""HyperAttention (Def. 6.1, G.1, G.3): effects of tuples of tokens."""
