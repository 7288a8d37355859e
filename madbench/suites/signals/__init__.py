"""Images and series, which the HyperMLP paper's talk names as what its mixers are for beyond text."""
