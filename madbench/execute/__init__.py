"""Executors, which train the jobs of a sweep: on this machine, on Ray, on Slurm, or under torchrun."""
