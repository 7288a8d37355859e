"""Digests of the code that trains a run: madbench's own code, and users' code outside of madbench.

A digest covers the syntax tree, so comments and formatting do not change it (``text``). The two kinds of code have
nothing else in common.

**Madbench's own code** does not enter the ids of runs. A stored run gets a mark if the code that trained it was edited
since. ``package`` digests the files that one part of the code imports, and looks up which digests stand for code that
gives equal numbers. :mod:`madbench.suites.code` names the parts of the code and the modules where the search for
imports begins. ``known_equal.json`` is written by ``studies/equal_code.py``.

**Users' code** enters the ids of runs. ``reach`` finds it: it follows names from the class of a label, a task or a
suite. ``plugins`` does this for installed packages. ``watch`` notes the data files that this code opens. The record of
a run lists all these files with their digests. ``listing`` compares such a list with the files on this machine, as text
and without importing them. ``scripts`` marks processes that import a user's script.
"""
