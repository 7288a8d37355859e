"""Training of a job: data, model, optimizer, training loop, checkpoints, and the record of the finished run."""
