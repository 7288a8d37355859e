"""HyperFeatureAttention (Def. 5.1, F.3): the effect of a pair of tokens is a product of effects, one per feature."""
