"""What the families ``hfa:`` and ``ha:`` share: token i sums, over tuples of tokens J, an effect f(i, J) times a value w(J).

Source of both: "A Theoretical Study of (Hyper) Self-Attention through the Lens of Interactions"; equations, definitions
and theorems named here are that paper's.
"""
