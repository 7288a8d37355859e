"""Stored runs: the files, the index of them, and later measurements."""
