"""HyperMLP: its items, and the comparison of the language model's protocol with nanoGPT."""
