"""The engine of recurrences, shared by families: the scores of all rows by matrix products, decays and gates."""
