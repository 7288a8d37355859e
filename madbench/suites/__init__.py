"""Suites of training runs: the MAD tasks and the language model."""
