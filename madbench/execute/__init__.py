"""Where jobs train: this machine, Ray, Slurm, torchrun."""
