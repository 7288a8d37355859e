"""The paper "A Theoretical Study of (Hyper) Self-Attention through the Lens of Interactions", arXiv 2506.06179.

Like an installed package, this folder declares its families ``hfa:`` (HyperFeatureAttention) and ``ha:``
(HyperAttention) and its suite in ``entry_points.txt``. Equations, definitions and theorems are cited by the paper's
numbers.
"""
