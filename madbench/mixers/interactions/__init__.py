"""Shared parts of the families ``hfa:`` and ``ha:``. Token i sums effects f(i, J) times values w(J) over tuples J.

Source of both: "A Theoretical Study of (Hyper) Self-Attention through the Lens of Interactions". Equations, definitions
and theorems named here are those of this paper.
"""
