"""From a job to its record: data, model, optimiser, loop, metrics, checkpoints."""
