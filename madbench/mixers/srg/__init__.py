"""The S/R/G family (HyperMLP): budget, operator, reference."""
