"""The items of the HyperMLP paper."""
