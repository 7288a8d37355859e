"""The family of users' own modules (B, T, D) -> (B, T, D), with labels ``my:package.Mixer`` or ``my:NAME``.

``NAME`` is the name of an entry: a line of ``mixers.yaml``, or an entry point of an installed package.
"""
