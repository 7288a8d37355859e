"""From a job to its record: data, model, optimizer, loop, metrics, checkpoints."""
