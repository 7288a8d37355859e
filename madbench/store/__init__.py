"""The store of runs: their files, an index of them, measurements made after training, archives, and other formats."""
