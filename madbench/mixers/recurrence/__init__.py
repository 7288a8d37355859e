"""The engine of recurrences, shared by families: scores by matrix products, decays, gates, and kernels of a library."""
