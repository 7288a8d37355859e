"""The theorems of the paper, as checks of labels."""
