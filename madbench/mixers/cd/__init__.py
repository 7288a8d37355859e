"""The coefficient dynamics family ``cd:``: grammar, budget, operator, checks."""
