"""S, R and G with sequence mixing as Triton kernels, a module a layout. They import Triton, which a CPU may lack."""
