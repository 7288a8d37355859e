"""Everything of "A Theoretical Study of (Hyper) Self-Attention through the Lens of Interactions", arXiv 2506.06179.

The folder is a package like an installed one: ``entry_points.txt`` declares its families ``hfa:`` and ``ha:`` and its
suite. Equations, definitions and theorems named here are those of the paper.
"""
