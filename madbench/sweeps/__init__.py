"""Many jobs: what to run, and where."""
