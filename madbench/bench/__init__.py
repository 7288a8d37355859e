"""Speed and memory of mixers, training and decoding, measured on this machine: ``madbench bench``."""
