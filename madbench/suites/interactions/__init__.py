"""The interactions suite: agents whose values are sums of interactions."""
