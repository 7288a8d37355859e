"""HyperFeatureAttention (Def. 5.1, F.3): a pair effect that is a product of pair effects, one per feature."""
