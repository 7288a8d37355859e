"""Digests of code: modules and plugins of users (``reach``), and this package (``package``).

A digest covers the syntax tree, so comments and formatting do not change it (``text``). Code outside of this package is
followed by name from the class of a label, a task or a suite. ``watch`` notes the data files that this code opens. A
run's record lists the files with their digests. ``listing`` compares such a list with the files on this machine, as
text and without imports.
"""
