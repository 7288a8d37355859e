"""The family of S/R/G labels. Its mixers are those of the HyperMLP paper (arXiv 2602.12601)."""
