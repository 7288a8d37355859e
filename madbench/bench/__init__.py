"""Benchmarks of speed and memory of mixers, training and decoding on this machine: ``madbench bench``."""
