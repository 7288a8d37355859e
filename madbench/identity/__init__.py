"""Digests of code: of the modules and plugins of users (``reach``), and of this package (``package``).

A digest is of the syntax tree, so that neither comments nor formatting change it (``text``). What is outside of this
package is followed by name from the class that a label, a task or a suite names; ``watch`` notes which data files that
code opens. A run's record lists the files with their digests, and ``listing`` compares such a list with the files that
are here, as text: it imports nothing.
"""
