"""The families ``hfa:`` (HyperFeatureAttention) and ``ha:`` (HyperAttention).

In both, the output at token i is a sum over tuples J of tokens: the effect f(i, J) of the tuple on token i, times the
value w(J).
"""
