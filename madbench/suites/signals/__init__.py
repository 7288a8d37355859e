"""The signals suite: images and series, the uses beyond text that the HyperMLP paper's talk names."""
