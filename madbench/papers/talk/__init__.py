"""The talk on HyperMLP: its slides as items, and its numbers compared with the tables of the paper."""
