"""The family of coefficient dynamics, ``cd:``: grammar, budget, operator and checks."""
