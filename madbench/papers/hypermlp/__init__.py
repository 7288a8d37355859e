"""The items of the paper on HyperMLP."""
