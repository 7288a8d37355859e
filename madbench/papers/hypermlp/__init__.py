"""The items of the HyperMLP paper (arXiv 2602.12601), and the measures that make them."""
