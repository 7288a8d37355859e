"""Tensor operations that several families share, with their gradients, and the facts about a CPU that they use."""
