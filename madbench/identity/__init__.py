"""Digests of the code that trains a run: this package's own code, and users' code outside of this package.

A digest covers the syntax tree, so comments and formatting do not change it (``text``). The two kinds of code have
nothing else in common.

**This package's own code** marks stored runs after an edit. Two files are all there is to know: ``package`` digests the
files that a part of the code imports, and looks up digests that give equal numbers; ``comparable`` says what of a file
counts. :mod:`madbench.suites.code` names the parts, and where the imports of each begin. ``known_equal.json`` is
written by ``studies/equal_code.py``.

**Users' code** enters the ids of runs. ``reach`` finds it: it follows names from the class of a label, a task or a
suite. ``plugins`` does this for installed packages. ``watch`` notes the data files that this code opens. The record of
a run lists all these files with their digests; ``listing`` compares such a list with the files on this machine, as text
and without importing them. ``scripts`` marks processes that import a user's script.
"""
