"""Family of users' own modules (B, T, D) -> (B, T, D). Labels: ``my:package.Mixer``, or ``my:name`` of an entry."""
