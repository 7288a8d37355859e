"""Triton kernels for attention of the bases S, R and G, one module per layout. Without a GPU Triton may be missing."""
