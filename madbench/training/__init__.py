"""Training of jobs: data, model, optimizer, training loop, checkpoints, and the record of a finished run."""
