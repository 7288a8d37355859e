"""The lemmas and table of the paper on coefficient dynamics, measured on a built mixer of the family."""
