"""The talk on HyperMLP: its slides as items, and its numbers against the tables of the paper."""
