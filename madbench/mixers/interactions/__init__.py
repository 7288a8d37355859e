"""What the families ``hfa:`` and ``ha:`` share: token i sums effects f(i, J) times values w(J) over tuples of tokens J.

Source of both: "A Theoretical Study of (Hyper) Self-Attention through the Lens of Interactions"; equations, definitions
and theorems named here are that paper's.
"""
