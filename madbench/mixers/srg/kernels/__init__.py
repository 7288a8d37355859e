"""S, R and G with sequence mixing as Triton kernels: one module a layout. They import Triton, which CPUs need not have."""
