"""Family of users' own modules (B, T, D) -> (B, T, D), with labels ``my:package.Mixer`` or ``my:NAME``.

``NAME`` is an entry of ``mixers.yaml`` or of an installed package.
"""
