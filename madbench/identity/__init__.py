"""Digests of the code that trains a run: users' code outside of this package, and this package's own code.

A digest covers the syntax tree, so comments and formatting do not change it (``text``). ``reach`` finds the users'
code: it follows names from the class of a label, a task or a suite. ``plugins`` does this for installed packages.
``watch`` notes the data files that this code opens. The record of a run lists all these files with their digests;
``listing`` compares such a list with the files on this machine, as text and without importing them. ``package`` digests
madbench's own modules.
"""
