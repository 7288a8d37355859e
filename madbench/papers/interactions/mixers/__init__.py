"""The families ``hfa:`` and ``ha:``. Token i sums effects f(i, J) times values w(J) over tuples J."""
