"""A Theoretical Study of (Hyper) Self-Attention through the Lens of Interactions, arXiv 2506.06179."""
