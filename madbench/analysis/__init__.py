"""From stored runs to numbers a reader can trust: scores and tables."""
