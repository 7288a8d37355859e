collect_ignore = ["fake_slurm.py"]  # a script of its own, which submitit starts as Slurm's programs
