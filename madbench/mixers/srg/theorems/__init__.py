"""The theorems of the HyperMLP paper, measured on a built S/R/G mixer."""
