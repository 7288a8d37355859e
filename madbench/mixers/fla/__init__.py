"""Family of layers of the library flash-linear-attention, which serve as baselines."""
