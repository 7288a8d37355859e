"""Modules of a user's own, (B, T, D) -> (B, T, D), as labels: ``my:package.Mixer``, or ``my:name`` of an entry."""
