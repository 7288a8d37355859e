"""The talk on HyperMLP: its slides as items, and the numbers on them compared with the tables of the paper."""
