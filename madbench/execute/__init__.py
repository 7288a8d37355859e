"""Execution of jobs: on this machine, on Ray, on Slurm, under torchrun."""
