"""S, R and G with sequence mixing as Triton kernels, one module per layout. Triton may be missing without a GPU."""
